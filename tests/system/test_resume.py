"""Nothing is lost: runs that are stopped, killed, moved and broken, compared with one that nothing happened to.

A start of the program is simulated by giving the networks and optimizers new values, which restoring must replace, so that
the steps are traced once for all tests. tests/system/test_interrupted_runs.py and scripts/soak.py do the same with processes.
"""

import json
import math
import os
import pathlib
import resource
import shutil
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.checkpointing.manager import CheckpointManager
from cyclegan.checkpointing.train_state import TrainState
from cyclegan.config import Config
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution.workers import Workers
from cyclegan.errors import Stopped, TrainingError, UserError
from cyclegan.evaluation import features
from cyclegan.evaluation.evaluator import Evaluator
from cyclegan.reporting.summaries import SummaryWriter
from cyclegan.reporting.throughput import Throughput
from cyclegan.training import checkpoint_policy
from cyclegan.training.assembly import Parts, assemble_trainer
from cyclegan.training.compiled_steps import compile_test_step, compile_train_step
from cyclegan.training.gan import GAN
from cyclegan.training.splits import Split

BATCH = 6
EPOCHS = 2
STEPS = 3 + 2  # of training (13 pairs) and of testing (7 pairs) in an epoch


RATES = (1e-3, 1e-3)


class Killed(BaseException):
    """What SIGKILL would do: nothing is cleaned up."""


class World:
    """Networks with compiled steps on a number of replicas, and runs on them."""

    def __init__(self, strategy, make_images, **options):
        self.strategy = strategy
        x, y, test_x, test_y = (make_images(n, 16, seed) for seed, n in enumerate((13, 15, 7, 8)))
        self.train, self.test = (
            UnpairedDataset(x, y, BATCH, (16, 16), seed=1),
            UnpairedDataset(test_x, test_y, BATCH, (16, 16)),
        )
        with strategy.scope():
            self.config = Config.from_settings(
                **{"filters": 2, "residual_blocks": 0, "image_size": 16, "lr": 1e-3, **options}
            )
            self.gan = GAN(BATCH, self.config)
        self.steps = {
            "train": compile_train_step(strategy, self.gan),
            "test": compile_test_step(strategy, self.gan),
        }
        self.first = self.values()
        self.together = set()  # numbers of steps in a call, for each of which a step is traced

    def variables(self):
        return [v for part in self.gan.state().values() for v in part.variables]

    def values(self):
        return [tf.convert_to_tensor(v).numpy() for v in self.variables()]

    def begin(
        self,
        folder,
        before_step=lambda number, trainer: None,
        keep=3,
        steps_per_call=1,
        evaluator=None,
        **settings,
    ):
        """Starts the program on a folder. `before_step` is called with the number of each call, from 1, of testing too."""
        self.train.steps_per_call = self.test.steps_per_call = steps_per_call
        self.together.add(steps_per_call)
        with self.strategy.scope():
            for variable, value in zip(self.variables(), self.first):
                variable.assign(value)
            checkpoints = CheckpointManager(folder / "checkpoints", self.gan.state(), keep)
            if checkpoints.all():
                for variable in self.variables():  # whatever restoring forgets stays wrong
                    variable.assign(tf.ones_like(tf.convert_to_tensor(variable)))
            state, _ = checkpoints.restore() or (TrainState(), None)
        count = [0]
        summary = SummaryWriter(folder)
        summary.write_cycles = lambda *images: None  # takes long, and is tested elsewhere
        summary.rewind(state.log_bytes, state.epoch, state.step)

        def step(split):
            def run(*args):
                count[0] += 1
                before_step(count[0], trainer)
                return self.steps[split](*args)

            return run

        train, test = (
            Split(name, dataset, step(name), self.gan.metric_names[name], Throughput())
            for name, dataset in (("train", self.train), ("test", self.test))
        )
        settings = {"verbose": 0, "plot_every": 99, "log_every": 1, "epochs": EPOCHS, **settings}
        parts = Parts(self.gan, train, test, state, checkpoints, summary)
        trainer = assemble_trainer(self.config.replace(**settings), Workers(self.strategy), parts, evaluator)
        trainer.gan, trainer.checkpoints = self.gan, checkpoints  # for `before_step`
        return trainer

    def finish(self, folder, *args, **settings):
        trainer = self.begin(folder, *args, **settings)
        trainer.fit()
        return trainer


