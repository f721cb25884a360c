"""Score a run on its held-out images: `cyclegan-evaluate runs/horse2zebra`.

The scores are FID, KID, errors to the ground truth if it is known, cycle and identity errors, each beside the score of the
untranslated images. docs/evaluation.md explains them.
"""

from __future__ import annotations

import argparse
import os
import pathlib
from collections.abc import Sequence

from cyclegan import terminal, whole_file
from cyclegan.config.command_line import ArgumentParser
from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import UserError, printable
from cyclegan.evaluation import score_table


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = ArgumentParser(
        description="Score a run: FID, KID, errors to the ground truth if it is known, cycle and identity errors.",
        epilog=None
        if terminal.is_installed()  # without the docs
        else "docs/evaluation.md explains the scores, and which of them can be compared.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--checkpoint", metavar="NAME", help="such as epoch_0100 or best-x2y (default: the newest)")
    which.add_argument(
        *("--all_checkpoints", "--all-checkpoints"),
        action="store_true",
        help="score every checkpoint of the run, in one table with a line for each",
    )
    parser.add_argument("--direction", choices=tuple(DIRECTIONS), help="score only this direction (default: both)")
    parser.add_argument(
        "--features",
        default="inception",
        metavar="KIND",
        help="features that FID and KID compare: inception, with weights that are downloaded once; a FILE with these weights; or"
        " random, a fixed random network that ranks checkpoints of one run (default: inception)",
    )
    parser.add_argument("--dataset", help="the run's dataset if it has moved (default: where the run found it)")
    parser.add_argument("--data_dir", help="folder of prepared TensorFlow Datasets (default: the run's)")
    parser.add_argument(
        "--real",
        metavar="DIR",
        help="real images to compare with: a folder with testA and testB or, with --direction, a folder of images of the target"
        " domain (default: the held-out images of the run)",
    )
    parser.add_argument(
        "--paired",
        action="store_true",
        help="held-out images of the same name show the same scene, so the ground truth is known (stripes, scenes: always)",
    )
    parser.add_argument(
        "--max_images", type=int, metavar="N", help="use at most the first N held-out images of each domain"
    )
    parser.add_argument("--batch_size", type=int, default=4, metavar="N", help="images per batch (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the subsets of KID (default: 0)")
    parser.add_argument("--json", metavar="FILE", help="also write the scores to this file, which is replaced")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> dict[str, object]:
    """Score a run, print a table, and return the content of the JSON file.

    With --all_checkpoints, the content is {"checkpoints": [one result for each]}.

    Raises:
        UserError: The request cannot work.
    """
    arguments = vars(parse_args(argv))
    run, checkpoint, direction, file = (arguments.pop(name) for name in ("run", "checkpoint", "direction", "json"))
    all_checkpoints = arguments.pop("all_checkpoints")
    path = json_path(file) if file else None
    with terminal.start():
        from cyclegan.evaluation.score_run import ScoreOptions, score_checkpoints, score_run

    options = ScoreOptions(directions=(direction,) if direction else tuple(DIRECTIONS), **arguments)
    result: dict[str, object]
    if all_checkpoints:
        results = score_checkpoints(run, options)
        result, lines = {"checkpoints": results}, score_table.checkpoints_table(results)
    else:
        result = score_run(run, checkpoint, options)
        lines = score_table.table(result)
    print(*map(printable, lines), sep="\n", flush=True)
    if path:
        try:
            whole_file.write(path, score_table.to_json(result))
        except OSError as error:
            raise UserError(f"--json {file}: {error}; expected a file in a writable folder") from error
    return result


def json_path(file: str) -> pathlib.Path:
    """Return the path of --json.

    Raises:
        UserError: The file cannot be written.
    """
    path = pathlib.Path(file).expanduser()
    if path.exists() and not path.is_file():  # /dev/stdout, for example, which a rename would replace
        raise UserError(f"--json {file}: no regular file; expected a file to write or replace")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"--json {file}: expected a file in a writable folder")
    return path


def program() -> int:
    """Run the command in a terminal; return the exit code."""
    return terminal.run(main, "stopped; nothing was written")
