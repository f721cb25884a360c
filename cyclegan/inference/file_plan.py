"""Plan of a translation of files: paths to read, paths to write, and the requests that cannot work."""

from __future__ import annotations

import dataclasses
import glob
import itertools
import logging
import os
import pathlib
from collections.abc import Iterable, Sequence

from cyclegan.config.data import ValueRange
from cyclegan.data import folder_source
from cyclegan.errors import UserError, printable
from cyclegan.images import formats
from cyclegan.images.value_range import MIN_STEPS, value_type

PAGE_FOLDER = "index_files"  # folder of the images of the page, beside index.html
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class FileTask:
    """A file to translate."""

    number: int  # from 1
    name: str  # path relative to the folder or pattern
    source: str
    target: pathlib.Path
    mask: str | None = None  # path of the mask


def plan_tasks(source: str, target: str, format: str | None) -> tuple[list[FileTask], pathlib.Path]:
    """Plan the translation of a file, of a folder, or of the files that match a pattern.

    Returns:
        The files, and the folder that everything is written below.

    Raises:
        UserError: There are no images, or a target is not clear, or two files have the same target, or a translation
            would replace an original.
    """
    if format not in (None, *formats.FORMATS):
        raise UserError(f"--format {format}: expected one of {', '.join(formats.FORMATS)}")
    folder = pathlib.Path(target)
    if os.path.isfile(source) and formats.format_of(target) and not folder.is_dir():
        if format and formats.format_of(target) != format:
            endings = " or ".join(formats.FORMATS[format].endings)
            raise UserError(f"{target}: --format {format} expects a name that ends in {endings}")
        tasks, folder = [FileTask(1, os.path.basename(source), source, folder)], folder.parent
    elif os.path.isfile(source):
        if os.path.splitext(target)[1] and not folder.is_dir() and not target.endswith(os.sep):
            known = " ".join(folder_source.EXTENSIONS)
            raise UserError(f"{printable(target)}: expected a folder, or a file that ends in one of {known}")
        if not format and not formats.format_of(source) and not folder_source.is_image(source):
            raise UserError(
                f"{printable(source)}: its name does not end in the suffix of a format; expected --format"
                f" ({', '.join(formats.FORMATS)}), or a file as output: {printable(pathlib.Path(source).stem)}.jpg"
            )
        base, name = os.path.split(source)
        tasks = _make_tasks(base, [name], folder, format)
    else:
        base, names = _find_images(source)
        if folder.is_file():
            raise UserError(f"{target}: a file; expected a folder for the translations of {len(names)} images")
        inside = os.path.relpath(target, base or os.curdir) + os.sep
        names = [name for name in names if inside == f".{os.sep}" or not name.startswith(inside)]
        if not names:
            raise UserError(f"{source}: no images; expected at least one of {' '.join(folder_source.EXTENSIONS)}")
        tasks = _make_tasks(base, names, folder, format)
    originals = {os.path.realpath(task.source) for task in tasks}
    if replaced := [task.target for task in tasks if os.path.realpath(task.target) in originals]:
        raise UserError(f"{printable(replaced[0])}: a translation would replace this original; expected another folder")
    return tasks, folder


def _make_tasks(base: str, names: Sequence[str], folder: pathlib.Path, format: str | None) -> list[FileTask]:
    tasks: dict[pathlib.Path, FileTask] = {}
    for number, name in enumerate(names, 1):
        target = folder_source.stem(name) + formats.FORMATS[format].endings[0] if format else name
        if formats.format_of(target) is None:  # of a DICOM file without an extension
            target += formats.FORMATS["dicom"].endings[0]
        path = folder / target
        if path in tasks:
            raise UserError(
                printable(f"{tasks[path].name} and {name} would both be written to {path}:")
                + " expected different names: rename an image, or omit --format"
            )
        tasks[path] = FileTask(number, name, os.path.join(base, name), path)
    return list(tasks.values())


