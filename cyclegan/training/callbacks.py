"""Actions after some epochs: scores, sample images, warnings about silent failures, and the report."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Protocol, Union, cast

import numpy as np
import tensorflow as tf

from cyclegan import terminal
from cyclegan.config import Config
from cyclegan.config.sections import DIRECTIONS, EvaluationConfig
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution.train_function import explain_out_of_memory
from cyclegan.distribution.workers import Workers
from cyclegan.errors import TrainingError, UserError
from cyclegan.evaluation.evaluator import Evaluator
from cyclegan.images.value_range import to_float
from cyclegan.methods import losses
from cyclegan.methods.objective import CHANGES, ERRORS, NO_MASKS, Masks
from cyclegan.run.metrics_log import describe
from cyclegan.run.sample_images import Cycle
from cyclegan.run.summaries import NullSummaryWriter, SummaryWriter
from cyclegan.run.train_state import TrainState
from cyclegan.training.step import GAN

logger = logging.getLogger(__name__)

Summary = Union[SummaryWriter, NullSummaryWriter]

PLOTTED = 5  # held-out images of each domain that are plotted
FIRST_PLOTS = (1, 2, 5, 10)  # epochs with sample images besides those of --plot_every
PREVIEW_SECONDS = 300.0  # between sample images within an epoch
UNCHANGED = 0.01  # mean |x - G(x)| in [-1, 1], below which G does nothing: 1.3 of 255 gray levels
INVERTED = -0.5  # correlation of x and G(x), below which G inverts
COLLAPSED = 0.1  # distance between translations, as a share of that between images, below which G has collapsed
UNTRAINED = 500  # steps in which generators may do what untrained ones do: give nearly the same gray, or negatives
WON = 0.01  # discriminator loss of an epoch, below which it is nearly always right; 0.25 (LSGAN) is chance
WON_EPOCHS = 3  # in a row, after which that is reported


@dataclasses.dataclass
class Epoch:
    """The end of an epoch; the evaluation adds its scores to the metrics, and may decide that training ends."""

    state: TrainState  # after the epoch
    is_last: bool
    metrics: dict[str, dict[str, float]]  # by split ("train", "test") and name
    is_sound: bool = True  # whether the newest step was finite, so that the weights are worth scoring
    # KID of each direction whose KID in this epoch is the lowest so far; only the chief knows it.
    best_kid: dict[str, float] = dataclasses.field(default_factory=dict)
    is_best: bool = False  # whether `best_kid` has any; all workers know it


@dataclasses.dataclass
class EvaluationCallback:
    """Score the generators every few epochs and at the end, and find the epochs with the lowest KID.

    Training ends after `--patience` evaluations without a new lowest KID. Only the chief has an evaluator.
    """

    evaluator: Evaluator | None
    config: EvaluationConfig
    workers: Workers

    def on_epoch_end(self, epoch: Epoch) -> None:
        """Add the scores to the metrics of the epoch, note the lowest KIDs so far, and decide whether training ends."""
        every, patience = self.config.evaluate_every, self.config.patience
        if not every or (epoch.state.epoch % every and not epoch.is_last):
            return
        counts = False
        if self.evaluator and epoch.is_sound:
            scores, epoch.best_kid = self._scores(self.evaluator, epoch.state)
            epoch.metrics["test"].update(scores)
            counts = bool(scores) and self.evaluator.is_reliable
        outcome = self.workers.broadcast_from_chief(2 if epoch.best_kid else counts)
        epoch.is_best = outcome == 2
        if not outcome:
            return  # an epoch without scores, or with those of few images, does not count
        state = epoch.state
        state.evaluations_since_best = 0 if epoch.is_best else state.evaluations_since_best + 1
        if not epoch.is_last and state.is_stalled(patience):
            epoch.is_last = True
            logger.info(
                f"Training ends after epoch {state.epoch}: in the last {state.evaluations_since_best} evaluations,"
                f" the KID of no direction was the lowest so far (--patience {patience})"
            )

    def _scores(self, evaluator: Evaluator, state: TrainState) -> tuple[dict[str, float], dict[str, float]]:
        """Return the finite scores by metric name, and the KID of each direction if it is the lowest so far."""
        if (name := evaluator.extractor.name) != state.best_kid_features:
            if state.best_kid:
                text = f"the scores use other features from here on ({state.best_kid_features} -> {name})"
                logger.warning(f"{text}: the search for the best starts again")
            state.best_kid, state.best_epoch, state.best_kid_features = {}, {}, name
        try:
            with explain_out_of_memory():
                scores = {direction: evaluator.scores(direction, errors=False) for direction in evaluator.directions}
        except TrainingError as error:
            logger.warning(f"epoch {state.epoch} has no scores: {error}")
            return {}, {}
        metrics = {f"score/{d}/{key}": value for d in scores for key, value in scores[d].items()}
        low = {d: s["KID"] for d, s in scores.items() if s["KID"] < state.best_kid.get(d, math.inf)}
        best = low if evaluator.is_reliable else {}
        return {name: value for name, value in metrics.items() if math.isfinite(value)}, best


@dataclasses.dataclass
class PlotCallback:
    """Write sample images after the first epochs, `every` few epochs, at the end, and every few minutes of an epoch.

    Warn if translations of different images are all alike. `dataset` has the held-out images.
    """

    model: GAN
    dataset: UnpairedDataset
    summary: SummaryWriter
    every: int

    def __post_init__(self) -> None:
        self.next_preview = time.monotonic() + PREVIEW_SECONDS

    def preview(self, epochs: float) -> None:
        """Write sample images within an epoch, after a fraction of epochs."""
        self._write(epochs, translate_samples(self.model, *load_samples(self.dataset)))

    def on_epoch_end(self, epoch: Epoch) -> None:
        """Write the sample images of the epoch if they are due; look for collapsed generators."""
        number, is_trained = epoch.state.epoch, epoch.state.step >= UNTRAINED
        is_due = number in FIRST_PLOTS or number % self.every == 0 or epoch.is_last
        if not (is_due or is_trained):
            return
        real, masks = load_samples(self.dataset)
        # In every epoch, so that `state.warned` does not depend on --plot_every; cycle images only for plots.
        samples = translate_samples(self.model, real, masks, with_cycles=is_due)
        if is_due:
            self._write(number, samples)
        for network, cycle, targets in zip("GF", samples, real[::-1]):
            if cycle and is_trained:
                warn_once(self.summary, epoch, find_collapse(network, cycle[0], cycle[1], targets))

    def _write(self, epochs: float, samples: tuple[Cycle, Cycle]) -> None:
        with terminal.phase("Writing sample images", if_slow=True):
            names = [part[: min(PLOTTED, self.dataset.epoch_size)] for part in self.dataset.names]
            self.summary.write_cycles(epochs, *samples, names)
        self.next_preview = time.monotonic() + PREVIEW_SECONDS


def load_samples(dataset: UnpairedDataset) -> tuple[Sequence[np.ndarray], Masks]:
    """Return the first held-out images of X and of Y, float32 [N, H, W, C] in [-1, 1], and their masks."""
    pairs = range(min(PLOTTED, dataset.epoch_size))
    images = [to_float(np.stack([dataset.image(domain, 0, pair) for pair in pairs])) for domain in "XY"]
    if not dataset.has_masks:
        return images, NO_MASKS
    x, y = (np.stack([dataset.mask(domain, 0, pair) for pair in pairs]) > 0 for domain in "XY")
    return images, (x, y)


def translate_samples(
    model: GAN, images: Sequence[np.ndarray], masks: Masks = NO_MASKS, with_cycles: bool = True
) -> tuple[Cycle, Cycle]:
    """Return [images, translations, cycle images] of X, and of Y; leave out what needs a missing generator."""
    generators = model.networks.in_use.generators

    def translate(images: np.ndarray, mask: tf.Tensor | None, there: str, back: str) -> Cycle:
        if there not in generators:
            return ()
        fakes = losses.compose(mask, generators[there](images, training=False), images)
        if not (with_cycles and back in generators):
            return (images, fakes.numpy())
        return (images, fakes.numpy(), losses.compose(mask, generators[back](fakes, training=False), images).numpy())

    return translate(images[0], masks[0], "G", "F"), translate(images[1], masks[1], "F", "G")


class Callback(Protocol):
    """An action at the end of epochs."""

    def on_epoch_end(self, epoch: Epoch) -> None:
        """Act on the end of an epoch."""


def make_callbacks(
    config: Config,
    workers: Workers,
    model: GAN,
    dataset: UnpairedDataset,
    summary: Summary,
    evaluator: Evaluator | None,
) -> list[Callback]:
    """Return the callbacks of a run; `dataset` has the held-out pairs, and only the chief has an evaluator."""
    callbacks: list[Callback] = [EvaluationCallback(evaluator, config.evaluation, workers)]
    if workers.is_chief:
        callbacks.append(PlotCallback(model, dataset, cast(SummaryWriter, summary), config.run.plot_every))
    return callbacks


def warn_once(summary: Summary, epoch: Epoch, failures: Mapping[str, str]) -> None:
    """Log the failures that no earlier epoch had, and mark the epoch in TensorBoard; `failures` has texts by name."""
    state = epoch.state
    for name, text in failures.items():
        if name not in state.warned:
            state.warned.append(name)
            logger.warning(f"epoch {state.epoch}: {text}")
            summary.write_event("test", state.epoch, state.step, name, text=text)


def find_silent_failures(
    train: Mapping[str, float], test: Mapping[str, float], adversarial: str = "lsgan", has_cycle: bool = True
) -> dict[str, str]:
    """Describe the failures that the metrics of an epoch show, each with a remedy, by a short name.

    Metrics may be missing if no step was finite. With the adversarial loss wgan-gp, a small discriminator loss means
    nothing. `has_cycle` is whether there are cycle and identity losses.
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
                f" the {'cycle works' if has_cycle else 'losses work'} with inverted colors, too. Start over with"
                " another --seed" + (" or a higher --lambda_identity" if has_cycle else "")
            )
        if adversarial != "wgan-gp" and train.get(f"loss_{domain}/loss", 1) < WON:
            found[f"D_{domain} has won"] = (
                f"D_{domain} is nearly always right about real and fake images (its loss was below {WON} for"
                f" {WON_EPOCHS} epochs), so {other} learns little from it. Try a lower --lr, or more images, or more"
                " varied ones"
            )
    return found


