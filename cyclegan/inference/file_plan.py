"""Plan of a translation of files: paths to read, and paths to write."""

from __future__ import annotations

import dataclasses
import glob
import itertools
import logging
import os
import pathlib
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cyclegan.config.data import ValueRange
from cyclegan.data import folder_source
from cyclegan.errors import UserError, printable
from cyclegan.images import writer
from cyclegan.images.value_range import MIN_STEPS, value_type
from cyclegan.inference.page_images import PAGE_FOLDER

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class FileTask:
    """A file to translate.

    Attributes:
        number: Number of the file, from 1.
        name: Path relative to the folder or pattern.
        source: Path to read.
        target: Path to write.
    """

    number: int
    name: str
    source: str
    target: pathlib.Path


class Plan(NamedTuple):
    """Files to translate.

    Attributes:
        tasks: The files.
        folder: Folder that everything is written below.
    """

    tasks: list[FileTask]
    folder: pathlib.Path


def make_plan(source: str, target: str, format: str | None) -> Plan:
    """Plan the translation of a file, of a folder, or of the files that match a pattern.

    Args:
        source: File, folder or pattern.
        target: Folder, or a file if `source` is one.
        format: Format to write; by default the format of each original.

    Raises:
        UserError: There are no images, or a target is not clear, or two files have the same target.
    """
    if format not in (None, *writer.FORMATS):
        raise UserError(f"--format {format}: expected one of {', '.join(writer.FORMATS)}")
    if os.path.isfile(source):
        return _plan_file(source, target, format)
    base, names = _find_images(source)
    if os.path.isfile(target):
        raise UserError(f"{target}: a file; expected a folder for the translations of {len(names)} images")
    inside = os.path.relpath(os.path.abspath(target), os.path.abspath(base or os.curdir)) + os.sep
    names = [name for name in names if inside == f".{os.sep}" or not name.startswith(inside)]
    if not names:
        raise UserError(f"{source}: no images; expected at least one of {' '.join(folder_source.EXTENSIONS)}")
    folder = pathlib.Path(target)
    return Plan(_make_tasks(base, names, folder, format), folder)


def refuse_originals(tasks: Sequence[FileTask]) -> None:
    """Raise `UserError` if a translation would replace its original or another one."""
    originals = {os.path.realpath(task.source) for task in tasks}
    for task in tasks:
        if os.path.realpath(task.target) in originals:
            raise UserError(
                f"{printable(task.target)}: an image to translate, which its translation would replace; expected another folder"
            )


def _plan_file(source: str, target: str, format: str | None) -> Plan:
    base, name = os.path.split(source)
    is_file = not os.path.isdir(target) and writer.format_of(target) is not None
    suffix = os.path.splitext(target)[1]
    if suffix and not is_file and not os.path.isdir(target) and not target.endswith(os.sep):
        known = " ".join(itertools.chain(*writer.FORMATS.values()))
        raise UserError(f"{printable(target)}: expected a folder, or a file that ends in one of {known}")
    if is_file:
        if format and writer.format_of(target) != format:
            raise UserError(
                f"{target}: --format {format} expects a name that ends in {' or '.join(writer.FORMATS[format])}"
            )
        return Plan([FileTask(1, name, source, pathlib.Path(target))], pathlib.Path(os.path.dirname(target)))
    if not format and not writer.format_of(name) and not folder_source.is_image(source):
        raise UserError(
            f"{printable(source)}: its name does not end in the suffix of a format; expected --format"
            f" ({', '.join(writer.FORMATS)}), or an output that is a file: {printable(pathlib.Path(name).stem)}.jpg"
        )
    folder = pathlib.Path(target)
    return Plan(_make_tasks(base, [name], folder, format), folder)


def _make_tasks(base: str, names: Sequence[str], folder: pathlib.Path, format: str | None) -> list[FileTask]:
    tasks: list[FileTask] = []
    taken: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        target = folder_source.stem(name) + writer.FORMATS[format][0] if format else name
        if writer.format_of(target) is None:  # of a DICOM file without an extension
            target += writer.FORMATS["dicom"][0]
        key = target.casefold() if sys.platform == "darwin" else target  # file systems of macOS ignore case
        if key in taken:
            raise UserError(
                printable(f"{taken[key]} and {name} would both be written to {folder / target}:")
                + " expected other names, or no --format"
            )
        taken[key] = name
        tasks.append(FileTask(number, name, os.path.join(base, name), folder / target))
    return tasks


def _find_images(source: str) -> tuple[str, list[str]]:
    """Return (folder, sorted names relative to it) of the images of a folder or a pattern."""
    if os.path.isdir(source):
        copies = {path.parent.relative_to(source) / PAGE_FOLDER for path in pathlib.Path(source).rglob("index.html")}
        others: list[str] = []
        found = folder_source.find_images(source, others)
        if others := [name for name in others if name != "index.html"]:
            logger.info(folder_source.describe_others(source, others))
        return source, [name for name in found if pathlib.Path(name).parent not in copies]
    if not glob.has_magic(source):
        raise UserError(
            f"{printable(source)}: no such file or folder; expected an image, a folder of images, or a pattern"
        )
    parts = pathlib.PurePath(source).parts
    fixed = list(itertools.takewhile(lambda part: not glob.has_magic(part), parts))
    if os.pardir in parts[len(fixed) :]:  # the translations would leave the output folder, too
        raise UserError(f"{printable(source)}: .. after a wildcard; expected a pattern that stays in its folder")
    base = os.path.join("", *fixed)
    found = sorted(
        os.path.relpath(path, base or os.curdir)
        for path in glob.glob(source, recursive=True)
        if folder_source.is_image(path)
    )
    return base, found


def refuse_existing(targets: Sequence[pathlib.Path], overwrite: bool) -> None:
    """Raise `UserError` if a file to write exists, unless it may be replaced."""
    existing = [target for target in targets if os.path.lexists(target)]
    if existing and not overwrite:
        raise UserError(
            printable(
                f"{len(existing)} of {len(targets)} files to write exist, for example {existing[0]}: expected none;"
            )
            + " use --overwrite to replace them, --skip_existing to leave them, or another folder"
        )


def _is_dicom(source: str) -> bool:
    format = writer.format_of(source)
    return format == "dicom" or (format is None and folder_source.is_image(source))


def refuse_formats(
    tasks: Iterable[FileTask], format: str | None, channels: int, value_range: ValueRange | None = None
) -> None:
    """Raise `UserError` if a format to write does not support so many channels, or the values of a range."""
    for task in tasks:
        wanted = format or writer.format_of(task.target.name)
        if wanted == "dicom" and (channels != 1 or not _is_dicom(task.source)):
            raise UserError(
                f"{printable(task.target)}: expected DICOM files as originals, and 1 channel ({channels} here): use --format tiff"
            )
        if channels not in (1, 3) and wanted != "tiff":
            raise UserError(
                f"{printable(task.target)}: {channels} channels don't fit into {wanted}; expected --format tiff"
            )
        if value_range and wanted and not writer.holds(wanted, value_type(value_range)):
            values = "{:g} to {:g}".format(*value_range)
            raise UserError(
                f"{printable(task.target)}: values from {values} don't fit into {wanted}; expected --format tiff, or png for a"
                f" range of at least {MIN_STEPS} whole numbers from 0 to 65535"
            )
