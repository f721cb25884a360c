"""Scores of a run as a table and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cyclegan.config.sections import DIRECTIONS

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


def table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table of the result of `score_run.score_run`."""
    yield f"{result['run']}, {result['checkpoint']}: {result['epoch']} epochs, step {result['step']}"
    for direction, part in result["directions"].items():
        yield ""
        yield from _direction_lines(direction, part)
    yield from _common_lines(part["protocol"])
    yield "Lower is better, except for PSNR and SSIM"


def checkpoints_table(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table of the result of `score_run.score_checkpoints`, with a line for each checkpoint."""
    directions = results[0]["directions"]
    columns = [
        (direction, name) for direction in directions for name in COLUMNS if name in directions[direction]["scores"]
    ]
    names = [", ".join([result["checkpoint"], *result["aliases"]]) for result in results]
    width = max(map(len, [*names, "untranslated"]))
    rows = [[result["directions"][direction]["scores"][name] for direction, name in columns] for result in results]
    best = [min((value for value in values if not math.isnan(value)), default=None) for values in zip(*rows)]
    yield f"{results[0]['run']}: {len(results)} checkpoints; * marks the best of a column"
    yield ""
    yield f"{'':{width}} {'epoch':>6} {'step':>8} " + " ".join(f"{f'{d} {name}':>11} " for d, name in columns).rstrip()
    for name, result, row in zip(names, results, rows):
        cells = (f"{value:11.5g}{'*' if value == least else ' '}" for value, least in zip(row, best))
        yield f"{name:{width}} {result['epoch']:6} {result['step']:8} {' '.join(cells).rstrip()}"
    before = (directions[direction]["untranslated"].get(name) for direction, name in columns)
    yield (
        f"{'untranslated':{width + 16}} " + " ".join(f"{'' if v is None else f'{v:.5g}':>11} " for v in before).rstrip()
    )
    for direction, part in directions.items():
        yield ""
        yield from _protocol_lines(direction, part["protocol"])
    yield from _common_lines(part["protocol"])
    yield "Lower is better"


def to_json(result: object) -> str:
    """Return JSON with `null` for numbers that JSON does not have, such as the PSNR of images that equal the truth."""
    return json.dumps(json.loads(json.dumps(result), parse_constant=lambda name: None), indent=2) + "\n"


def _direction_lines(direction: str, part: Mapping[str, Any]) -> Iterator[str]:
    source, target = DIRECTIONS[direction]
    protocol = part["protocol"]
    yield f"{f'{source} -> {target}':40} {'translated':>12} {'untranslated':>12}"
    for name, title in TITLES.items():
        if name in part["scores"]:
            values = [part[kind].get(name) for kind in ("scores", "untranslated")]
            yield f"{title:40} " + " ".join(f"{'' if v is None else f'{v:.5g}':>12}" for v in values).rstrip()
    yield from _protocol_lines(direction, protocol)


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
    yield f"Images: --preprocess {protocol['preprocess']} (resized by Pillow, bicubic, antialiased)"
    yield f"Features: {protocol['features']}"
