#!/usr/bin/env python
"""Scores a run on the embedded data set: `python scripts/score_stripes.py runs/demo`.

Translates the test pairs with the run's newest checkpoint and compares with the truth, which is known there. For every figure
the identity (leaving pictures as they are) stands beside it.
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cyclegan import console
from cyclegan.config import serialization
from cyclegan.errors import UserError

BATCH = 8  # pictures at a time
FIGURES = {
    "outside": "outside the animal, mean absolute error",
    "inside": "inside it, mean absolute error",
    "coat": "colours of the coat, Wasserstein-1 distance",
    "total": "total: coat and outside, by area",
}


def score(run, checkpoint=None):
    """Returns {"X -> Y": (scores of the run, scores of the identity), "Y -> X": ...}; see `metrics.paired_scores`.

    Raises:
        UserError: `run` is no folder of a run on stripes with such a checkpoint.
    """
    run = pathlib.Path(run)
    config, _, _ = serialization.load(run / "config.json")
    if config.dataset != "stripes":
        raise UserError(f"{run} was trained on {config.dataset}; expected a run on stripes, where the truth is known")
    with console.start():
        from cyclegan.data import sources
        from cyclegan.evaluation import metrics
        from cyclegan.inference.translator import Model

    model = Model(run, checkpoint)
    domains = sources.load(config.replace(cache="ram"))
    x, y = domains.test_x.images, domains.test_y.images
    result = {}
    for name, translate, source, truth in (("X -> Y", model.x2y, x, y), ("Y -> X", model.y2x, y, x)):
        translated = np.concatenate(
            [translate(source[first : first + BATCH]) for first in range(0, len(source), BATCH)]
        )
        result[name] = (
            metrics.paired_scores(source, translated, truth),
            metrics.paired_scores(source, source, truth),
        )
    return result


def main(argv=None):
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Score a run on the embedded data set, on its test pairs.")
    parser.add_argument("run", help="the run's folder")
    parser.add_argument("--checkpoint", help="one of the run's checkpoints, epoch_0003 say (default: the newest)")
    arguments = parser.parse_args(argv)
    result = score(arguments.run, arguments.checkpoint)
    print(f"{'grey levels (0 to 255), less is better':51} {'trained':>8} {'identity':>9}")
    for direction, (trained, identity) in result.items():
        for key, text in FIGURES.items():
            if not (key == "inside" and direction == "X -> Y"):  # where the stripes are can't be known
                print(f"{direction}: {text:43} {trained[key]:8.1f} {identity[key]:9.1f}")


if __name__ == "__main__":
    sys.exit(console.run(main))
