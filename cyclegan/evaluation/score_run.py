"""Scores of a trained run on its held-out images."""

from __future__ import annotations

import importlib.metadata
import itertools
import logging
import os
import pathlib
import platform
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cyclegan.config import serialization
from cyclegan.config.sections import DIRECTIONS
from cyclegan.data import folder_source, sources
from cyclegan.data.folder_source import Found
from cyclegan.data.loading import ImageFiles
from cyclegan.errors import TrainingError, UserError
from cyclegan.evaluation.evaluator import Evaluator
from cyclegan.evaluation.features import make_extractor
from cyclegan.evaluation.options import ScoreOptions
from cyclegan.images import geometry
from cyclegan.inference.model import Model, checkpoint_names
from cyclegan.run.train_state import TrainState

logger = logging.getLogger(__name__)


def score_run(run: str | os.PathLike[str] | Model, checkpoint: str | None, options: ScoreOptions) -> dict[str, Any]:
    """Score the generators of a run at a checkpoint, by default the newest; or those of a `Model`.

    Returns:
        "run", "checkpoint", "epoch", "step" and "versions", texts and numbers; and "directions", for each direction a
        dict of "scores", "untranslated" and "protocol", see `Evaluator`.

    Raises:
        UserError: The run, the checkpoint, the images or the features do not exist or do not fit, or memory is short.
        TrainingError: A translation is not finite, or an image cannot be read.
    """
    return _Scorer(run if isinstance(run, Model) else Model(run, checkpoint), options).score()


def score_checkpoints(
    run: str | os.PathLike[str], options: ScoreOptions, best_and_last: bool = False
) -> list[dict[str, Any]]:
    """Return the result of `score_run` for each checkpoint of a run, and its other names as "aliases".

    With `best_and_last`, only the newest checkpoint and the best ones of the directions have a result. Skip checkpoints
    that cannot be read or whose translations are not finite, with a warning.
    """
    model = Model(run)
    names = checkpoint_names(model.path)
    if best_and_last:
        best = tuple(f"best-{direction}" for direction in options.directions)
        names = list(dict.fromkeys([model.checkpoint.name, *(name for name in names if name.startswith(best))]))
    results: list[tuple[TrainState, dict[str, Any]]] = []
    scorer = _Scorer(model, options)
    for name in names:
        try:
            model.restore(name)
            if same := [result for state, result in results if state == model.train_state]:
                same[0]["aliases"].append(name)
            else:
                results.append((model.train_state, {**scorer.score(), "aliases": []}))
        except TrainingError as error:
            logger.warning(f"{name} has no scores: {error}")
        except UserError as error:  # damaged, or removed by a training that runs
            logger.warning(str(error))
    if not results:
        raise UserError(f"{model.path}: no checkpoint has scores, see above; expected one with finite translations")
    return [result for _, result in results]


class _Scorer:
    """Score the generators of a model, whichever checkpoint they have, with features that are computed once."""

    def __init__(self, model: Model, options: ScoreOptions) -> None:
        self._model, self._options = model, options
        self._directions = tuple(each for each in options.directions if each in model.generators)
        config = options.apply(model.config, model.path)
        self._data = data = config.data
        extractor = make_extractor(options.kind, [model.channels(direction)[1] for direction in self._directions])
        domains = sources.load_domains(data, config.networks.multiple, splits=sources.TEST_SPLITS, bars=True)
        if data.folder and data.max_dataset_size == model.config.data.max_dataset_size:
            _warn_of_others(model, domains)
        if options.paired and not data.is_embedded:
            check_same_names(domains.test_x.names, domains.test_y.names)
        directions = self._directions if options.real else ()
        self._evaluator = Evaluator(
            model.generators,
            domains.test_x,
            domains.test_y,
            domains.size,
            extractor,
            paired=data.is_embedded or options.paired,
            real={each: read_folder(options.real_folder(each), model, each, domains.size) for each in directions},
            seed=options.seed,
            batch_size=options.batch_size,
            bars=True,
        )
        self._untranslated: dict[str, dict[str, float]] = {}

    def score(self) -> dict[str, Any]:
        """Return the result of `score_run`."""
        model, options = self._model, self._options
        try:
            for each in self._directions:
                self._untranslated[each] = self._untranslated.get(each) or self._evaluator.untranslated(each)
            scores = {direction: self._evaluator.scores(direction) for direction in self._directions}
        except tf.errors.ResourceExhaustedError:
            raise UserError(
                f"the device does not have enough memory for batches of {options.batch_size} images; expected more free"
                " memory, or a smaller --batch_size"
            ) from None
        protocol = {
            "protocol": options.protocol,
            "dataset": self._data.dataset,
            "real_from": options.real or "the held-out images",
            "max_images": options.max_images,
            "preprocess": self._data.preprocess,
        }
        packages = {name: importlib.metadata.version(name) for name in ("keras", "numpy", "pillow")}
        return {
            "run": str(model.path),
            "checkpoint": model.checkpoint.name,
            "epoch": model.train_state.epoch,
            "step": model.train_state.step,
            "versions": {"python": platform.python_version(), "tensorflow": tf.__version__, **packages},
            "directions": {
                direction: {
                    "scores": scores[direction],
                    "untranslated": self._untranslated[direction],
                    "protocol": {**protocol, **self._evaluator.protocol(direction)},
                }
                for direction in self._directions
            },
        }


def _warn_of_others(model: Model, domains: sources.Domains) -> None:
    """Warn if held-out images are not those of the run."""
    known, found = serialization.load(model.path / "config.json").data, domains.fingerprint()
    if others := [split for split in sources.TEST_SPLITS if known.get(split, found[split]) != found[split]]:
        logger.warning(
            f"The held-out images of {' and '.join(others)} are not those of the run's training, which may have trained"
            " on them"
        )


def read_folder(folder: pathlib.Path, model: Model, direction: str, size: tuple[int, int]) -> ImageFiles:
    """Read real images of the target domain of a direction, resized to `size` like the held-out images of the run."""
    data, split = model.config.data, dict(zip("XY", sources.TEST_SPLITS))[DIRECTIONS[direction][1]]
    paths = [os.path.join(folder, name) for name in folder_source.find_images(folder)]
    images = folder_source.expand(paths, data.channels(split), data)
    if not images:
        raise UserError(f"--real {folder}: no images; expected at least 2 of {' '.join(folder_source.EXTENSIONS)}")
    found = Found({split: images}, {split: [*map(str, images)]})
    part = sources.read_headers(data, model.config.networks.multiple, found)[1][split]
    if (final := sources.final_size(data, [part])) != tuple(size):
        raise UserError(
            f"--real {folder}: the images have {geometry.format_size(final)} after resizing; expected the run's"
            f" {geometry.format_size(size)}: resize them"
        )
    return part


def check_same_names(names_x: Sequence[str], names_y: Sequence[str]) -> None:
    """Check that the held-out images of X and Y, such as "testA/3.png", differ in folder and suffix only."""
    x, y = ([folder_source.stem(name.partition(os.sep)[2]) for name in names] for names in (names_x, names_y))
    if x != y:
        different = sorted(set(x) ^ set(y)) or [a or b for a, b in itertools.zip_longest(x, y) if a != b]
        raise UserError(
            f"--paired: the held-out images of X ({len(x)}) and Y ({len(y)}) do not have the same names, for example"
            f" {different[0]}; expected an image of Y with the same name for each image of X"
        )
