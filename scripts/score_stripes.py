#!/usr/bin/env python
"""Score a run on an embedded dataset, stripes or scenes: `python scripts/score_stripes.py runs/demo`.

The newest checkpoint translates the held-out images, whose ground truth is known. Each score stands beside the score of the
identity, which leaves the images as they are.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cyclegan import interrupt  # noqa: F401  first: Ctrl-C during the other imports is one line

# isort: split
import json
import pathlib
from collections.abc import Sequence

import numpy as np

from cyclegan import terminal, whole_file
from cyclegan.config.argument_parser import ArgumentParser
from cyclegan.errors import UserError

BATCH_SIZE = 8
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
    config = model.config.replace(cache="ram")
    dataset = config.data.dataset
    if not config.data.is_embedded:
        raise UserError(f"{run} was trained on {dataset}; expected a run on stripes or scenes, with its ground truth")
    domains = sources.load_domains(config.data, config.networks.multiple, splits=sources.TEST_SPLITS)
    x, y = domains.test_x.images, domains.test_y.images
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
    from cyclegan.evaluation.metrics import label_errors, stripes_score

    if dataset == "stripes":
        return stripes_score(source, translated, truth)
    if direction == "Y -> X":
        return label_errors(translated, truth, list(LABEL_COLORS.values()))
    return {"error": float(np.abs(translated.astype(np.float32) - truth).mean())}


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
