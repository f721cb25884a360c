#!/usr/bin/env python
"""Score a run whose held-out images have a ground truth: `python scripts/score_stripes.py runs/demo`.

The dataset is embedded, `stripes` or `scenes`, or a folder of label maps and photographs, whose held-out images of the
same name show the same scene. The newest checkpoint translates these images. Each score stands beside the score of the
identity, which leaves the images as they are.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import cyclegan  # noqa: F401  first, because it explains which package is missing

# isort: split
import functools
import json
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cyclegan import terminal, whole_file
from cyclegan.config.command_line import ArgumentParser
from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import UserError

if TYPE_CHECKING:
    from cyclegan.evaluation.features import FeatureExtractor

BATCH_SIZE = 8
COAT_THRESHOLD = 8  # gray levels of 255: source and truth differ by more on the coat
MOST_LABELS = 256  # images with more colors are no label maps
TITLES = {  # of the scores; lower is better, except for accuracies
    "outside": "outside the animal, mean absolute error",
    "inside": "inside it, mean absolute error",
    "coat": "colors of the coat, Wasserstein-1 distance",
    "total": "total: coat and outside, by area",
    "pixels": "accuracy of all pixels, %",
    "classes": "accuracy, mean over the labels, %",
    "MAE": "mean absolute error",
    "FID": "FID",
    "1000 KID": "KID x 1000",
}
Scores = dict[str, float]


def score(run: str | os.PathLike[str], checkpoint: str | None = None, features: str = "random") -> dict[str, Any]:
    """Score both directions of a run by the kind of their target: stripes, label maps, or other images.

    Args:
        run: Folder of the run.
        checkpoint: Name of a checkpoint; by default the newest.
        features: Features that FID and KID compare, see docs/evaluation.md.

    Returns:
        "epoch" and "step" of the checkpoint; "scores" and "identity": for "X -> Y" and "Y -> X", scores by name.

    Raises:
        UserError: `run` is not the folder of a run with such a checkpoint and with a ground truth.
    """
    with terminal.start():
        from cyclegan.data import sources
        from cyclegan.evaluation.features import make_extractor
        from cyclegan.evaluation.score_run import check_same_names
        from cyclegan.images.geometry import centre_crop
        from cyclegan.inference.model import Model

    model = Model(run, checkpoint)
    data = model.config.data
    domains = sources.load_domains(data, model.config.networks.multiple, splits=sources.TEST_SPLITS)
    if not data.is_embedded:
        check_same_names(domains.test_x.names, domains.test_y.names)
    x, y = (
        np.stack([centre_crop(part[i], domains.size) for i in range(len(part))])
        for part in (domains.test_x, domains.test_y)
    )
    palettes = {"x2y": palette(y), "y2x": palette(x)}
    if data.dataset != "stripes" and all(colors is None for colors in palettes.values()):
        raise UserError(
            f"{run}: the held-out images of {data.dataset} have over {MOST_LABELS} colors in both domains; expected RGB"
            " label maps in one, whose colors --preprocess crop or none keeps"
        )
    scores, identity = {}, {}
    for direction in model.generators:
        source, truth = (x, y) if direction == "x2y" else (y, x)
        compare: Callable[..., Scores]
        if data.dataset == "stripes":
            compare = functools.partial(stripes_score, source)
        elif palettes[direction] is not None:
            compare = functools.partial(label_accuracy, palettes[direction])
        else:
            compare = functools.partial(image_errors, make_extractor(features, truth.shape[-1:]))
        batches = (source[start : start + BATCH_SIZE] for start in range(0, len(source), BATCH_SIZE))
        translated = np.concatenate([getattr(model, direction)(batch) for batch in batches])
        name = " -> ".join(DIRECTIONS[direction])
        scores[name] = compare(translated, truth)
        identity[name] = compare(source, truth) if source.shape == truth.shape else {}
    for each in (scores, identity):
        each.get("X -> Y", {}).pop("inside", None)  # the position of stripes is unknown
    return {"epoch": model.train_state.epoch, "step": model.train_state.step, "scores": scores, "identity": identity}


def palette(images: np.ndarray) -> np.ndarray | None:
    """Return the distinct colors, uint8 [labels, 3], of label maps, uint8 [N, H, W, 3]; None for other images."""
    colors = np.unique(images.reshape(-1, images.shape[-1]), axis=0)
    return colors if images.shape[-1] == 3 and len(colors) <= MOST_LABELS else None


def image_errors(extractor: FeatureExtractor, translated: np.ndarray, truth: np.ndarray) -> Scores:
    """Return the mean absolute error in gray levels of 255, and FID and KID, of images [N, H, W, C]."""
    from cyclegan.evaluation import metrics
    from cyclegan.images.value_range import to_float

    batches = range(0, len(truth), BATCH_SIZE)
    features, real = (
        np.concatenate([extractor(to_float(images[start : start + BATCH_SIZE])) for start in batches])
        for images in (translated, truth)
    )
    return {
        "MAE": float(metrics.errors_to_truth(translated, truth)["MAE"].mean()),
        "FID": metrics.fid(features, real),
        "1000 KID": 1000 * metrics.kid(features, real)[0],
    }


def label_accuracy(colors: np.ndarray, translated: np.ndarray, truth: np.ndarray) -> Scores:
    """Compare label maps, uint8 [N, H, W, 3], with their ground truth, as in table 3 of the CycleGAN paper.

    The label of a pixel is the one with the nearest color.

    Returns:
        "pixels", the percentage of all pixels with the right label, and "classes", the mean over the labels of the
        truth of the percentage of their pixels with the right label.
    """
    expected = _labels(truth, colors)
    right = _labels(translated, colors) == expected
    by_class = [right[expected == label].mean() for label in np.unique(expected)]
    return {"pixels": 100 * float(right.mean()), "classes": 100 * float(np.mean(by_class))}


def _labels(images: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """Return the index of the nearest color of each pixel, [N, H, W]."""
    nearest = np.full(images.shape[:-1], np.inf, np.float32)
    labels = np.zeros(images.shape[:-1], np.uint8)
    for index, color in enumerate(colors.astype(np.float32)):
        distance = np.square(images.astype(np.float32) - color).sum(axis=-1)
        labels[distance < nearest] = index
        nearest = np.minimum(nearest, distance)
    return labels


def stripes_score(source: np.ndarray, translated: np.ndarray, truth: np.ndarray) -> Scores:
    """Score translations that should change the coat of an animal and nothing else.

    The coat is where source and truth differ. "outside" and "inside" are the mean absolute errors off and on the coat.
    The position of stripes cannot be predicted from a horse, so "coat" compares the colors of the coat only: it is the
    Wasserstein-1 distance (Rubner et al. 2000) per image and channel, the mean difference of the sorted values.
    "total" weights "coat" and "outside" by their areas. All scores are means over the images, uint8 [N, H, W, C], in
    gray levels.
    """
    rows = []
    for before, after, right in zip(*(images.astype(np.float64) for images in (source, translated, truth))):
        coat = np.abs(before - right).max(axis=-1) > COAT_THRESHOLD
        error = np.abs(after - right)
        outside, inside, share = error[~coat].mean(), error[coat].mean(), coat.mean()
        colors = np.abs(np.sort(after[coat], axis=0) - np.sort(right[coat], axis=0)).mean()
        rows.append((outside, inside, colors, share * colors + (1 - share) * outside))
    return dict(zip(("outside", "inside", "coat", "total"), np.mean(rows, axis=0).tolist()))


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table of scores."""
    parser = ArgumentParser(description="Score a run whose held-out images have a ground truth.")
    parser.add_argument("run", help="folder of the run")
    parser.add_argument("--checkpoint", help="a checkpoint of the run, such as epoch_0003 (default: the newest)")
    text = "features that FID and KID compare, as for scripts/evaluate.py (default: random)"
    parser.add_argument("--features", default="random", metavar="KIND", help=text)
    text = "also write the scores and the position in training to this file"
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help=text)
    arguments = parser.parse_args(argv)
    result = score(arguments.run, arguments.checkpoint, arguments.features)
    has_accuracies = any("classes" in scores for scores in result["scores"].values())
    better = f"lower is better{', except for accuracies' * has_accuracies}"
    print(f"{better:51} {'trained':>8} {'untranslated':>13}")
    for direction, trained in result["scores"].items():
        for name, value in trained.items():
            untranslated = result["identity"][direction].get(name, math.nan)
            print(f"{direction}: {TITLES[name]:43} {value:8.1f} {untranslated:13.1f}")
    if arguments.json:
        whole_file.write(arguments.json, json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(terminal.run(main))
