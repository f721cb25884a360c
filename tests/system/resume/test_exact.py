"""Runs that are stopped or killed at any step equal a run without interruption, bit for bit."""

import signal

import numpy as np
import pytest

from cyclegan.errors import Stopped
from scripts.soak.comparison import log_lines
from tests.system.resume.world import EPOCHS, STEPS, Killed, World, check_equal, kept, kill_at, position, score, send_at
from tests.training.helpers import SETS


def test_undisturbed_run_logs_each_step_once(undisturbed):
    _, where, lines = undisturbed
    assert [(line["split"], line["epoch"], line["step"]) for line in lines if "event" not in line] == [
        ("steps", 0.46154, 1), ("steps", 0.92308, 2), ("steps", 1, 3), ("train", 1, 3), ("test", 1, 3),
        ("steps", 1.46154, 4), ("steps", 1.92308, 5), ("steps", 2, 6), ("train", 2, 6), ("test", 2, 6),
    ]  # fmt: skip
    assert where["epoch"] == EPOCHS and where["step"] == 6


METHODS = {  # beside the options of SETS
    "batch": {"precision": "float16", "lr_discriminator": 2e-3, "weight_decay": 0.01},
    "wgan-gp": {"lr_schedule": "cosine", "upsample": "resize"},
    "cut": {"paired_share": 0.5},
    "fastcut": {"dropout": 0.3, "ema": 0.9},
    "dclgan": {"clip_norm": 1.0},
    "bce": {"variant": "paper"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_stop_with_every_option_is_bit_exact(strategies, make_images, tmp_path, name):
    """Resume networks, pools, EMA weights and statistics; rates and random numbers follow from the position."""
    world = World(strategies[1], make_images, **{**SETS[name], **METHODS[name], "epochs": EPOCHS, "pool_size": 4})
    trainer = world.finish(tmp_path / "whole")
    values = world.values()
    assert world.gan.pools["Y"].read()["counts"].sum() == 6  # slots of two images
    rates = [line["learning_rate"] for line in log_lines(tmp_path / "whole") if line["split"] == "steps"]
    assert rates[0] == 1e-3 and rates == sorted(rates, reverse=True) and rates[-1] < 0.5e-3
    for step in (2, 7):
        folder = tmp_path / f"stopped_at_{step}"
        with pytest.raises(Stopped):
            world.finish(folder, send_at(signal.SIGTERM, step))
        check_equal(world, world.finish(folder), folder, (values, position(trainer), log_lines(tmp_path / "whole")))


@pytest.mark.sampled
@pytest.mark.parametrize(
    "step, signum", [*((step, signal.SIGTERM) for step in range(1, EPOCHS * STEPS + 1)), (2, signal.SIGINT)]
)
def test_stop_at_any_step_is_bit_exact(world, undisturbed, tmp_path, step, signum):
    with pytest.raises(Stopped, match="the same command resumes") as stopped:
        world.finish(tmp_path, send_at(signum, step))
    assert stopped.value.exit_code == 128 + signum
    state = world.begin(tmp_path).state
    epochs, steps = divmod(step - 1, STEPS)
    assert (state.epoch, state.step) == (epochs, 3 * epochs + min(3, steps + 1))  # exactly this step was finished
    assert (state.train.pairs_done, state.test.pairs_done) == ((6, 12, 13, 13, 13)[steps], (0, 0, 0, 6, 7)[steps])
    check_equal(world, world.finish(tmp_path), tmp_path, undisturbed)


@pytest.mark.slow
def test_stop_between_calls_of_several_steps_is_bit_exact(world, tmp_path):
    world.finish(tmp_path / "whole", log_every=2)
    values, lines = world.values(), log_lines(tmp_path / "whole")
    for call in (1, 2, 6):  # two of training and one of testing in an epoch
        folder = tmp_path / str(call)
        with pytest.raises(Stopped):
            world.finish(folder, send_at(signal.SIGTERM, call), steps_per_call=2, log_every=2)
        epochs, calls = divmod(call - 1, 3)
        state = world.begin(folder).state
        assert (state.epoch, state.train.pairs_done) == (epochs, (12, 13, 13)[calls])
        trainer = world.finish(folder, steps_per_call=1 + call % 2, log_every=2)
        check_equal(world, trainer, folder, (values, position(trainer), lines))


@pytest.mark.sampled
@pytest.mark.parametrize("step, minutes", [*((step, 0) for step in range(1, EPOCHS * STEPS + 1)), (3, 10), (9, 10)])
def test_kill_at_any_step_is_bit_exact(world, undisturbed, tmp_path, step, minutes):
    with pytest.raises(Killed):
        world.finish(tmp_path, kill_at(step), checkpoint_minutes=minutes)
    trainer = world.begin(tmp_path)
    done = step - 1 if minutes == 0 else (step - 1) // STEPS * STEPS
    assert trainer.state.step == done // STEPS * 3 + min(3, done % STEPS)
    trainer.fit()
    check_equal(world, trainer, tmp_path, undisturbed)


@pytest.mark.slow
def test_repeated_kills_are_bit_exact(world, undisturbed, tmp_path):
    for step in (1, 3, 2, 4, 1, 2, 3):
        with pytest.raises(Killed):
            world.finish(tmp_path, kill_at(step), checkpoint_minutes=0)
    check_equal(world, world.finish(tmp_path), tmp_path, undisturbed)


def test_sigusr1_saves_and_training_continues(world, undisturbed, tmp_path, caplog):
    caplog.set_level("INFO")
    saved = []

    def hook(step, trainer):
        if step == 3:
            saved.extend(path.name for path in trainer.checkpoints.all())
        send_at(signal.SIGUSR1, 2)(step, trainer)

    trainer = world.finish(tmp_path, hook)
    assert saved == ["epoch_0000-1", "epoch_0000_pair_00012-2"]
    assert any(text.startswith("Saved ") and "epoch_0000_pair_00012" in text for text in caplog.messages)
    check_equal(world, trainer, tmp_path, undisturbed)


@pytest.mark.slow
def test_resume_on_fewer_replicas_differs_by_rounding_only(worlds, world, undisturbed, tmp_path):
    with pytest.raises(Stopped):
        worlds(3).finish(tmp_path, send_at(signal.SIGTERM, STEPS + 2))
    trainer = world.finish(tmp_path)
    values, where, lines = undisturbed
    assert position(trainer) == where
    for mine, theirs in zip(log_lines(tmp_path), lines):
        assert mine.keys() == theirs.keys()
        for key, value in theirs.items():
            assert mine[key] == (pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value), key
    for mine, theirs in zip(world.values(), values):
        np.testing.assert_allclose(mine, theirs, atol=2e-4)  # a fifth of a step: Adam divides by tiny gradients


def test_nothing_is_traced_after_the_first_epoch(world, tmp_path, monkeypatch):
    """Count traces of steps and pipelines; only saving makes small functions of its own."""
    from tensorflow.python.framework import func_graph

    made, original = [], func_graph.FuncGraph.__init__

    def counted(self, name, *args, **kwargs):
        made.append(name)
        return original(self, name, *args, **kwargs)

    counts = {}
    monkeypatch.setattr(func_graph.FuncGraph, "__init__", counted)
    world.finish(tmp_path, lambda step, trainer: counts.setdefault(step, len(made)), epochs=4, checkpoint_every=99)
    assert counts[4 * STEPS] == counts[STEPS + 1], made


@pytest.mark.slow
def test_scores_do_not_change_the_training(world, undisturbed, scored):
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
        assert value == min(line[f"score/{direction}/KID"] for line in tests)
        assert best[f"best-{direction}"][0] == epochs[0]


@pytest.mark.slow
@pytest.mark.parametrize("step, minutes", [(5, 0), (10, 10)])
def test_kill_of_a_scored_run_is_bit_exact(world, scored, tmp_path, step, minutes):
    with pytest.raises(Killed):
        world.finish(tmp_path, kill_at(step), checkpoint_minutes=minutes, **score(world))
    check_equal(world, world.finish(tmp_path, **score(world)), tmp_path, scored[0])
    assert kept(tmp_path) == scored[1]
