"""Score a run on its held-out images: `cyclegan-evaluate runs/horse2zebra`.

The scores are FID, KID, errors to the ground truth if it is known, cycle and identity errors, each beside the score of
the untranslated images. docs/evaluation.md explains them.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cyclegan import terminal, whole_file
from cyclegan.cli import check_run
from cyclegan.config.command_line import ArgumentParser
from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import UserError, counted, printable

TITLES = {  # of the scores that `Evaluator` computes
    "FID": "FID",
    "KID": "KID",
    "KID_std": "KID, deviation over the subsets",
    "MAE": "error to the truth, gray levels of 255",
    "PSNR": "PSNR to the truth, dB",
    "SSIM": "SSIM to the truth",
    "cycle_MAE": "cycle error, gray levels of 255",
    "identity_MAE": "identity error, gray levels of 255",
}
COLUMNS = ("FID", "KID", "MAE")  # of the table of all checkpoints; lower is better


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = ArgumentParser(
        description="Score a run: FID, KID, errors to the ground truth if it is known, cycle and identity errors.",
        epilog="The project's docs/evaluation.md explains the scores, and which of them can be compared.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--checkpoint", metavar="NAME", help="such as epoch_0100 or best-x2y (default: the newest)")
    which.add_argument(
        "--all_checkpoints",
        action="store_true",
        help="score every checkpoint of the run, in one table with a line for each",
    )
    parser.add_argument("--direction", choices=tuple(DIRECTIONS), help="score only this direction (default: both)")
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="evaluate as a paper does, at the best and at the last checkpoint: cut (Park et al. 2020) compares all"
        " held-out images at 256 x 256 pixels with the features fid",
    )
    parser.add_argument(
        "--features",
        metavar="KIND",
        help="features that FID and KID compare: fid, the network of published FIDs, resizing as pytorch-fid does;"
        " fid-tf1 or fid-clean, resizing as TensorFlow 1 or clean-fid do; inception, the network of Keras; or random, a"
        " fixed random network that ranks checkpoints of one run. Weights are downloaded once, or read from a file:"
        " KIND:FILE (default: inception; with --protocol fid)",
    )
    parser.add_argument("--dataset", help="the run's dataset if it has moved (default: where the run found it)")
    parser.add_argument("--data_dir", help="folder of prepared TensorFlow Datasets (default: the run's)")
    parser.add_argument(
        "--real",
        metavar="DIR",
        help="real images to compare with: a folder with testA and testB or, with --direction, a folder of images of"
        " the target domain (default: the held-out images of the run)",
    )
    parser.add_argument(
        "--paired",
        action="store_true",
        help="held-out images of the same name show the same, so the ground truth is known (stripes, scenes: always)",
    )
    parser.add_argument(
        "--max_images", type=int, metavar="N", help="use at most the first N held-out images of each domain"
    )
    parser.add_argument("--batch_size", type=int, default=4, metavar="N", help="images per batch (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the subsets of KID (default: 0)")
    parser.add_argument("--json", metavar="FILE", help="also write the scores to this file, which is replaced")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> dict[str, object]:
    """Score a run, print a table, and return the content of the JSON file: a result, or {"checkpoints": [results]}."""
    arguments = vars(parse_args(argv))
    run, checkpoint, file = (arguments.pop(name) for name in ("run", "checkpoint", "json"))
    all_checkpoints = arguments.pop("all_checkpoints")
    path = json_path(file) if file else None
    check_run(run)
    with terminal.start():
        from cyclegan.evaluation.score_run import ScoreOptions, score_checkpoints, score_run

    options = ScoreOptions(**arguments)
    result: dict[str, object]
    if all_checkpoints or (options.protocol and not checkpoint):
        results = score_checkpoints(run, options, best_and_last=not all_checkpoints)
        result, lines = {"checkpoints": results}, checkpoints_table(results)
    else:
        result = score_run(run, checkpoint, options)
        lines = table(result)
    print(*map(printable, lines), sep="\n", flush=True)
    if path:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            whole_file.write(path, to_json(result))
        except OSError as error:
            raise UserError(f"--json {file}: {error.strerror}; expected a file in a writable folder") from error
    return result


def json_path(file: str) -> pathlib.Path:
    """Return the path of --json; raise `UserError` if the file cannot be written."""
    path = pathlib.Path(file).expanduser()
    if path.exists() and not path.is_file():  # /dev/stdout, for example, which a rename would replace
        raise UserError(f"--json {file}: not a regular file; expected a file to write or replace")
    whole_file.check_folder(path.parent)
    return path


def table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table of the result of `score_run`."""
    yield f"{result['run']}, {result['checkpoint']}: {counted(result['epoch'], 'epoch')}, step {result['step']}"
    for direction, part in result["directions"].items():
        yield ""
        yield f"{' -> '.join(DIRECTIONS[direction]):40} {'translated':>12} {'untranslated':>12}"
        for name, title in TITLES.items():
            if name in part["scores"]:
                values = [part[kind].get(name) for kind in ("scores", "untranslated")]
                yield f"{title:40} " + " ".join(f"{'' if v is None else f'{v:.5g}':>12}" for v in values).rstrip()
        if "FID" in part["untranslated"]:
            is_nearer = part["scores"]["FID"] < part["untranslated"]["FID"]
            nearer = f"{'nearer' if is_nearer else 'not nearer'} to real images of {DIRECTIONS[direction][1]}"
            yield f"By FID, translated images are {nearer} than untranslated ones"
        yield from _protocol_lines(direction, part["protocol"])
    yield from _common_lines(part["protocol"])
    yield "Lower is better, except for PSNR and SSIM"


