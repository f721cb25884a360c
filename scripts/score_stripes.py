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
import dataclasses
import json
import pathlib
from collections.abc import Sequence

import numpy as np

from cyclegan import terminal
from cyclegan.config import serialization
from cyclegan.config.command_line import ArgumentParser
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
        "X -> Y": {
            name: title for name, title in STRIPES.items() if name != "inside"
        },  # the position of stripes is unknown
        "Y -> X": STRIPES,
    },
    "scenes": {
        "X -> Y": {"error": "mean absolute error"},
        "Y -> X": {"pixels": "pixels with a wrong label, %", "classes": "the same, mean over the labels, %"},
    },
}
Scores = dict[str, float]


def score(run: str | os.PathLike[str], checkpoint: str | None = None) -> dict[str, tuple[Scores, Scores]]:
    """Return (scores of the run, scores of the identity) for "X -> Y" and, if there is a generator for it, "Y -> X".

    Raises:
        UserError: `run` is not the folder of a run on an embedded dataset with such a checkpoint.
    """
    config = serialization.load(pathlib.Path(run) / "config.json").config
    if not config.data.is_embedded:
        raise UserError(
            f"{run} was trained on {config.data.dataset}; expected a run on stripes or scenes, with its ground truth"
        )
    with terminal.start():
        from cyclegan.data import sources
        from cyclegan.inference.model import Model

    model = Model(run, checkpoint)
    in_memory = dataclasses.replace(config.data, cache="ram")
    domains = sources.load_domains(in_memory, config.networks.multiple, splits=sources.TEST_SPLITS)
    x, y = domains.test_x.images, domains.test_y.images
    result = {}
    directions = (("X -> Y", model.x2y, x, y), ("Y -> X", model.y2x, y, x))
    for name, translate, source, truth in directions[: len(config.objective.directions)]:
        batches = (source[start : start + BATCH_SIZE] for start in range(0, len(source), BATCH_SIZE))
        translated = np.concatenate([translate(batch) for batch in batches])
        scores = (_scores(config.data.dataset, name, source, images, truth) for images in (translated, source))
        result[name] = (next(scores), next(scores))
    return result


def _scores(dataset: str, direction: str, source: np.ndarray, translated: np.ndarray, truth: np.ndarray) -> Scores:
    from cyclegan.data.scenes import LABEL_COLORS
    from cyclegan.evaluation.label_errors import label_errors
    from cyclegan.evaluation.stripes_score import stripes_score

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
    result = score(arguments.run, arguments.checkpoint)
    titles = TITLES[serialization.load(pathlib.Path(arguments.run) / "config.json").config.data.dataset]
    print(f"{'lower is better':51} {'trained':>8} {'identity':>9}")
    for direction, (trained, identity) in result.items():
        for key, title in titles[direction].items():
            print(f"{direction}: {title:43} {trained[key]:8.1f} {identity[key]:9.1f}")
    if arguments.json:
        content = {direction: trained for direction, (trained, _) in result.items()}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(terminal.run(main))
