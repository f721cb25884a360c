#!/usr/bin/env python
"""Score a run on the embedded dataset: `python scripts/score_stripes.py runs/demo`.

The newest checkpoint translates the held-out images, whose ground truth is known. Each score stands beside the score of the
identity, which leaves the images as they are.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cyclegan import interrupt  # noqa: F401  first: Ctrl-C during the other imports is one line

# isort: split
import argparse
import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from cyclegan import console
from cyclegan.config import serialization
from cyclegan.errors import UserError

BATCH_SIZE = 8
TITLES = {
    "outside": "outside the animal, mean absolute error",
    "inside": "inside it, mean absolute error",
    "coat": "colors of the coat, Wasserstein-1 distance",
    "total": "total: coat and outside, by area",
}
Scores = dict[str, float]  # see `stripes_score`


def score(run: str | os.PathLike[str], checkpoint: str | None = None) -> dict[str, tuple[Scores, Scores]]:
    """Return (scores of the run, scores of the identity) for "X -> Y" and "Y -> X".

    Raises:
        UserError: `run` is not the folder of a run on stripes with such a checkpoint.
    """
    config = serialization.load(pathlib.Path(run) / "config.json").config
    if config.data.dataset != "stripes":
        raise UserError(f"{run} was trained on {config.data.dataset}; expected a run on stripes, with its ground truth")
    with console.start():
        from cyclegan.data import sources
        from cyclegan.evaluation.stripes_score import stripes_score
        from cyclegan.inference.model import Model

    model = Model(run, checkpoint)
    in_memory = dataclasses.replace(config.data, cache="ram")
    domains = sources.load_domains(in_memory, config.networks.multiple, splits=sources.TEST_SPLITS)
    x, y = domains.test_x.images, domains.test_y.images
    result = {}
    for name, translate, source, truth in (("X -> Y", model.x2y, x, y), ("Y -> X", model.y2x, y, x)):
        batches = (source[start : start + BATCH_SIZE] for start in range(0, len(source), BATCH_SIZE))
        translated = np.concatenate([translate(batch) for batch in batches])
        result[name] = (stripes_score(source, translated, truth), stripes_score(source, source, truth))
    return result


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table of scores."""
    parser = argparse.ArgumentParser(description="Score a run on the embedded dataset.")
    parser.add_argument("run", help="folder of the run")
    parser.add_argument("--checkpoint", help="a checkpoint of the run, such as epoch_0003 (default: the newest)")
    arguments = parser.parse_args(argv)
    result = score(arguments.run, arguments.checkpoint)
    print(f"{'gray levels (0 to 255), lower is better':51} {'trained':>8} {'identity':>9}")
    for direction, (trained, identity) in result.items():
        for key, title in TITLES.items():
            if not (key == "inside" and direction == "X -> Y"):  # the position of stripes cannot be predicted
                print(f"{direction}: {title:43} {trained[key]:8.1f} {identity[key]:9.1f}")


if __name__ == "__main__":
    sys.exit(console.run(main))
