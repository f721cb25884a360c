"""Score a run on its held-out images: `cyclegan-evaluate runs/horse2zebra`.

The scores are FID, KID, errors to the ground truth if it is known, cycle and identity errors, each beside the score of
the untranslated images. docs/evaluation.md explains them.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cyclegan import terminal, whole_file
from cyclegan.cli import check_result, check_run, columns
from cyclegan.config import serialization
from cyclegan.config.command_line import ArgumentParser, direction_name
from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import counted, printable
from cyclegan.evaluation.options import ScoreOptions
from cyclegan.run.run_directory import split_checkpoint

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
    which, add = parser.add_mutually_exclusive_group(), parser.add_argument
    add("run", metavar="RUN", help="folder of the run, or RUN/checkpoints/NAME")
    which.add_argument("--checkpoint", metavar="NAME", help="such as epoch_0100 or best-x2y (default: the newest)")
    every = "score every checkpoint of the run, in one table with a line for each"
    which.add_argument("--all_checkpoints", action="store_true", help=every)
    only = "score only this direction (default: both)"
    add("--direction", type=direction_name, choices=tuple(DIRECTIONS), help=only)
    add(
        "--protocol",
        choices=("cut",),
        help="evaluate as a paper does, at the best and at the last checkpoint: cut (Park et al. 2020) compares all"
        " held-out images at 256 x 256 pixels with the features fid",
    )
    add(
        "--features",
        metavar="KIND",
        help="features that FID and KID compare: fid, the network of published FIDs, resizing as pytorch-fid does;"
        " fid-tf1 or fid-clean, resizing as TensorFlow 1 or clean-fid do; inception, the network of Keras; or random, a"
        " fixed random network that ranks checkpoints of one run. Weights are downloaded once, or read from a file:"
        " KIND:FILE (default: inception; with --protocol fid)",
    )
    add("--dataset", help="the run's dataset if it has moved (default: where the run found it)")
    add("--data_dir", help="folder of prepared TensorFlow Datasets (default: the run's)")
    add(
        "--real",
        metavar="DIR",
        help="real images to compare with: a folder with testA and testB or, with --direction, a folder of images of"
        " the target domain (default: the held-out images of the run)",
    )
    paired = "held-out images of the same name show the same, so the ground truth is known (stripes, scenes: always)"
    add("--paired", action="store_true", help=paired)
    add("--max_images", type=int, metavar="N", help="use at most the first N held-out images of each domain")
    add("--batch_size", type=int, default=4, metavar="N", help="images per batch (default: 4)")
    add("--seed", type=int, default=0, help="seed of the subsets of KID (default: 0)")
    add("--json", metavar="FILE", help="also write the scores to this file, which is replaced")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> dict[str, object]:
    """Score a run, print a table, and return the content of the JSON file: a result, or {"checkpoints": [results]}."""
    arguments = vars(parse_args(argv))
    run, checkpoint, file = (arguments.pop(name) for name in ("run", "checkpoint", "json"))
    all_checkpoints = arguments.pop("all_checkpoints")
    path = check_result(file, "--json", ".json", b'{\n  "run": ') if file else None
    check_run(run, checkpoint=checkpoint)
    run, name = split_checkpoint(run)
    checkpoint = checkpoint or name
    options = ScoreOptions(**arguments)
    options.apply(serialization.load(run / "config.json").config, run)  # raises errors before TensorFlow starts
    with terminal.phase("Starting TensorFlow", if_slow=True), terminal.start():
        from cyclegan.evaluation.score_run import score_checkpoints, score_run

    result: dict[str, object]
    if all_checkpoints or (options.protocol and not checkpoint):
        results = score_checkpoints(run, options, best_and_last=not all_checkpoints)
        result, lines = {"checkpoints": results}, checkpoints_table(results)
    else:
        result = score_run(run, checkpoint, options)
        lines = table(result)
    print(*map(printable, lines), sep="\n", flush=True)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole_file.write(path, to_json(result))
    return result


def table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table of the result of `score_run`."""
    yield f"{result['run']}, {result['checkpoint']}: {counted(result['epoch'], 'epoch')}, step {result['step']}"
    for direction, part in result["directions"].items():
        kinds = {"translated": part["scores"], "untranslated": part["untranslated"]}
        rows = [[" -> ".join(DIRECTIONS[direction]), *kinds]]
        for name in TITLES:
            if name in part["scores"]:
                cells = (f"{scores[name]:.5g}" if name in scores else "" for scores in kinds.values())
                rows.append([TITLES[name], *cells])
        yield ""
        yield from columns(rows)
        if "FID" in part["untranslated"]:
            is_nearer = part["scores"]["FID"] < part["untranslated"]["FID"]
            nearer = f"{'nearer' if is_nearer else 'not nearer'} to real images of {DIRECTIONS[direction][1]}"
            yield f"By FID, translated images are {nearer} than untranslated ones"
    printed = {name for part in result["directions"].values() for name in part["scores"]}
    higher = " and ".join(name for name in ("PSNR", "SSIM") if name in printed)
    yield "Lower is better" + (f", except for {higher}" if higher else "")
    yield from _protocol_lines(result["directions"])


