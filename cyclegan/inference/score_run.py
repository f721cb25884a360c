"""Scores of a trained run on its held-out images."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import logging
import os
import pathlib
import platform
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from cyclegan.config.sections import DIRECTIONS
from cyclegan.data import sources
from cyclegan.errors import TrainingError, UserError
from cyclegan.evaluation.evaluator import Evaluator
from cyclegan.evaluation.features import make_extractor
from cyclegan.evaluation.score_options import ScoreOptions
from cyclegan.inference.real_images import check_same_names, read_folder
from cyclegan.inference.restore import RestoredRun, restore
from cyclegan.run import folder
from cyclegan.run.train_state import TrainState

logger = logging.getLogger(__name__)


def score_run(run: str | os.PathLike[str], checkpoint: str | None, options: ScoreOptions) -> dict[str, Any]:
    """Score the generators of a run.

    Args:
        run: Folder of the run.
        checkpoint: Name of one of its checkpoints; `None` for the newest.
        options: Directions, features and images of the scores.

    Returns:
        "run", "checkpoint", "epoch", "step" and "versions", texts and numbers; and "directions", for each direction a dict of
        "scores", "untranslated" and "protocol", see `Evaluator`.

    Raises:
        UserError: The run, the checkpoint, the images or the features do not exist or do not fit, or memory is short.
        TrainingError: A translation is not finite, or an image cannot be read.
    """
    restored = restore(run, checkpoint)
    options = _in_directions_of(restored, options)
    evaluator = _make_evaluator(restored, options)
    return _score(restored, options, evaluator, _untranslated(evaluator, options))


def score_checkpoints(run: str | os.PathLike[str], options: ScoreOptions) -> list[dict[str, Any]]:
    """Score the generators of all checkpoints of a run.

    Skip checkpoints that cannot be read or whose translations are not finite, with a warning.

    Returns:
        The result of `score_run` for each checkpoint. It has a further item "aliases", the other names of the checkpoint.

    Raises:
        UserError: As in `score_run`, or no checkpoint has scores.
    """
    restored = _restore_any(run)
    options = _in_directions_of(restored, options)
    evaluator = _make_evaluator(restored, options)
    untranslated = _untranslated(evaluator, options)
    results: list[tuple[TrainState, dict[str, Any]]] = []
    for name in folder.names(restored.path / "checkpoints"):
        try:
            restored = restored.at(name)
        except UserError as error:  # damaged, or removed by a training that runs
            logger.warning(str(error))
            continue
        same = [result for state, result in results if state == restored.train_state]
        if same:
            same[0]["aliases"].append(name)
            continue
        try:
            scores = _score(restored, options, evaluator, untranslated)
        except TrainingError as error:
            logger.warning(f"{name} has no scores: {error}")
            continue
        results.append((restored.train_state, {**scores, "aliases": []}))
    if not results:
        raise UserError(
            f"{restored.path}: no checkpoint has scores, see above; expected one whose translations are finite"
        )
    return [result for _, result in results]


def _restore_any(run: str | os.PathLike[str]) -> RestoredRun:
    """Restore the newest checkpoint or, if none of training can be read, a best one."""
    try:
        return restore(run)
    except UserError:
        for name in reversed(folder.names(pathlib.Path(run).expanduser() / "checkpoints")):
            with contextlib.suppress(UserError):
                return restore(run, name)
        raise


def _in_directions_of(restored: RestoredRun, options: ScoreOptions) -> ScoreOptions:
    """Return the options without a direction that the run has no generator for; refuse it if it is the only one."""
    directions = restored.config.objective.directions
    if options.directions != tuple(DIRECTIONS):
        restored.generator(*options.directions)
    elif missing := [" -> ".join(DIRECTIONS[each]) for each in options.directions if each not in directions]:
        logger.info(
            f"No scores for {missing[0]}: --objective {restored.config.objective.objective} has no such generator"
        )
        options = dataclasses.replace(options, directions=directions)
    return options


def _score(
    restored: RestoredRun, options: ScoreOptions, evaluator: Evaluator, untranslated: Mapping[str, dict[str, float]]
) -> dict[str, Any]:
    protocol = {
        "dataset": options.dataset or restored.config.data.dataset,
        "real_from": options.real or "the held-out images",
        "max_images": options.max_images,
        "preprocess": restored.config.data.preprocess,
    }
    with _explain_memory(evaluator):
        scores = {direction: evaluator.scores(direction) for direction in options.directions}
    return {
        "run": str(restored.path),
        "checkpoint": restored.checkpoint.name,
        "epoch": restored.train_state.epoch,
        "step": restored.train_state.step,
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            **{name: importlib.metadata.version(name) for name in ("keras", "numpy", "pillow")},
        },
        "directions": {
            direction: {
                "scores": scores[direction],
                "untranslated": untranslated[direction],
                "protocol": {**protocol, **evaluator.protocol(direction)},
            }
            for direction in options.directions
        },
    }


def _make_evaluator(restored: RestoredRun, options: ScoreOptions) -> Evaluator:
    config = restored.config
    changes = {"dataset": options.dataset, "data_dir": options.data_dir, "max_dataset_size": options.max_images}
    present = config.replace(cache="none", **{name: value for name, value in changes.items() if value})
    if options.data_dir and not present.data.is_tfds:
        raise UserError(
            f"--data_dir {options.data_dir}: has no effect with the images of {present.data.dataset}, because it needs"
            " --dataset cycle_gan/NAME, stripes or scenes; drop the flag"
        )
    channels = {direction: restored.channels(direction)[1] for direction in options.directions}
    extractor = make_extractor(options.features, channels.values())
    domains = sources.load_domains(present.data, present.networks.multiple, splits=sources.TEST_SPLITS, bars=True)
    embedded = present.data.is_embedded
    if options.paired and not embedded:
        check_same_names(domains.test_x.names, domains.test_y.names)
    real = {
        direction: read_folder(
            options.real_folder(direction),
            config.data,
            config.networks.multiple,
            channels[direction],
            domains.size,
            config.data.value_range(direction[-1]),
        )
        for direction in (options.directions if options.real else ())
    }
    return Evaluator(
        restored.G,
        restored.F,
        domains.test_x.images,
        domains.test_y.images,
        domains.size,
        extractor,
        paired=embedded or options.paired,
        real=real,
        seed=options.seed,
        batch_size=options.batch_size,
        bars=True,
    )


def _untranslated(evaluator: Evaluator, options: ScoreOptions) -> dict[str, dict[str, float]]:
    with _explain_memory(evaluator):
        return {direction: evaluator.untranslated(direction) for direction in options.directions}


@contextlib.contextmanager
def _explain_memory(evaluator: Evaluator) -> Iterator[None]:
    try:
        yield
    except tf.errors.ResourceExhaustedError:
        height, width = evaluator.size
        raise UserError(
            f"the device does not have enough memory for batches of {evaluator.batch_size} images of {width} x {height} pixels;"
            " expected more free memory, or a smaller --batch_size"
        ) from None