def find_collapse(network: str, images: np.ndarray, translations: np.ndarray, targets: np.ndarray) -> dict[str, str]:
    """Describe a generator, "G" or "F", that translates different images to nearly the same one, with a remedy.

    The translations need not differ more than `targets`, real images of their domain, which may have little contrast.
    All images are [N, H, W, C] in [-1, 1]. The result is empty if all is well, or if the images or the targets are
    alike.
    """
    before, after, usual = (_mean_distance(each) for each in (images, translations, targets))
    if min(before, usual) < UNCHANGED or not after < COLLAPSED * min(before, usual):
        return {}
    image = {"G": "x", "F": "y"}[network]
    return {
        f"{network} has collapsed": (
            f"{network}({image}) is nearly the same for all {len(images)} sample images: they differ by"
            f" {before * 127.5:.1f} of 255 gray levels on average, their translations by {after * 127.5:.1f}, real"
            f" images like these by {usual * 127.5:.1f}. Go back to an earlier checkpoint, or start over"
            " with --diffaugment color,translation, a lower --lr or more images"
        )
    }


def _mean_distance(images: np.ndarray) -> float:
    """Return the mean absolute difference of two images, over all pairs; 0 for fewer than two images."""
    pairs = itertools.combinations(images, 2)
    return float(np.mean([np.abs(one - other).mean() for one, other in pairs])) if len(images) > 1 else 0.0