def _find_images(source: str) -> tuple[str, list[str]]:
    """Return (folder, sorted names relative to it) of the images of a folder or a pattern."""
    if os.path.isdir(source):
        others: list[str] = []
        found = folder_source.find_images(source, others)
        if others := [name for name in others if name != "index.html"]:
            logger.info(folder_source.describe_others(source, others))
        return source, [name for name in found if PAGE_FOLDER not in pathlib.Path(name).parts]
    if not glob.has_magic(source):
        raise UserError(
            f"{printable(source)}: no such file or folder; expected an image, a folder of images, or a pattern"
        )
    parts = pathlib.PurePath(source).parts
    fixed = list(itertools.takewhile(lambda part: not glob.has_magic(part), parts))
    if os.pardir in parts[len(fixed) :]:  # the translations would leave the output folder, too
        raise UserError(f"{printable(source)}: .. after a wildcard; expected a pattern that stays in its folder")
    base = os.path.join("", *fixed)
    images = (path for path in glob.glob(source, recursive=True) if folder_source.is_image(path))
    return base, sorted(os.path.relpath(path, base or os.curdir) for path in images)


def add_masks(tasks: Sequence[FileTask], folder: str, channels: tuple[int, int]) -> tuple[list[FileTask], list[str]]:
    """Return the tasks with the masks from a folder, and the files without one; see `folder_source.find_masks`.

    Raises:
        UserError: There is no such folder, or no file has a mask there, but there are files; or translations have other
            `channels` than originals.
    """
    if channels[0] != channels[1]:
        raise UserError("--masks: expected a run whose domains have the same number of channels")
    if not os.path.isdir(folder):
        raise UserError(f"--masks {printable(folder)}: no such folder; expected a folder with a mask for each image")
    above = (os.path.basename(os.path.dirname(task.source[: -len(task.name)])) for task in tasks)  # such as testA
    masks = folder_source.find_masks(folder, [split + os.sep + task.name for split, task in zip(above, tasks)])
    kept = [dataclasses.replace(task, mask=mask) for task, mask in zip(tasks, masks) if mask]
    without = [printable(task.source) for task, mask in zip(tasks, masks) if not mask]
    if without and not kept:
        raise UserError(f"--masks {printable(folder)}: no mask has the name of an image, for example {without[0]}")
    return kept, [f"{source} (it has no mask in {printable(folder)})" for source in without]


def refuse_existing(targets: Sequence[pathlib.Path]) -> None:
    """Raise `UserError` if a file to write exists."""
    if existing := [target for target in targets if os.path.lexists(target)]:
        raise UserError(
            f"{len(existing)} of {len(targets)} files to write exist, for example {printable(existing[0])}:"
            " expected none; use --overwrite to replace them, --skip_existing to leave them, or another folder"
        )


def refuse_formats(
    tasks: Iterable[FileTask],
    format: str | None,
    channels: int,
    value_range: ValueRange | None,
    strip_metadata: bool = False,
) -> tuple[list[FileTask], list[str]]:
    """Return the tasks whose output format can store this number of channels and this value range, and the other files.

    Raises:
        UserError: No task is left, but there were some.
    """
    kept, refused = [], []
    for task in tasks:
        wanted = format or formats.format_of(task.target) or ""
        reason = ""
        if wanted == "dicom" and strip_metadata:
            reason = "--strip_metadata leaves the tags of DICOM files: expected --format tiff or png"
        elif wanted == "dicom" and channels != 1:
            reason = f"a DICOM copy has 1 channel, not {channels}: expected --format tiff or png"
        elif wanted == "dicom" and formats.format_of(task.source) not in (None, "dicom"):
            reason = "expected a DICOM file as original, or --format tiff"
        elif formats.FORMATS[wanted].write is None and wanted != "dicom":
            reason = f"{wanted} files are only read: expected --format jpeg or png"
        elif channels not in (1, 3) and wanted != "tiff":
            reason = f"{channels} channels don't fit into {wanted}; expected --format tiff"
        elif value_range and not formats.holds(wanted, value_type(value_range)):
            reason = (
                f"values from {value_range[0]:g} to {value_range[1]:g} don't fit into {wanted}; expected --format tiff,"
                f" or png for a range of at least {MIN_STEPS} whole numbers from 0 to 65535"
            )
        if reason:
            refused.append(printable(f"{task.source} ({reason})"))
        else:
            kept.append(task)
    if refused and not kept:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise UserError(f"{refused[0]}{more}")
    return kept, refused
