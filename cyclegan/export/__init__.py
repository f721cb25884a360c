"""Exported networks. What this file holds needs no TensorFlow."""

from __future__ import annotations

import os
import pathlib
import re

from cyclegan import whole_file
from cyclegan.errors import UserError, printable
from cyclegan.run.run_directory import PATTERN

ENDINGS = {".keras": "keras", ".onnx": "onnx", ".tflite": "tflite"}  # formats by the ending of a file's name
MARKERS = {"savedmodel": "saved_model.pb", "web": "networks.json", "hub": "scores.json"}  # files in each such folder
# Files of an earlier export that a new one may not have.
MADE = re.compile(rf"(x2y|y2x)\.\w+|samples\.png|{'|'.join(map(re.escape, MARKERS.values()))}")


def check(out: pathlib.Path, format: str, overwrite: bool = False) -> None:
    """Raise `UserError` if an export cannot be written, before anything is computed."""
    if format == "savedmodel" and PATTERN.search(os.path.abspath(out)):
        raise UserError(
            f"{printable(out)}: TensorFlow loads no SavedModel from a path with [ ] * ? or \\, which it"
            " takes for a pattern; choose another path"
        )
    whole_file.check_folder(out.parent)
    if os.path.lexists(out) and not overwrite:
        raise UserError(f"{printable(out)} exists; choose another name, or --overwrite to replace it")
    if out.is_dir() and not (format in MARKERS and (out / MARKERS[format]).is_file()):
        raise UserError(
            f"{printable(out)} is a folder that --format {format} did not make, so --overwrite does not replace"
            " it; choose another name"
        )
