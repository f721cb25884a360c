"""The commands, each with `main` and `program`; and what they say about paths that are not what they expect."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence

from cyclegan.errors import UserError, check_path, printable

EXPORTS = (".onnx", ".tflite", ".keras")  # endings of exported networks
MARKERS = ("saved_model.pb", "networks.json")  # files in folders that are exported networks


def describe_path(path: str | os.PathLike[str]) -> str:
    """Return what a path is, such as "a run" or "a folder of images"."""
    from cyclegan.data.folder_source import is_image  # takes a moment, and is needed for mistakes only

    folder = pathlib.Path(path).expanduser()
    if not folder.exists():
        return "no file or folder"
    if folder.is_file():
        return (
            "an exported network" if folder.suffix in EXPORTS else "an image" if is_image(os.fspath(path)) else "a file"
        )
    if (folder / "config.json").is_file():
        return "a run"
    if any((folder / name).is_file() for name in MARKERS):
        return "an exported network"
    found = any(is_image(os.fspath(each)) for pattern in ("*", "*/*") for each in folder.glob(pattern))
    return "a folder of images" if found else "a folder without a run or images"


def check_run(run: str | os.PathLike[str], others: Sequence[str | os.PathLike[str]] = ()) -> None:
    """Raise `UserError` if a path is not a run; name another argument that is one."""
    check_path(os.fspath(run))
    if (pathlib.Path(run).expanduser() / "config.json").is_file():
        return
    what = f"{printable(run)} is {describe_path(run)}"
    if swapped := [other for other in others if describe_path(other) == "a run"]:
        raise UserError(f"{what}, {printable(swapped[0])} a run: swap them")
    raise UserError(f"{what}; expected the folder of a run, see --output_dir of training")