def report_epoch(epoch: Epoch, names: Mapping[str, Sequence[str]], all_losses: bool) -> None:
    """Log the losses, errors and scores of an epoch, on request all losses; `names` of the metrics are by split."""
    train, test = epoch.metrics["train"], epoch.metrics["test"]
    totals = {}
    for name in names["train"]:  # a total, if there is one, comes last
        if name.endswith(("/loss", "/total")):
            totals[describe(name)[1].split(" ")[0]] = train.get(name, math.nan)
    logger.info("Losses (training): " + "  ".join(f"{network} {value:.4f}" for network, value in totals.items()))
    for pair in (ERRORS[::2], ERRORS[1::2]):
        if known := [name for name in pair if name in names["test"]]:
            errors = "  ".join(f"{_last_part(name)}: {test.get(name, math.nan):.4f}" for name in known)
            logger.info(f"Held-out {errors}")
    if scores := {name: value for name, value in test.items() if name.startswith("score/")}:
        logger.info("  ".join(f"{_last_part(name)}: {value:.4g}" for name, value in scores.items()))
    for split, values in epoch.metrics.items() if all_losses else ():
        losses = [name for name in names[split] if name not in (*ERRORS, *CHANGES)]
        logger.info(f"{split}: " + "  ".join(f"{name} {values.get(name, math.nan):.4f}" for name in losses))
    logger.info(f"Elapsed: {train['epoch_seconds']:.2f}s")


def report_best(state: TrainState, test: Mapping[str, float] | None = None) -> None:
    """Log the best KID of each direction that has one, and its last KID if the metrics `test` have it."""
    for direction, (source, target) in DIRECTIONS.items():
        if direction in state.best_kid:
            at = f"after epoch {state.best_epoch.get(direction, math.nan):.0f} (checkpoint best-{direction})"
            last = (test or {}).get(f"score/{direction}/KID")
            end = "" if last is None else f", last KID {last:.4g} after epoch {state.epoch}"
            logger.info(f"{source} -> {target}: best KID {state.best_kid[direction]:.4g} {at}{end}")


def _last_part(name: str) -> str:
    """Return a metric's name without its group: "MAE(X, F(X))" for "error/MAE(X, F(X))"."""
    return name.split("/", 1)[1]


def check_profile(steps: tuple[int, int] | None, state: TrainState, dataset: UnpairedDataset, epochs: int) -> None:
    """Raise `UserError` if --profile, as (START, END), begins after the last step; in a resumed run it may be over."""
    last = state.step + dataset.steps_left(state.train.pairs_done)
    last += (epochs - state.epoch - 1) * dataset.steps_per_epoch
    if steps and steps[0] >= last:
        raise UserError(
            f"--profile {steps[0]}:{steps[1]} profiles nothing: the run has {last} steps; expected fewer for START, or"
            " more --epochs"
        )
