"""Start a training again and again on one folder, in one process.

A start gives the networks and optimizers new values, which restoring must replace; so the steps are traced once for all
tests. tests/system/test_interrupted_runs.py and scripts/soak do the same with processes.
"""

import dataclasses
import os
import time

import numpy as np

from cyclegan.config import Config
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution.workers import Workers
from cyclegan.evaluation import features
from cyclegan.evaluation.evaluator import Evaluator
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.run_directory import saved_checkpoints
from cyclegan.run.summaries import SummaryWriter
from cyclegan.run.throughput import Throughput
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks import make_callbacks
from cyclegan.training.step import GAN, compile_test_step, compile_train_step
from cyclegan.training.trainer import Split, Trainer
from scripts.soak.comparison import log_lines
from tests.run.saves import read_train_state
from tests.system.runs import variables
from tests.training.helpers import FEW_LAYERS, assign_state, state_values

BATCH = 6
EPOCHS = 2
STEPS = 3 + 2  # of training (13 pairs) and of testing (7 pairs) in an epoch


class Killed(BaseException):
    """Stand for SIGKILL: nothing is cleaned up."""


class World:
    """Make networks with compiled steps on a number of replicas, and train them in runs."""

    def __init__(self, strategy, make_images, **options):
        self.strategy = strategy
        x, y, test_x, test_y = (make_images(n, 16, seed) for seed, n in enumerate((13, 15, 7, 8)))
        self.train = UnpairedDataset(x, y, BATCH, (16, 16), seed=1)
        self.test = UnpairedDataset(test_x, test_y, BATCH, (16, 16))
        with strategy.scope():
            self.config = Config.from_settings(**{"filters": 2, **FEW_LAYERS, "image_size": 16, "lr": 1e-3, **options})
            self.gan = GAN(BATCH, self.config)
        if self.config.uses_pairs:
            self.train.set_pairs(np.stack([np.arange(12)] * 2, axis=1), self.config.data.paired_share)
        self.steps = {"train": compile_train_step(strategy, self.gan), "test": compile_test_step(strategy, self.gan)}
        self.first = self.values()

    def values(self):
        return state_values(self.gan)

    def begin(self, folder, before_step=lambda *_: None, keep=3, steps_per_call=1, evaluator=None, **settings):
        """Start the program on a folder; `before_step` gets the number of each call from 1, test calls included."""
        self.train.steps_per_call = self.test.steps_per_call = steps_per_call
        with self.strategy.scope():
            assign_state(self.gan, self.first)
            checkpoints = CheckpointManager(folder / "checkpoints", self.gan.state(), keep)
            if checkpoints.all():
                assign_state(self.gan, map(np.ones_like, self.first))  # variables that restoring forgets stay wrong
            state, _ = checkpoints.restore() or (TrainState(), None)
        count = [0]
        summary = SummaryWriter(folder)
        summary.write_cycles = lambda *images: None  # slow, and tested elsewhere
        summary.rewind(state, state.changes(state), self.train.epoch_size)

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
        config, workers = self.config.replace(**settings), Workers(self.strategy)
        callbacks = make_callbacks(config, workers, self.gan, self.test, summary, evaluator)
        trainer = Trainer(config, workers, (train, test), state, checkpoints, summary, callbacks)
        trainer.gan, trainer.checkpoints = self.gan, checkpoints  # for `before_step`
        return trainer

    def finish(self, folder, *args, **settings):
        trainer = self.begin(folder, *args, **settings)
        trainer.fit()
        return trainer


def send_at(signum, number):
    """Return a `before_step` hook that sends a signal to this process at a step and waits until it arrives."""

    def hook(step, trainer):
        if step == number:
            os.kill(os.getpid(), signum)
            signals = trainer.policy.signals
            while not (signals.stop_signal or signals.save_requested):
                time.sleep(0.001)

    return hook


def kill_at(number):
    def hook(step, trainer):
        if step == number:
            raise Killed

    return hook


def position(trainer):
    """Return the training state without the times."""
    values = dataclasses.asdict(trainer.state)
    return {key: value for key, value in values.items() if key not in ("train", "test", "log_bytes")}


def check_equal(world, trainer, folder, undisturbed):
    values, where, lines = undisturbed
    assert len(values) > 40
    for mine, theirs in zip(world.values(), values):
        np.testing.assert_array_equal(mine, theirs)
    assert position(trainer) == where
    assert log_lines(folder) == lines


def score(world):
    """Return the options of a trainer that scores each epoch; compile the functions once for all starts."""
    if not hasattr(world, "evaluator"):
        generators = dict(zip(("x2y", "y2x"), world.gan.networks.generators.values()))
        extractor = features.make_extractor("random")
        world.evaluator = Evaluator(generators, *world.test.domains, (16, 16), extractor, batch_size=4)
        world.evaluator.is_reliable = True  # as with more images, so that there are best checkpoints
    return {"evaluator": world.evaluator, "evaluate_every": 1}


def kept(folder):
    """Return (epoch, best KID, bytes of all variables) of each best checkpoint of a run, by name."""
    found = {}
    for path in saved_checkpoints(folder / "checkpoints", "best-*"):
        state, values = read_train_state(path), variables(path)
        assert not state.train.pairs_done
        content = {name: np.asarray(value).tobytes() for name, value in values.items()}
        found[path.name.rpartition("-")[0]] = (state.epoch, state.best_kid, content)
    return found
