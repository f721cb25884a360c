"""A trainer whose networks, summary and checkpoints are fakes."""

import copy
import types

import tensorflow as tf

from cyclegan.config import Config
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution.workers import Workers
from cyclegan.methods.objective import CHANGES, ERRORS, SAMPLES
from cyclegan.run.throughput import Throughput
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks import make_callbacks
from cyclegan.training.trainer import Split, Trainer
from tests.training.helpers import LOSSES

RATES = {"learning_rate": 0.5, "learning_rate_discriminators": 0.25}
METRIC_NAMES = {"train": LOSSES, "test": LOSSES + ERRORS + CHANGES}


class Recorder:
    """Stand in for the summary and the checkpoints of a run, and record the calls."""

    log_bytes = 0
    newest = None
    folder = "nowhere"

    def __init__(self):
        self.calls = []

    def write_scalars(self, split, epoch, step, values):
        self.calls.append((split, epoch, step, values))

    def write_event(self, split, epoch, step, event, **details):
        self.calls.append((event, epoch, step, details))

    def rewind(self, state, changes, epoch_size):
        self.calls.append(("rewind", state.epoch))

    def write_cycles(self, epoch, forward, backward, names):
        self.calls.append(("plot", epoch, len(forward[0])))

    def write_page(self, progress):
        self.progress = progress

    def close(self, is_complete):
        self.is_complete = is_complete

    def flush(self):
        return True

    def save(self, state, best=()):
        self.saved = copy.deepcopy(state)
        self.calls.append(("save", state.epoch, state.step))
        self.calls += [(name, state.epoch, dict(state.best_kid)) for name in best]
        return f"checkpoint of step {state.step}"

    def restore(self, newest_last=False):
        state = copy.deepcopy(self.saved)
        return state, f"checkpoint of step {state.step}"

    def epochs_of(self, kind):
        """Return the epochs of the calls of one kind."""
        return [call[1] for call in self.calls if call[0] == kind]

    def steps_of(self, kind):
        """Return the steps of the calls of one kind."""
        return [call[2] for call in self.calls if call[0] == kind]

    def values_of(self, kind):
        """Return the values of the calls of one kind."""
        return [call[3] for call in self.calls if call[0] == kind]


class Scored:
    """Stand in for an Evaluator: return the next KIDs of X -> Y and of Y -> X."""

    directions = ("x2y", "y2x")

    def __init__(self, kids, name="random", is_reliable=True):
        self.is_reliable = is_reliable
        self.kids, self.extractor = iter(kids), types.SimpleNamespace(name=name)

    def scores(self, direction, errors=True):
        assert not errors
        kid = next(self.kids)
        if isinstance(kid, Exception):
            raise kid
        return {"FID": 100 * kid, "KID": kid}


class Steps:
    """Stand in for the compiled steps of a split: the metrics of each sample are the same number.

    Attributes:
        names: Sets of the names of the metrics that were summed.
    """

    def __init__(self, split, value=1.0, bad=(), on_call=id, seen=None):
        self.split, self.value, self.bad, self.on_call, self.seen = split, value, bad, on_call, seen
        self.count, self.names = 0, set()

    def __call__(self, batches, totals, steps, *_):
        self.on_call(self.split)
        self.names.add(frozenset(totals))
        good, metrics = [], []
        for x, _, weight in list(zip(*batches))[: int(steps)]:
            self.count += 1
            good.append(self.count not in self.bad)
            if self.seen is not None:
                self.seen.extend(image.numpy().tobytes() for image, w in zip(x, weight) if w)
            metrics.append(self.value if good[-1] else float("nan"))
            samples = float(good[-1]) * tf.reduce_sum(tf.cast(weight, tf.float64))
            totals = {k: v + (1 if k == SAMPLES else self.value) * samples for k, v in totals.items()}
        return totals, tf.constant(good), dict.fromkeys(totals, tf.constant(metrics))


def make_dataset(images, batch_size, seed, steps_per_call=1):
    """Return pairs of images with themselves."""
    return UnpairedDataset(images, images, batch_size, images.shape[1:3], seed, steps_per_call)


def fake_model(**generators):
    """Return a model whose generators are functions of an image batch."""
    generators = {name: lambda x, training, f=f: tf.constant(f(x)) for name, f in generators.items()}
    return types.SimpleNamespace(networks=types.SimpleNamespace(in_use=types.SimpleNamespace(generators=generators)))


def make_trainer(strategy, recorder, train, test, state=None, evaluation=None, **settings):
    """Return a trainer for fake splits: (dataset, steps) each."""
    model = fake_model(G=lambda x: x, F=lambda y: y)
    train, test = (
        Split(name, dataset, steps, METRIC_NAMES[name], Throughput(1e9 if name == "train" else 0.0))
        for name, (dataset, steps) in (("train", train), ("test", test))
    )
    rates = {"lr": 0.5, "lr_discriminator": 0.25, "lr_schedule": "constant"}
    config = Config.from_settings(**{"verbose": 0, **rates, **settings})
    run = types.SimpleNamespace(check=lambda: None)
    workers = Workers(strategy)
    callbacks = make_callbacks(config, workers, model, test.dataset, recorder, evaluation)
    return Trainer(config, workers, (train, test), state or TrainState(), recorder, recorder, callbacks, run)


def without_times(values):
    """Return metrics without times."""
    return {k: v for k, v in values.items() if not k.startswith("speed/") and "seconds" not in k}


def calls_without_times(recorder):
    """Return the calls of a recorder without times."""
    return [(*call[:3], without_times(call[3])) if len(call) > 3 else call for call in recorder.calls]