def checkpoints_table(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table of the result of `score_checkpoints`, with a line for each checkpoint."""
    directions = results[0]["directions"]
    columns = [
        (direction, name) for direction in directions for name in COLUMNS if name in directions[direction]["scores"]
    ]
    names = [", ".join([result["checkpoint"], *result["aliases"]]) for result in results]
    width = max(map(len, [*names, "untranslated"]))
    rows = [[result["directions"][direction]["scores"][name] for direction, name in columns] for result in results]
    best = [
        min((value for value in values if not math.isnan(value)), default=None)
        if "KID_std" in directions[direction]["scores"]  # there are enough images
        else None
        for (direction, _), values in zip(columns, zip(*rows))
    ]
    lines = [(name, result["epoch"], result["step"], row) for name, result, row in zip(names, results, rows)]
    if all(part["untranslated"] for part in directions.values()):
        lines.append(("untranslated", "", "", [directions[d]["untranslated"][name] for d, name in columns]))
    yield results[0]["run"] + ": * marks the best of a column" * any(each is not None for each in best)
    yield ""
    yield f"{'':{width}} {'epoch':>6} {'step':>8} " + " ".join(f"{f'{d} {name}':>11} " for d, name in columns).rstrip()
    for name, epoch, step, row in lines:
        cells = (f"{value:11.5g}{'*' if value == least else ' '}" for value, least in zip(row, best))
        yield f"{name:{width}} {epoch:>6} {step:>8} {' '.join(cells).rstrip()}"
    for direction, part in directions.items():
        yield ""
        yield from _protocol_lines(direction, part["protocol"])
    yield from _common_lines(part["protocol"])
    yield "Lower is better"


def to_json(result: object) -> str:
    """Return JSON with `null` for numbers that JSON does not have, such as the PSNR of images that equal the truth."""
    return json.dumps(json.loads(json.dumps(result), parse_constant=lambda name: None), indent=2) + "\n"


def _protocol_lines(direction: str, protocol: Mapping[str, Any]) -> Iterator[str]:
    source, target = DIRECTIONS[direction]
    limit = f" (at most the first {protocol['max_images']})" if protocol["max_images"] else ""
    yield f"{protocol['translated']} held-out images of {source}{limit} of {protocol['dataset']}, translated;"
    size = f"{protocol['width']} x {protocol['height']} pixels"
    yield f"{protocol['real']} real images of {target} from {protocol['real_from']}; {size}"
    yield f"{protocol['rounding']}; KID: {protocol['KID']}, seed {protocol['seed']}"


def _common_lines(protocol: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that are the same for both directions."""
    yield ""
    if protocol["protocol"]:
        yield f"Protocol: {protocol['protocol']}; published FIDs are of the best checkpoint, chosen with these images"
    yield f"Images: --preprocess {protocol['preprocess']} (resized by Pillow, bicubic, antialiased)"
    yield f"Features: {protocol['features']}"


program = functools.partial(terminal.run, main, "stopped; nothing was written")