def wait_for(signum):
    """A `before_step` hook: sends a signal to this process at a step, and waits until it has arrived."""

    def at(number):
        def hook(step, trainer):
            if step == number:
                os.kill(os.getpid(), signum)
                signals = trainer.passes.checkpoint_policy.signals
                while not (signals.stop_signal or signals.save_requested):
                    time.sleep(0.001)

        return hook

    return at


def kill_at(number):
    def hook(step, trainer):
        if step == number:
            raise Killed

    return hook


def log(folder):
    """The lines of metrics.jsonl without the times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if not key.startswith("speed/") and "seconds" not in key}
        for line in lines
    ]


def place(trainer):
    """The place in training without the times."""
    values = trainer.state.to_dict()
    return {key: value for key, value in values.items() if key not in ("train", "test", "log_bytes")}


@pytest.fixture(scope="module")
def worlds(strategies, make_images):
    made = {}

    def world(replicas):
        if replicas not in made:
            made[replicas] = World(strategies[replicas], make_images)
        return made[replicas]

    return world


@pytest.fixture(scope="module")
def world(worlds):
    return worlds(1)


@pytest.fixture(scope="module")
def undisturbed(world, tmp_path_factory):
    """(weights and slots, place, log) of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    trainer = world.finish(folder)
    return world.values(), place(trainer), log(folder)


def check_equal(world, trainer, folder, undisturbed):
    values, where, lines = undisturbed
    assert len(values) > 40
    for mine, theirs in zip(world.values(), values):
        np.testing.assert_array_equal(mine, theirs)
    assert place(trainer) == where
    assert log(folder) == lines


def test_the_log_of_an_undisturbed_run(undisturbed):
    _, where, lines = undisturbed
    assert [(line["split"], line["epoch"], line["step"]) for line in lines] == [
        ("steps", 1, 1), ("steps", 1, 2), ("steps", 1, 3), ("train", 1, 3), ("test", 1, 3),
        ("steps", 2, 4), ("steps", 2, 5), ("steps", 2, 6), ("train", 2, 6), ("test", 2, 6),
    ]  # fmt: skip
    assert where["epoch"] == EPOCHS and where["step"] == 6


METHODS = {
    "hinge": {
        **{"adversarial": "hinge", "norm": "batch", "dropout": 0.3, "residual_blocks": 1, "precision": "float16"},
        **{"ema": 0.9, "diffaugment": "color,translation,cutout", "discriminator_steps": 2},
        **{"clip_norm": 1.0, "weight_decay": 0.01, "lr_discriminator": 2e-3},
    },
    "wgan-gp": {
        **{"adversarial": "wgan-gp", "lr_schedule": "cosine", "upsample": "resize", "generator_steps": 2},
        **{"discriminator_layers": 1},
    },
    "paper": {
        **{"variant": "paper", "discriminator": "pixel"},
        **{"adversarial": "bce", "label_smoothing": 0.1, "r1": 1.0},
    },
}


@pytest.mark.parametrize(
    "name", ["hinge", *(pytest.param(name, marks=pytest.mark.slow) for name in ("wgan-gp", "paper"))]
)
def test_every_option_of_the_method_goes_on_where_it_stopped(strategies, make_images, tmp_path, name):
    """Networks, pools, running means and statistics come from the checkpoint; rates and draws from the place alone."""
    world = World(strategies[1], make_images, epochs=EPOCHS, pool_size=4, **METHODS[name])
    trainer = world.finish(tmp_path / "whole")
    values = world.values()
    assert world.gan.pools["X"].count.numpy() == 4
    rates = [line["learning_rate"] for line in log(tmp_path / "whole") if line["split"] == "steps"]
    assert rates[0] == 1e-3 and rates == sorted(rates, reverse=True) and rates[-1] < 0.5e-3
    for step in (2, 5, 7):
        folder = tmp_path / f"stopped_at_{step}"
        with pytest.raises(Stopped):
            world.finish(folder, wait_for(signal.SIGTERM)(step))
        check_equal(world, world.finish(folder), folder, (values, place(trainer), log(tmp_path / "whole")))


