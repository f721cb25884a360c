"""Scores of a run as a table and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from cyclegan.config.directions import DIRECTIONS

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


def table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table of the result of `score_run.score_run`."""
    yield f"{result['run']}, {result['checkpoint']}: {result['epoch']} epochs, step {result['step']}"
    for direction, part in result["directions"].items():
        yield ""
        yield from _direction_lines(direction, part)
    protocol = part["protocol"]  # what follows is the same in both directions
    yield ""
    yield f"Images: --preprocess {protocol['preprocess']} (resized by Pillow, bicubic, antialiased)"
    yield f"Features: {protocol['features']}"
    yield "Lower is better, except for PSNR and SSIM"


def to_json(result: Mapping[str, Any]) -> str:
    """Return JSON with `null` for numbers that JSON does not have, such as the PSNR of images that equal the truth."""
    return json.dumps(_without_infinities(result), indent=2, allow_nan=False) + "\n"


def _direction_lines(direction: str, part: Mapping[str, Any]) -> Iterator[str]:
    source, target = DIRECTIONS[direction]
    protocol = part["protocol"]
    yield f"{f'{source} -> {target}':40} {'translated':>12} {'untranslated':>12}"
    for name, title in TITLES.items():
        if name in part["scores"]:
            values = [part[kind].get(name) for kind in ("scores", "untranslated")]
            yield f"{title:40} " + " ".join(f"{'' if v is None else f'{v:.5g}':>12}" for v in values).rstrip()
    limit = f" (at most the first {protocol['max_images']})" if protocol["max_images"] else ""
    yield f"{protocol['translated']} held-out images of {source}{limit} of {protocol['dataset']}, translated;"
    size = f"{protocol['width']} x {protocol['height']} pixels"
    yield f"{protocol['real']} real images of {target} from {protocol['real_from']}; {size}"
    yield f"{protocol['rounding']}; KID: {protocol['KID']}, seed {protocol['seed']}"


def _without_infinities(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _without_infinities(part) for name, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
