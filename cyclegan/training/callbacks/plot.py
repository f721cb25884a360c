"""Sample images of the generators during training."""

from __future__ import annotations

import os

import numpy as np

from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.images.value_range import to_float
from cyclegan.reporting.summaries import SummaryWriter
from cyclegan.training.callbacks.base import Callback, Epoch
from cyclegan.training.gan import GAN

SAMPLES = 5  # held-out images of each domain


class PlotCallback(Callback):
    """Write sample images every few epochs and at the end.

    Args:
        model: The networks.
        dataset: Held-out pairs.
        summary: Writer of the images.
        every: Epochs between sample images.
    """

    def __init__(self, model: GAN, dataset: UnpairedDataset, summary: SummaryWriter, every: int) -> None:
        self._model = model
        self._dataset = dataset
        self._summary = summary
        self._every = every

    def on_epoch_end(self, epoch: Epoch) -> None:
        """Write the sample images of the epoch if they are due."""
        if epoch.state.epoch % self._every == 0 or epoch.is_last:
            plot_samples(self._model, self._dataset, self._summary, epoch.state.epoch)


def plot_samples(model: GAN, dataset: UnpairedDataset, summary: SummaryWriter, epoch: int) -> os.PathLike[str]:
    """Write the translations of the first held-out images, and return the path of the figure."""
    count = min(SAMPLES, dataset.epoch_size)
    x, y = (to_float(np.stack([dataset.image(domain, 0, pair) for pair in range(count)])) for domain in (0, 1))
    beside = model.objective.translate_samples(model.networks.in_use, x, y)
    forward, backward = (
        (images, *(each.numpy() for each in translations)) if translations else ()
        for images, translations in zip((x, y), beside)
    )
    names = [part[:count] for part in dataset.names]
    return summary.write_cycles(epoch, forward, backward, names)