@pytest.mark.parametrize(
    "step, signum", [*((step, signal.SIGTERM) for step in range(1, EPOCHS * STEPS + 1)), (2, signal.SIGINT)]
)
def test_stopped_by_a_signal_at_any_step_and_resumed(world, undisturbed, tmp_path, step, signum):
    with pytest.raises(Stopped, match="the same command resumes") as stopped:
        world.finish(tmp_path, wait_for(signum)(step))
    assert stopped.value.exit_code == 128 + signum
    state = world.begin(tmp_path).state
    epochs, steps = divmod(step - 1, STEPS)
    assert (state.epoch, state.step) == (
        epochs,
        3 * epochs + min(3, steps + 1),
    )  # that step and no other was finished
    assert (state.train.pairs_done, state.test.pairs_done) == ((6, 12, 13, 13, 13)[steps], (0, 0, 0, 6, 7)[steps])
    check_equal(world, world.finish(tmp_path), tmp_path, undisturbed)


def test_calls_of_several_steps_are_the_same_and_can_be_stopped_in_between(world, tmp_path):
    world.finish(tmp_path / "whole", log_every=2)
    values, lines = world.values(), log(tmp_path / "whole")
    for call in range(1, EPOCHS * 3 + 1):  # two of training and one of testing in an epoch
        folder = tmp_path / str(call)
        with pytest.raises(Stopped):
            world.finish(folder, wait_for(signal.SIGTERM)(call), steps_per_call=2, log_every=2)
        epochs, calls = divmod(call - 1, 3)
        state = world.begin(folder).state
        assert (state.epoch, state.train.pairs_done) == (epochs, (12, 13, 13)[calls])
        trainer = world.finish(folder, steps_per_call=1 + call % 2, log_every=2)
        check_equal(world, trainer, folder, (values, place(trainer), lines))


@pytest.mark.parametrize("step, minutes", [*((step, 0) for step in range(1, EPOCHS * STEPS + 1)), (3, 10), (9, 10)])
def test_killed_at_any_step_and_resumed(world, undisturbed, tmp_path, step, minutes):
    with pytest.raises(Killed):
        world.finish(tmp_path, kill_at(step), checkpoint_minutes=minutes)
    trainer = world.begin(tmp_path)
    done = step - 1 if minutes == 0 else (step - 1) // STEPS * STEPS
    assert trainer.state.step == done // STEPS * 3 + min(3, done % STEPS)
    trainer.fit()
    check_equal(world, trainer, tmp_path, undisturbed)


def test_killed_at_any_moment_of_a_save(world, undisturbed, tmp_path, monkeypatch):
    """Each call that changes something on the disk is the last one once; what is found then is never half a checkpoint."""
    calls = [
        (os, "fsync"),
        (pathlib.Path, "rename"),
        (pathlib.Path, "write_text"),
        (shutil, "rmtree"),
        (tf.train.Checkpoint, "write"),
    ]
    count, last = [0], [0]

    def counted(original):
        def call(*args, **kwargs):
            count[0] += 1
            if count[0] == last[0]:
                raise Killed
            return original(*args, **kwargs)

        return call

    world.finish(tmp_path, epochs=1, keep=1)
    folder = tmp_path / "checkpoints"
    moments, places = 0, set()
    while True:
        with monkeypatch.context() as patch:
            checkpoints = CheckpointManager(folder, world.gan.state(), keep=1)
            progress, _ = checkpoints.restore()
            places.add((progress.epoch, progress.step))
            progress.epoch, progress.step = progress.epoch + 1, progress.step + 3
            count[0], last[0] = 0, moments + 1
            for owner, name in calls:
                patch.setattr(owner, name, counted(getattr(owner, name)))
            try:
                checkpoints.save(progress)
                break  # it took fewer calls
            except Killed:
                moments += 1
    assert moments > 8 and 1 < len(places) < moments  # killed early, the old one is found; late, the new one


def test_killed_again_and_again(world, undisturbed, tmp_path):
    for step in (1, 3, 2, 4, 1, 2, 3):
        with pytest.raises(Killed):
            world.finish(tmp_path, kill_at(step), checkpoint_minutes=0)
    check_equal(world, world.finish(tmp_path), tmp_path, undisturbed)


def test_sigusr1_saves_and_goes_on(world, undisturbed, tmp_path, caplog):
    saved = []

    def hook(step, trainer):
        if step == 3:
            saved.extend(path.name for path in trainer.checkpoints.all())
        wait_for(signal.SIGUSR1)(2)(step, trainer)

    trainer = world.finish(tmp_path, hook)
    assert saved == ["epoch_0000", "epoch_0000_pair_00012"]
    assert any(text.startswith("Saved ") and "epoch_0000_pair_00012" in text for text in caplog.messages)
    check_equal(world, trainer, tmp_path, undisturbed)


