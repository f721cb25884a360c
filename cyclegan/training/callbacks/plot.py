"""Sample images of the generators during training."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
import tensorflow as tf

from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.images.value_range import to_float
from cyclegan.reporting.summaries import SummaryWriter
from cyclegan.training.callbacks.base import Callback, Epoch

SAMPLES = 5  # held-out images of each domain


class CycleModel(Protocol):
    """The part of the model that sample images need."""

    def cycle(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return (fake_y, cycle_x, fake_x, cycle_y) for images float32 [N, H, W, C] in [-1, 1]."""


class PlotCallback(Callback):
    """Write sample images every few epochs and at the end.

    Args:
        model: The networks.
        dataset: Held-out pairs.
        summary: Writer of the images.
        every: Epochs between sample images.
    """

    def __init__(self, model: CycleModel, dataset: UnpairedDataset, summary: SummaryWriter, every: int) -> None:
        self._model = model
        self._dataset = dataset
        self._summary = summary
        self._every = every

    def on_epoch_end(self, epoch: Epoch) -> None:
        """Write the sample images of the epoch if they are due."""
        if epoch.state.epoch % self._every == 0 or epoch.is_last:
            plot_samples(self._model, self._dataset, self._summary, epoch.state.epoch)


def plot_samples(model: CycleModel, dataset: UnpairedDataset, summary: SummaryWriter, epoch: int) -> os.PathLike[str]:
    """Write the cycles of the first held-out images, and return the path of the figure."""
    count = min(SAMPLES, dataset.epoch_size)
    x, y = (to_float(np.stack([dataset.image(domain, 0, pair) for pair in range(count)])) for domain in (0, 1))
    fake_y, cycle_x, fake_x, cycle_y = (images.numpy() for images in model.cycle(x, y))
    names = [part[:count] for part in dataset.names]
    return summary.write_cycles(epoch, (x, fake_y, cycle_x), (y, fake_x, cycle_y), names)