def checkpoints_table(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table of the result of `score_checkpoints`, with a line for each checkpoint."""
    directions = results[0]["directions"]
    compared = [(each, name) for each in directions for name in COLUMNS if name in directions[each]["scores"]]
    rows = [["", "epoch", "step", *(f"{direction} {name} " for direction, name in compared)]]
    rows += [
        [", ".join([each["checkpoint"], *each["aliases"]]), *map(str, (each["epoch"], each["step"]))]
        for each in results
    ]
    if all(part["untranslated"] for part in directions.values()):
        rows.append(["untranslated", "", ""])
    for direction, name in compared:
        values = [result["directions"][direction]["scores"][name] for result in results]
        has_best = "KID_std" in directions[direction]["scores"]  # there are enough images
        best = min((value for value in values if has_best and not math.isnan(value)), default=None)
        cells = [f"{value:.5g}{'*' if value == best else ' '}" for value in values]
        cells += [f"{value:.5g} " for value in [directions[direction]["untranslated"].get(name)] if value is not None]
        for row, cell in zip(rows[1:], cells):
            row.append(cell)
    marks = "* marks the best of a column; " * any("*" in cell for row in rows for cell in row)
    yield f"{results[0]['run']}: {marks}lower is better"
    yield ""
    yield from columns(rows)
    yield from _protocol_lines(directions)


def to_json(result: object) -> str:
    """Return JSON with `null` for numbers that JSON does not have, such as the PSNR of images that equal the truth."""
    return json.dumps(json.loads(json.dumps(result), parse_constant=lambda name: None), indent=2) + "\n"


def _protocol_lines(directions: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield lines that tell what was compared, and how."""
    yield ""
    for direction, part in directions.items():
        source, target = DIRECTIONS[direction]
        protocol = part["protocol"]
        limit = f" (at most the first {protocol['max_images']})" if protocol["max_images"] else ""
        yield (
            f"{source} -> {target}: {counted(protocol['translated'], 'held-out image')} of {source}{limit} of"
            f" {protocol['dataset']}, translated, and {counted(protocol['real'], 'real image')} of {target} from"
            f" {protocol['real_from']}, {protocol['width']} x {protocol['height']} pixels; {protocol['rounding']}; KID:"
            f" {protocol['KID']}, seed {protocol['seed']}"
        )
    if protocol["protocol"]:
        yield f"Protocol: {protocol['protocol']}; published FIDs are of the best checkpoint, chosen with these images"
    yield f"Images: --preprocess {protocol['preprocess']} (resized by Pillow, bicubic, antialiased)"
    yield f"Features: {protocol['features']}"


program = functools.partial(terminal.run, main, "stopped; nothing was written")