def test_nothing_is_retraced(world, undisturbed):
    for step in world.steps.values():
        assert step.experimental_get_tracing_count() == len(world.together)


@pytest.mark.parametrize("first, then", [(3, 1), (3, 2)])
def test_a_run_continues_on_another_number_of_replicas(worlds, undisturbed, tmp_path, first, then):
    with pytest.raises(Stopped):
        worlds(first).finish(tmp_path, wait_for(signal.SIGTERM)(STEPS + 2))
    trainer = worlds(then).finish(tmp_path)
    values, where, lines = undisturbed
    assert place(trainer) == where
    for mine, theirs in zip(log(tmp_path), lines):
        assert mine.keys() == theirs.keys()
        for key, value in theirs.items():
            assert mine[key] == (pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value), key
    for mine, theirs in zip(worlds(then).values(), values):
        np.testing.assert_allclose(
            mine, theirs, atol=2e-4
        )  # a fifth of a step of Adam, which divides by tiny gradients


class Poison:
    """A `before_step` hook that spoils a weight at one step, the first time only unless it is `stubborn`."""

    def __init__(self, step, stubborn=False):
        self.step, self.stubborn = step, stubborn

    def __call__(self, step, trainer):
        if step == self.step or (self.stubborn and step > self.step):
            weight = trainer.gan.networks.generators["G"].trainable_variables[0]
            weight.assign(tf.fill(weight.shape, math.nan))


def test_a_poisoned_weight_sends_training_back_once(world, undisturbed, tmp_path, caplog):
    trainer = world.finish(tmp_path, Poison(STEPS + 2), epochs=5, max_bad_steps=3)
    assert trainer.state.reshuffles == 1 and trainer.state.epoch == 5
    assert any("goes back to" in text and "epoch_0001" in text for text in caplog.messages)
    lines = log(tmp_path)
    assert [(line["split"], line["step"]) for line in lines if "event" not in line] == [
        (split, step) for epoch in range(5) for split, step in (
            *(("steps", 3 * epoch + i) for i in (1, 2, 3)), ("train", 3 * epoch + 3), ("test", 3 * epoch + 3))
    ]  # fmt: skip
    event = next(line for line in lines if line.get("event") == "went back")
    assert len(event["bad_steps"]) == 3
    assert all("loss_G/cycle" in text and "x[" in text for text in event["bad_steps"])
    assert lines[:5] == undisturbed[2][:5] and lines[6:11] != undisturbed[2][5:]  # another order
    assert all(np.isfinite(value).all() for value in world.values())


