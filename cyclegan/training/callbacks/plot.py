"""Sample images of the generators during training."""

from __future__ import annotations

import numpy as np

from cyclegan import terminal
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.images.value_range import to_float
from cyclegan.run.sample_images import Cycle
from cyclegan.run.summaries import SummaryWriter
from cyclegan.training.callbacks.base import Callback, Epoch
from cyclegan.training.callbacks.silent_failures import UNTRAINED, find_collapse, warn_once
from cyclegan.training.gan import GAN

SAMPLES = 5  # held-out images of each domain


class PlotCallback(Callback):
    """Write sample images every few epochs and at the end; warn if translations of different images are all alike.

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
        """Write the sample images of the epoch if they are due; look for collapsed generators."""
        is_due, is_trained = epoch.state.epoch % self._every == 0 or epoch.is_last, epoch.state.step >= UNTRAINED
        if not (is_due or is_trained):
            return
        real = load_samples(self._dataset)
        samples: tuple[Cycle, ...]
        if is_due:
            with terminal.phase("Writing sample images", if_slow=True):
                samples = translate_samples(self._model, *real)
                write_samples(samples, self._dataset, self._summary, epoch.state.epoch)
        else:  # half of the passes; without them, the state of a run would depend on --plot_every
            samples = translate_one_way(self._model, *real)
        for network, cycle, targets in zip("GF", samples, real[::-1]):
            if cycle and is_trained:
                warn_once(self._summary, epoch, find_collapse(network, cycle[0], cycle[1], targets))


def load_samples(dataset: UnpairedDataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the first held-out images of X and of Y, float32 [N, H, W, C] in [-1, 1]."""
    count = min(SAMPLES, dataset.epoch_size)
    x, y = (to_float(np.stack([dataset.image(domain, 0, pair) for pair in range(count)])) for domain in "XY")
    return x, y


def translate_samples(model: GAN, x: np.ndarray, y: np.ndarray) -> tuple[Cycle, Cycle]:
    """Return the images of X with their translations, and the images of Y with theirs; empty without a generator."""
    beside = model.objective.translate_samples(model.networks.in_use, x, y)
    forward, backward = (
        (images, *(each.numpy() for each in translations)) if translations else ()
        for images, translations in zip((x, y), beside)
    )
    return forward, backward


def translate_one_way(model: GAN, x: np.ndarray, y: np.ndarray) -> tuple[Cycle, Cycle]:
    """Return the result of `translate_samples` without the translations back."""
    generators = model.networks.in_use.generators
    forward, backward = (
        (images, generators[name](images, training=False).numpy()) if name in generators else ()
        for name, images in zip("GF", (x, y))
    )
    return forward, backward


def write_samples(samples: tuple[Cycle, Cycle], dataset: UnpairedDataset, summary: SummaryWriter, epoch: int) -> None:
    """Write samples from `translate_samples`."""
    count = max(len(cycle[0]) for cycle in samples if cycle)
    summary.write_cycles(epoch, *samples, [part[:count] for part in dataset.names])
