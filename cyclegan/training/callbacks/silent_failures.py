"""Warnings about failures of training in which every number stays finite."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping

import numpy as np

from cyclegan.training.callbacks.base import Callback, Epoch, Summary

logger = logging.getLogger(__name__)

UNCHANGED = 0.01  # mean |x - G(x)| in [-1, 1], below which G does nothing: 1.3 of 255 gray levels
INVERTED = -0.5  # correlation of x and G(x), below which G inverts
COLLAPSED = 0.1  # distance between translations, as a share of that between images, below which G has collapsed
UNTRAINED = 500  # steps in which a generator may translate all images to nearly the same gray, as untrained ones do
WON = 0.01  # discriminator loss of an epoch, below which it is nearly always right; 0.25 (LSGAN) is chance


class SilentFailureCallback(Callback):
    """Warn once about each silent failure.

    Args:
        summary: Writer of the events.
        adversarial: Kind of the adversarial loss.
        has_cycle: Whether there are cycle and identity losses.
    """

    def __init__(self, summary: Summary, adversarial: str, has_cycle: bool = True) -> None:
        self._summary = summary
        self._adversarial, self._has_cycle = adversarial, has_cycle

    def on_epoch_end(self, epoch: Epoch) -> None:
        """Warn about the failures that the metrics of the epoch show."""
        train, test = epoch.metrics["train"], epoch.metrics["test"]
        warn_once(self._summary, epoch, find_silent_failures(train, test, self._adversarial, self._has_cycle))


def warn_once(summary: Summary, epoch: Epoch, failures: Mapping[str, str]) -> None:
    """Log the failures that no earlier epoch had, and mark the epoch in TensorBoard.

    Args:
        summary: Writer of the events.
        epoch: The epoch.
        failures: Descriptions by a short name.
    """
    state = epoch.state
    for name, text in failures.items():
        if name not in state.warned:
            state.warned.append(name)
            logger.warning(f"epoch {state.epoch}: {text}")
            summary.write_warning(state.epoch, state.step, name, text)


def find_silent_failures(
    train: Mapping[str, float], test: Mapping[str, float], adversarial: str = "lsgan", has_cycle: bool = True
) -> dict[str, str]:
    """Describe the failures that the metrics of an epoch show.

    Args:
        train: Metrics of the training pass; metrics may be missing if no step was finite.
        test: Metrics of the test pass.
        adversarial: Kind of the adversarial loss; with wgan-gp, a small discriminator loss means nothing.
        has_cycle: Whether there are cycle and identity losses.

    Returns:
        A description of each failure with a remedy, by a short name.
    """
    found = {}
    for network, other, domain in (("G", "F", "X"), ("F", "G", "Y")):
        image = domain.lower()
        if test.get(f"change/MAE({domain}, {network}({domain}))", 1) < UNCHANGED:
            found[f"{network} does nothing"] = (
                f"{network}({image}) is {image} itself, within {UNCHANGED * 127.5:.1f} of 255 gray levels on average:"
                f" {network} has learned to do nothing. Try a"
                + (" lower --lambda_identity or --lambda_cycle" if has_cycle else " higher --lr_discriminator")
            )
        if test.get(f"change/correlation({domain}, {network}({domain}))", 1) < INVERTED:
            found[f"{network} inverts"] = (
                f"{network}({image}) is the negative of {image} (their correlation is below {INVERTED}):"
                f" the {'cycle works' if has_cycle else 'losses work'} with inverted colors, too. Start over with another --seed"
                + (" or a higher --lambda_identity" if has_cycle else "")
            )
        if adversarial != "wgan-gp" and train.get(f"loss_{domain}/loss", 1) < WON:
            found[f"D_{domain} has won"] = (
                f"D_{domain} is nearly always right about real and fake images (its loss was below {WON} for an epoch), so {other}"
                " learns little from it. Try a lower --lr, or more images, or more varied ones"
            )
    return found


def find_collapse(network: str, images: np.ndarray, translations: np.ndarray, targets: np.ndarray) -> dict[str, str]:
    """Describe a generator that translates different images to nearly the same one.

    Translations need not differ more than the real images of their domain do, which may have little contrast.

    Args:
        network: Name of the generator, "G" or "F".
        images: Images, [N, H, W, C] in [-1, 1].
        translations: Their translations.
        targets: Real images of the domain of the translations.

    Returns:
        A description with a remedy, by a short name; empty if all is well, or the images or the targets are alike themselves.
    """
    before, after, usual = (_mean_distance(each) for each in (images, translations, targets))
    if min(before, usual) < UNCHANGED or not after < COLLAPSED * min(before, usual):
        return {}
    image = {"G": "x", "F": "y"}[network]
    return {
        f"{network} has collapsed": (
            f"{network}({image}) is nearly the same for all {len(images)} sample images: they differ by {before * 127.5:.1f} of 255"
            f" gray levels on average, their translations by {after * 127.5:.1f}, real images like these by {usual * 127.5:.1f}."
            " Go back to an earlier checkpoint, or start over"
            " with --diffaugment color,translation, a lower --lr or more images"
        )
    }


def _mean_distance(images: np.ndarray) -> float:
    """Return the mean absolute difference between two of these images [N, ...], over all pairs; 0 for fewer than two images."""
    pairs = itertools.combinations(images, 2)
    return float(np.mean([np.abs(one - other).mean() for one, other in pairs])) if len(images) > 1 else 0.0