def test_a_run_that_went_back_resumes_exactly_too(world, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    world.finish(whole, Poison(STEPS + 2), epochs=4, max_bad_steps=3)
    values = world.values()
    with pytest.raises(Killed):  # one step after it went back, before anything was saved
        hook = Poison(STEPS + 2)
        world.finish(parts, lambda *at: (hook(*at), kill_at(STEPS + 2 + 4)(*at)), epochs=4, max_bad_steps=3)
    with pytest.raises(Stopped):
        hook = Poison(2)
        world.finish(parts, lambda *at: (hook(*at), wait_for(signal.SIGTERM)(2 + 5)(*at)), epochs=4, max_bad_steps=3)
    trainer = world.finish(parts, epochs=4)
    assert trainer.state.reshuffles == 1
    for mine, theirs in zip(world.values(), values):
        np.testing.assert_array_equal(mine, theirs)
    assert log(parts) == log(whole)


def test_a_weight_that_is_poisoned_again_stops_training(world, tmp_path):
    with pytest.raises(TrainingError, match="diverged again after going back once"):
        world.finish(tmp_path, Poison(STEPS + 2, stubborn=True), max_bad_steps=3, epochs=4)
    trainer = world.begin(tmp_path)
    assert trainer.state.epoch == 1 and all(np.isfinite(value).all() for value in world.values())


def test_told_to_stop_while_the_weights_are_broken(world, tmp_path):
    """They are saved, with the row of bad steps, and push no other checkpoint out: the rest is as without the stop."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    world.finish(whole, Poison(STEPS + 1), epochs=3, max_bad_steps=3)
    values = world.values()
    hook = Poison(STEPS + 1)
    with pytest.raises(Stopped, match="saved in .*epoch_0001_pair_00012"):
        world.finish(
            parts, lambda *at: (hook(*at), wait_for(signal.SIGTERM)(STEPS + 2)(*at)), epochs=3, max_bad_steps=3, keep=1
        )
    assert sorted(path.name for path in (parts / "checkpoints").iterdir()) == ["epoch_0001", "epoch_0001_pair_00012"]
    trainer = world.finish(parts, epochs=3, max_bad_steps=3)
    assert trainer.state.reshuffles == 1
    for mine, theirs in zip(world.values(), values):
        np.testing.assert_array_equal(mine, theirs)
    assert log(parts) == log(whole)


def test_a_checkpoint_of_weights_that_were_just_broken_is_not_what_training_goes_back_to(world, tmp_path, caplog):
    """A step's figures are from before its own update: weights that this breaks may be saved before anyone can know."""

    def hook(step, trainer):
        trainer.passes.learning_rates.schedule = (
            lambda epochs_done: (1e38, 1e38) if step == STEPS + 1 else RATES
        )  # of the next step

    trainer = world.finish(tmp_path, hook, checkpoint_minutes=0, max_bad_steps=3, epochs=4)
    assert trainer.state.reshuffles == 1 and any(
        "goes back to" in text and "epoch_0001_pair_00006" in text for text in caplog.messages
    )
    assert all(np.isfinite(value).all() for value in world.values())


def test_a_row_of_bad_steps_is_not_forgotten_by_a_stop(world, tmp_path):
    """Two bad training steps at the end of an epoch, a stop in the test pass, and the third."""

    def spoil(steps):
        def hook(step, trainer):
            weight = trainer.gan.networks.generators["G"].trainable_variables[0]
            if step in steps:
                spoil.healthy = tf.convert_to_tensor(weight)
                weight.assign(tf.fill(weight.shape, math.nan))
            elif step - 1 in steps:
                weight.assign(spoil.healthy)

        return hook

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    bad = spoil({2})
    again = spoil({STEPS + 1})
    world.finish(whole, lambda *at: (bad(*at), again(*at)), max_bad_steps=2, epochs=3)
    assert "went back" not in [line.get("event") for line in log(whole)]  # step 3 was good
    bad = spoil({3})
    world.finish(tmp_path / "row", lambda *at: (bad(*at), again(*at)), max_bad_steps=2, epochs=3)
    values, lines = world.values(), log(tmp_path / "row")
    assert "went back" in [line.get("event") for line in lines]
    bad, again = spoil({3}), spoil({1})
    with pytest.raises(Stopped):
        world.finish(parts, lambda *at: (bad(*at), wait_for(signal.SIGTERM)(STEPS)(*at)), max_bad_steps=2, epochs=3)
    world.finish(parts, again, max_bad_steps=2, epochs=3)
    for mine, theirs in zip(world.values(), values):
        np.testing.assert_array_equal(mine, theirs)
    assert log(parts) == lines


def test_without_a_checkpoint_to_go_back_to_training_stops(world, tmp_path):
    def hook(step, trainer):
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        Poison(2)(step, trainer)

    with pytest.raises(TrainingError, match="loss_G/cycle.*there is no checkpoint to go back to"):
        world.finish(tmp_path, hook, max_bad_steps=2)


def files_may_have(size):
    """From here on, no file of this process can grow beyond that: what a full disk does, done by the kernel."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_a_disk_that_is_full_for_a_while(world, undisturbed, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 0.0)
    older = []

    def hook(step, trainer):
        if step == 3:
            files_may_have(1000)
        if step == 8:
            files_may_have(resource.RLIM_INFINITY)
            older.extend(path.name for path in trainer.checkpoints.all())
            assert trainer.checkpoints.restore()[1].name == older[-1]
            raise Killed

    try:
        with pytest.raises(Killed):
            world.finish(tmp_path, hook, checkpoint_minutes=0)
    finally:
        files_may_have(resource.RLIM_INFINITY)
    assert older == ["epoch_0000", "epoch_0000_pair_00006", "epoch_0000_pair_00012"]
    failures = [text for text in caplog.messages if "Training continues, and tries again in" in text]
    assert failures and "epoch_0000_pair_00012 is complete" in failures[0]
    assert "metrics.jsonl could not be written" in caplog.text
    check_equal(world, world.finish(tmp_path), tmp_path, undisturbed)


def test_a_disk_that_has_room_again(world, undisturbed, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 0.0)

    def hook(step, trainer):
        if step in (3, 7):
            files_may_have(1000 if step == 3 else resource.RLIM_INFINITY)

    try:
        trainer = world.finish(tmp_path, hook, checkpoint_minutes=0)
    finally:
        files_may_have(resource.RLIM_INFINITY)
    assert "metrics.jsonl can be written again; nothing is missing" in caplog.text
    check_equal(world, trainer, tmp_path, undisturbed)
    assert [path.name for path in trainer.checkpoints.all()][-1] == "epoch_0002"


def test_the_end_waits_for_room_on_the_disk_for_the_log_too(world, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 0.01)
    tries = []
    flush = SummaryWriter.flush

    def flush_later(self):
        tries.append(flush(self))
        if len(tries) == 6:
            files_may_have(resource.RLIM_INFINITY)
        return tries[-1]

    def hook(step, trainer):
        if step == EPOCHS * STEPS:
            monkeypatch.setattr(SummaryWriter, "flush", flush_later)
            files_may_have((tmp_path / "metrics.jsonl").stat().st_size)

    try:
        trainer = world.finish(tmp_path, hook)
    finally:
        files_may_have(resource.RLIM_INFINITY)
    assert tries[:6] == [False] * 6 and tries[-1]
    check_equal(world, trainer, tmp_path, undisturbed)


def test_the_end_waits_for_room_on_the_disk(world, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 0.01)
    tries = []

    def full(self, path):
        tries.append(path)
        if len(tries) < 4:
            raise OSError(28, "No space left on device")
        return write(self, path)

    def hook(step, trainer):
        if step == EPOCHS * STEPS:
            monkeypatch.setattr(tf.train.Checkpoint, "write", full)

    write = tf.train.Checkpoint.write
    trainer = world.finish(tmp_path, hook)
    assert len(tries) == 4 and trainer.checkpoints.all()[-1].name == "epoch_0002"
    check_equal(world, trainer, tmp_path, undisturbed)


def test_a_checkpoint_folder_that_cannot_be_written_to(world, undisturbed, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(checkpoint_policy, "RETRY_SECONDS", 0.0)
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(UserError, match="epoch_0000 could not be written .*there is no checkpoint before it"):
        world.finish(tmp_path, kill_at(1))  # before the first step
    (tmp_path / "checkpoints").unlink()

    def hook(step, trainer):
        if step == 2:
            (tmp_path / "checkpoints").rename(tmp_path / "away")
            (tmp_path / "checkpoints").write_text("")
        if step == 5:
            (tmp_path / "checkpoints").unlink()
            (tmp_path / "away").rename(tmp_path / "checkpoints")

    trainer = world.finish(tmp_path, hook, checkpoint_minutes=0)
    assert any("Training continues, and tries again" in text for text in caplog.messages)
    check_equal(world, trainer, tmp_path, undisturbed)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:100], lambda data: b"", lambda data: data[:-1] + bytes([data[-1] ^ 4])]
)
def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(world, undisturbed, tmp_path, damage):
    with pytest.raises(Killed):
        world.finish(tmp_path, kill_at(STEPS + 3), checkpoint_minutes=0)
    newest = max((tmp_path / "checkpoints").glob("epoch_*"))
    data = next(newest.glob("state.data*"))
    data.write_bytes(damage(data.read_bytes()))
    trainer = world.begin(tmp_path)
    assert trainer.state.step == 4
    trainer.fit()
    check_equal(world, trainer, tmp_path, undisturbed)


def test_things_that_are_no_checkpoints_are_not_in_the_way(world, undisturbed, tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for name in ("epoch_9999", ".partial_epoch_0001", ".removed_epoch_0001", "notes.txt"):
        (folder / name).write_text("a file")
    (folder / "epoch_0077").symlink_to(tmp_path / "nowhere")
    check_equal(world, world.finish(tmp_path), tmp_path, undisturbed)
    assert sorted(path.name for path in folder.iterdir()) == [
        "epoch_0000", "epoch_0001", "epoch_0002", "epoch_0077", "epoch_9999", "notes.txt"
    ]  # fmt: skip


@pytest.mark.parametrize("step", [2, STEPS])
def test_stopped_on_three_replicas(worlds, tmp_path, step):
    world = worlds(3)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    world.finish(whole, epochs=1)
    values = world.values()
    with pytest.raises(Stopped):
        world.finish(parts, wait_for(signal.SIGTERM)(step), epochs=2)
    world.finish(parts, epochs=1)
    for mine, theirs in zip(world.values(), values):
        np.testing.assert_array_equal(mine, theirs)
    assert log(parts) == log(whole)


def test_nothing_at_all_is_traced_after_the_first_epoch(world, tmp_path, monkeypatch):
    """Not the steps, nor the pipelines. Only saving makes small functions of its own."""
    from tensorflow.python.framework import func_graph

    made, original = [], func_graph.FuncGraph.__init__

    def counted(self, name, *args, **kwargs):
        made.append(name)
        return original(self, name, *args, **kwargs)

    counts = {}
    monkeypatch.setattr(func_graph.FuncGraph, "__init__", counted)
    world.finish(tmp_path, lambda step, trainer: counts.setdefault(step, len(made)), epochs=4, checkpoint_every=99)
    assert counts[4 * STEPS] == counts[STEPS + 1], made


def score(world, **options):
    """Options of a trainer that scores each epoch. The compiled functions are made once for all starts."""
    if not hasattr(world, "evaluator"):
        world.evaluator = Evaluator(
            *world.gan.generators_in_use, *world.test.domains, (16, 16), features.random_extractor(), batch_size=4
        )
    return {"evaluator": world.evaluator, "evaluate_every": 1, **options}


def kept(folder):
    """{"best-x2y": (manifest, bytes of the state), ...} of a run, without the times."""
    found = {}
    for path in sorted((folder / "checkpoints").glob("best-*")):
        place = json.loads((path / "manifest.json").read_text())["train_state"]
        assert not place["train"]["pairs_done"]
        data = next(path.glob("state.data*")).read_bytes()
        found[path.name] = (place["epoch"], place["best_kid"], data)
    return found


@pytest.fixture(scope="module")
def scored(world, tmp_path_factory):
    """(weights and slots, place, log), the best checkpoints, of a run that is scored and that nothing else happened to."""
    folder = tmp_path_factory.mktemp("scored")
    trainer = world.finish(folder, **score(world))
    return (world.values(), place(trainer), log(folder)), kept(folder)


def test_scores_do_not_change_what_is_trained(world, undisturbed, scored):
    (values, where, lines), best = scored
    for mine, theirs in zip(values, undisturbed[0]):
        np.testing.assert_array_equal(mine, theirs)
    keys = {f"score/{direction}/{name}" for direction in ("x2y", "y2x") for name in ("FID", "KID", "KID_std")}
    tests = [line for line in lines if line["split"] == "test"]
    assert [keys - set(line) for line in tests] == [set(), set()]
    assert [{k: v for k, v in line.items() if k not in keys} for line in lines] == undisturbed[2]
    assert set(best) == {"best-x2y", "best-y2x"} and where["best_kid_features"] == "random"
    for direction, value in where["best_kid"].items():
        epochs = [line["epoch"] for line in tests if line[f"score/{direction}/KID"] == value]
        assert (
            value == min(line[f"score/{direction}/KID"] for line in tests) and best[f"best-{direction}"][0] == epochs[0]
        )


@pytest.mark.parametrize("step, minutes", [(5, 0), (6, 10), (10, 10)])
def test_a_scored_run_that_is_killed_and_resumed_has_the_same_log_and_the_same_best(
    world, scored, tmp_path, step, minutes
):
    with pytest.raises(Killed):
        world.finish(tmp_path, kill_at(step), checkpoint_minutes=minutes, **score(world))
    check_equal(world, world.finish(tmp_path, **score(world)), tmp_path, scored[0])
    assert kept(tmp_path) == scored[1]


@pytest.mark.parametrize("moment", (1, 2, 4, 7))
def test_a_scored_run_that_is_killed_while_it_saves_has_the_same_best(world, scored, tmp_path, monkeypatch, moment):
    count = [0]

    def fsync(descriptor, original=os.fsync):
        count[0] += 1
        if count[0] == moment:
            raise Killed
        original(descriptor)

    def at_the_end_of_the_first_epoch(step, trainer):
        if step == STEPS:
            patch.setattr(os, "fsync", fsync)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        world.finish(tmp_path, at_the_end_of_the_first_epoch, **score(world))
    check_equal(world, world.finish(tmp_path, **score(world)), tmp_path, scored[0])
    assert kept(tmp_path) == scored[1]
