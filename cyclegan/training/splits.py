"""Splits of the images into training and held-out pairs, each with its compiled steps and their speed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import tensorflow as tf

from cyclegan.config.data import DataConfig
from cyclegan.data.sources import Domains
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution.workers import Workers
from cyclegan.errors import UserError
from cyclegan.methods.metric_names import SAMPLES
from cyclegan.run.throughput import Throughput
from cyclegan.run.train_state import PassState, TrainState
from cyclegan.training.gan import GAN
from cyclegan.training.step import compile_test_step, compile_train_step

# A compiled function that runs steps, see `distribution.train_function.make_train_function`.
StepFunction = Callable[..., tuple[dict[str, tf.Tensor], tf.Tensor, dict[str, tf.Tensor]]]


@dataclasses.dataclass
class Split:
    """The training pairs or the held-out pairs, which each epoch passes over once, and the steps of these passes.

    Attributes:
        name: "train" or "test".
        dataset: The pairs.
        function: Compiled function that runs steps.
        metric_names: Names of the metrics.
        throughput: Counter of the steps of a pass.
        batches: Iterator over the batches of all calls; `None` before the first. All epochs share it, so that the images of the
            next epoch are prefetched and nothing is traced again.
        is_traced: Whether the first call is done, which traces the function.
    """

    name: str
    dataset: UnpairedDataset
    function: StepFunction
    metric_names: tuple[str, ...]
    throughput: Throughput
    batches: Iterator[tuple[tf.Tensor, ...]] | None = None
    is_traced: bool = False

    @property
    def is_train(self) -> bool:
        """Whether the pairs of this split train the networks."""
        return self.name == "train"

    def progress(self, state: TrainState) -> PassState:
        """Return the part of a state that counts the present pass."""
        return state.train if self.is_train else state.test

    def adopt(self, state: TrainState) -> None:
        """Check that a saved position fits the pairs, and drop the sums of metrics that no longer exist.

        Raises:
            UserError: The position is beyond the end of the pass.
        """
        progress = self.progress(state)
        if progress.pairs_done > self.dataset.epoch_size:
            raise UserError(
                f"the checkpoint has done {progress.pairs_done} {self.name} pairs; expected at most {self.dataset.epoch_size}:"
                " it belongs to another run; use another --output_dir"
            )
        known = (*self.metric_names, SAMPLES)
        progress.sums = {name: value for name, value in progress.sums.items() if name in known}


def make_splits(
    model: GAN,
    data: Domains,
    workers: Workers,
    settings: DataConfig,
    steps_per_call: int,
    uses_pairs: bool,
    peak: float,
) -> tuple[Split, Split]:
    """Return the training pairs and the held-out pairs with their steps.

    Args:
        model: The networks.
        data: The images.
        workers: All workers.
        settings: Flips, and the share of pairs among the training samples.
        steps_per_call: Steps of a call of the functions.
        uses_pairs: Whether training uses pairs of images of the same name, if there are any.
        peak: FLOP/s of a device; 0 if not measured.
    """
    batch, strategy, shares = model.global_batch_size, workers.strategy, workers.speedup()
    flops = model.flops(*data.size) * batch
    assert data.train_x is not None and data.train_y is not None
    train, test = (
        UnpairedDataset(
            x.images,
            y.images,
            batch,
            data.size,
            seed,
            names=(x.names, y.names),
            steps_per_call=steps_per_call,
            flip=not settings.no_flip,
        )
        for x, y, seed in (
            (data.train_x, data.train_y, model.optimization.seed),
            (data.test_x, data.test_y, None),
        )
    )
    if uses_pairs and data.pairs is not None:
        train.set_pairs(data.pairs, settings.paired_share)
    train_step, test_step = compile_train_step(strategy, model), compile_test_step(strategy, model)
    return (
        Split("train", train, train_step, model.metric_names["train"], Throughput(flops, peak * shares)),
        Split("test", test, test_step, model.metric_names["test"], Throughput()),
    )
