#!/usr/bin/env python
"""Score a run on an embedded dataset, stripes or scenes: `python scripts/score_stripes.py runs/demo`.

The newest checkpoint translates the held-out images, whose ground truth is known. Each score stands beside the score of the
identity, which leaves the images as they are.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import json
import pathlib
from collections.abc import Sequence

import numpy as np

from cyclegan import terminal, whole_file
from cyclegan.config.command_line import ArgumentParser
from cyclegan.errors import UserError

BATCH_SIZE = 8
COAT_THRESHOLD = 8  # gray levels of 255: source and truth differ by more on the coat
STRIPES = {
    "outside": "outside the animal, mean absolute error",
    "inside": "inside it, mean absolute error",
    "coat": "colors of the coat, Wasserstein-1 distance",
    "total": "total: coat and outside, by area",
}
TITLES = {  # of the scores in the table, by dataset and direction
    "stripes": {
        "X -> Y": {name: STRIPES[name] for name in ("outside", "coat", "total")},  # the position of stripes is unknown
        "Y -> X": STRIPES,
    },
    "scenes": {
        "X -> Y": {"error": "mean absolute error"},
        "Y -> X": {"pixels": "pixels with a wrong label, %", "classes": "the same, mean over the labels, %"},
    },
}
Scores = dict[str, float]


def score(run: str | os.PathLike[str], checkpoint: str | None = None) -> tuple[str, dict[str, tuple[Scores, Scores]]]:
    """Return the dataset, and (scores of the run, scores of the identity) by direction: "X -> Y" and "Y -> X".

    Raises:
        UserError: `run` is not the folder of a run on an embedded dataset with such a checkpoint.
    """
    with terminal.start():
        from cyclegan.data import sources
        from cyclegan.inference.model import Model

    model = Model(run, checkpoint)
    config, dataset = model.config, model.config.data.dataset
    if not config.data.is_embedded:
        raise UserError(f"{run} was trained on {dataset}; expected a run on stripes or scenes, with its ground truth")
    domains = sources.load_domains(config.data, config.networks.multiple, splits=sources.TEST_SPLITS)
    x, y = (np.stack([part[i] for i in range(len(part))]) for part in (domains.test_x, domains.test_y))
    result = {}
    for direction in model.generators:
        source, truth = (x, y) if direction == "x2y" else (y, x)
        batches = (source[start : start + BATCH_SIZE] for start in range(0, len(source), BATCH_SIZE))
        translated = np.concatenate([getattr(model, direction)(batch) for batch in batches])
        name = " -> ".join(direction.upper().split("2"))
        trained, identity = (_scores(dataset, name, source, images, truth) for images in (translated, source))
        result[name] = trained, identity
    return dataset, result


def _scores(dataset: str, direction: str, source: np.ndarray, translated: np.ndarray, truth: np.ndarray) -> Scores:
    from cyclegan.data.scenes import LABEL_COLORS

    if dataset == "stripes":
        return stripes_score(source, translated, truth)
    if direction == "Y -> X":
        return label_errors(translated, truth, list(LABEL_COLORS.values()))
    return {"error": float(np.abs(translated.astype(np.float32) - truth).mean())}


def label_errors(translated: np.ndarray, truth: np.ndarray, colors: Sequence[Sequence[int]]) -> dict[str, float]:
    """Compare label maps, uint8 [N, H, W, 3], with their ground truth. The label of a pixel is the one with the nearest color.

    Returns:
        "pixels", the percentage of all pixels with a wrong label, and "classes", the mean over the labels of the truth of the
        percentage of their pixels with a wrong label.
    """
    expected = _labels(truth, colors)
    wrong = _labels(translated, colors) != expected
    by_class = [wrong[expected == label].mean() for label in np.unique(expected)]
    return {"pixels": 100 * float(wrong.mean()), "classes": 100 * float(np.mean(by_class))}


def _labels(images: np.ndarray, colors: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the index of the nearest color of each pixel, [N, H, W]."""
    nearest = np.full(images.shape[:-1], np.inf, np.float32)
    labels = np.zeros(images.shape[:-1], np.uint8)
    for index, color in enumerate(colors):
        distance = np.square(images.astype(np.float32) - np.asarray(color, np.float32)).sum(axis=-1)
        labels[distance < nearest] = index
        nearest = np.minimum(nearest, distance)
    return labels


def stripes_score(source: np.ndarray, translated: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Score translations that should change the coat of an animal and nothing else.

    The coat is where source and truth differ. "outside" and "inside" are the mean absolute errors off and on the coat. The position
    of stripes cannot be predicted from a horse, so "coat" compares the colors of the coat only: it is the Wasserstein-1 distance
    (Rubner et al. 2000) per image and channel, the mean difference of the sorted values. "total" weights "coat" and "outside" by
    their areas. All scores are means over the images, uint8 [N, H, W, C], in gray levels.
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
    parser = ArgumentParser(description="Score a run on an embedded dataset, stripes or scenes.")
    parser.add_argument("run", help="folder of the run")
    parser.add_argument("--checkpoint", help="a checkpoint of the run, such as epoch_0003 (default: the newest)")
    parser.add_argument(
        "--json", type=pathlib.Path, metavar="FILE", help="also write the scores of the run to this file"
    )
    arguments = parser.parse_args(argv)
    dataset, result = score(arguments.run, arguments.checkpoint)
    print(f"{'lower is better':51} {'trained':>8} {'identity':>9}")
    for direction, (trained, identity) in result.items():
        for key, title in TITLES[dataset][direction].items():
            print(f"{direction}: {title:43} {trained[key]:8.1f} {identity[key]:9.1f}")
    if arguments.json:
        content = {direction: trained for direction, (trained, _) in result.items()}
        whole_file.write(arguments.json, json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(terminal.run(main))
