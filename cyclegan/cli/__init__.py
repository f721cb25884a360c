"""The commands, each with `main` and `program`, and what they share."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence

from cyclegan import whole_file
from cyclegan.errors import UserError, check_path, describe_missing, printable, similar_folder
from cyclegan.export import ENDINGS, MARKERS
from cyclegan.run.run_directory import WRITTEN, find_checkpoints, saved_checkpoints, split_checkpoint

EXPORTED = "an exported network"


def describe_path(path: str | os.PathLike[str]) -> str:
    """Return what a path is, such as "a run" or "a folder of images"."""
    # Takes a moment, and is needed for mistakes only.
    from cyclegan.data.folder_source import is_image

    path = pathlib.Path(path).expanduser()
    if not path.exists():
        return describe_missing(path, "file or folder").replace("no such", "no", 1)
    if _holds_run(path):
        return "a run"
    if saved_checkpoints(path / "checkpoints"):
        return "a run whose config.json is missing"
    if path.suffix in ENDINGS or any((path / name).is_file() for name in MARKERS.values()):
        return EXPORTED
    if path.is_file():
        return "an image" if is_image(os.fspath(path)) else "a file"
    found = any(is_image(os.fspath(each)) for pattern in ("*", "*/*") for each in path.glob(pattern))
    return "a folder of images" if found else "a folder without a run or images"


def check_run(
    run: str | os.PathLike[str], others: Sequence[str | os.PathLike[str]] = (), checkpoint: str | None = None
) -> None:
    """Raise `UserError` if a path is not a run, naming another argument that is one, or has no such checkpoint."""
    check_path(run)
    folder, name = split_checkpoint(run)
    if _holds_run(folder):
        if checkpoint and name:
            raise UserError(f"{printable(run)} with --checkpoint {checkpoint}: expected one of them")
        if checkpoint or name:
            find_checkpoints(folder / "checkpoints", checkpoint or name)
        return
    kind, is_there = describe_path(run), os.path.exists(folder)
    what = f"{printable(run)} is {kind}" if is_there else f"{printable(run)}: {describe_missing(folder)}"
    what += similar_folder(folder, "config.json")
    if swapped := [other for other in others if describe_path(other) == "a run"]:
        raise UserError(f"{what}, but {printable(swapped[0])} is a run: swap them")
    what += " (docs/export.md: what uses it)" if kind == EXPORTED else ""
    raise UserError(f"{what}; expected {runs_in(folder) or 'the folder of a run, see --output_dir of training'}")


def check_result(path: str, flag: str, ending: str, mark: bytes) -> pathlib.Path:
    """Return the path of a file of results, given by a flag, to write, or to replace one that begins with a mark.

    Raises:
        UserError: The name has another ending or belongs to a file of a run, the file holds something else, or it
            can't be written.
    """
    if not path.lower().endswith(ending):
        raise UserError(f"{flag} {printable(path)}: expected a name that ends in {ending}")
    file = pathlib.Path(path).expanduser()
    if WRITTEN.fullmatch(file.name):
        raise UserError(f"{flag} {printable(path)}: the name of a file of a run; expected another name")
    if file.is_file() and (content := file.read_bytes()[:400]) and mark not in content:
        raise UserError(f"{flag} {printable(path)}: another file; expected a new name, or an earlier result to replace")
    return whole_file.check_file(path)


def _holds_run(folder: pathlib.Path) -> bool:
    """Return whether a folder holds a run, rather than an export for a model hub, which also has a config.json."""
    is_export = (folder / MARKERS["hub"]).is_file() and not saved_checkpoints(folder / "checkpoints")
    return (folder / "config.json").is_file() and not is_export


def runs_in(folder: pathlib.Path) -> str:
    """Return "a run in it: " and the runs in a folder; "" if there are none."""
    runs = sorted(path.parent.name for path in folder.glob("*/config.json"))
    return f"a run in it: {printable(', '.join(runs[:9]))}" if runs else ""


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, the first column aligned to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
