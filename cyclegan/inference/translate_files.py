"""Translation of files, folders and patterns, on all devices, into files of the same kind."""

from __future__ import annotations

import dataclasses
import glob
import itertools
import logging
import os
import pathlib
import time
from collections.abc import Iterable, Sequence
from typing import Literal

from cyclegan.config.sections import DIRECTIONS
from cyclegan.data import folder_source, loading
from cyclegan.errors import UserError, printable
from cyclegan.images import formats, reader
from cyclegan.inference import conversions
from cyclegan.inference.conversions import Path, Size
from cyclegan.inference.file_translator import PAGE_FOLDER, FileTask, FileTranslator, Report, Request
from cyclegan.inference.model import Model, load_on_devices
from cyclegan.run import html_report

logger = logging.getLogger(__name__)


def translate(  # noqa: PLR0913  the public API
    run: Path | Model | list[Model],
    source: Path,
    target: Path,
    direction: Literal["x2y", "y2x"] = "x2y",
    size: Size | None = None,
    format: str | None = None,
    overwrite: bool = False,
    batch_size: int = 8,
    html: bool = False,
    bars: bool = False,
    skip_existing: bool = False,
    strip_metadata: bool = False,
    stacks: Literal["first", "all"] | None = None,
    slice_axis: Literal[0, 1, 2] | None = None,
    nodata: float | None = None,
    masks: Path | None = None,
) -> Report:
    """Translate image files and films.

    Args:
        run: Folder of a run, whose newest checkpoint runs on all GPUs; or a `Model`; or a list of models, one for each
            device.
        source: File, or folder (its images and films, also in subfolders), or pattern of `glob` (`**` for any folders).
        target: Folder; or a file if `source` is one. Names and subfolders are the same as in `source`.
        direction: "x2y" or "y2x".
        size: (width, height) in pixels to resize images to first; by default each keeps its size.
        format: One of `formats.FORMATS`; by default the format of each original's name.
        overwrite: Whether existing files are replaced.
        batch_size: Number of images of one size to translate together, if they are small enough.
        html: Whether to write a page of the results, which also shows each image translated back if the run can.
        bars: Whether to show a progress bar.
        skip_existing: Whether to leave existing files and translate the others, as after a stop.
        strip_metadata: Whether to write files without EXIF, XMP, resolution and place; docs/translate.md lists them.
        stacks: "all" to translate all images of a file into a file of as many, "first" to translate the first one; by
            default as the run was trained. Of NIfTI files, always all are.
        slice_axis: Axis along which the slices of volumes lie; by default as the run was trained.
        nodata: Value of pixels without data in TIFF files that name none; by default --nodata of the run.
        masks: Folder with a mask for each image, which has its name except for the extension. Where the mask is black
            or transparent, the translation equals the original.

    Returns:
        The report. It names each file that cannot be read or written; the other files are translated.

    Raises:
        UserError: There are no images, or files to write exist, or two have the same name, or their format does not
            support the result; nothing was written.
    """
    began = time.perf_counter()
    _check(direction, size, batch_size, overwrite, html, skip_existing)
    planned, folder = plan_tasks(os.fspath(source), os.fspath(target), format)
    tasks = [task for task in planned if not (skip_existing and os.path.lexists(task.target))]
    if not overwrite:
        pages = [folder / "index.html", folder / PAGE_FOLDER] if html else []
        refuse_existing([*(task.target for task in tasks), *pages])
    models = [run] if isinstance(run, Model) else run if isinstance(run, list) else load_on_devices(run)
    models[0].generator(direction)  # raises an error if there is none
    tasks, refused = refuse_formats(tasks, models[0], direction, strip_metadata)
    if masks is not None:
        tasks, without = add_masks(tasks, os.fspath(masks), models[0].channels(direction))
        refused += without
    report = Report(skipped=len(planned) - len(tasks) - len(refused), failed=refused)
    data, page = models[0].config.data, folder if html else None
    stacks, nodata = stacks or data.stacks, data.nodata if nodata is None else nodata
    if (
        slice_axis is not None
        and stacks != "all"
        and not all(formats.FORMATS[_format_to_write(task)].is_volume for task in tasks)
    ):
        raise UserError(f"--slice_axis {slice_axis}: expected --stacks all, too, for files other than NIfTI")
    slice_axis = data.slice_axis if slice_axis is None else slice_axis
    request = Request(direction, size, format, batch_size, page, strip_metadata, nodata, stacks, slice_axis)
    FileTranslator(models, request).run(tasks, report, bars)
    report.seconds = time.perf_counter() - began
    if html:
        _write_page(report, folder, " to ".join(DIRECTIONS[direction]), models[0])
    return report


def _check(
    direction: str, size: Size | None, batch_size: int, overwrite: bool, html: bool, skip_existing: bool
) -> None:
    """Raise `UserError` if the arguments of `translate` cannot work together."""
    if direction not in DIRECTIONS or batch_size < 1:
        raise UserError(
            f"direction {direction!r}, batch_size {batch_size!r}: expected x2y or y2x, and at least 1 image"
        )
    if skip_existing and (overwrite or html):
        other = "--overwrite" if overwrite else "--html, whose page would lack the skipped images"
        raise UserError(f"--skip_existing with {other}: expected one of them")
    if size is not None:
        conversions.check_size(size)


def _write_page(report: Report, folder: pathlib.Path, title: str, model: Model) -> None:
    notes = [f"{model.checkpoint}, after {model.train_state.epoch} epochs"]
    if len(model.generators) < len(DIRECTIONS):
        notes.append("No cycle: the run has no generator for the other direction.")
    try:
        report.page = html_report.write(folder, title, report.items, notes)
    except OSError as error:
        report.failed.append(printable(f"{folder / 'index.html'} ({error})"))


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
        is_kept = not format or (formats.is_film(name) and not formats.FORMATS[format].is_film)  # films stay films
        target = name if is_kept else folder_source.stem(name) + formats.FORMATS[format or ""].endings[0]
        if formats.format_of(target) is None:  # of a DICOM file without an extension
            target += formats.FORMATS[formats.UNNAMED].endings[0]
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
    fixed = list(itertools.takewhile(os.path.exists, itertools.accumulate(parts, os.path.join)))  # as it is written
    if os.pardir in parts[len(fixed) :]:  # the translations would leave the output folder, too
        raise UserError(f"{printable(source)}: .. after a wildcard; expected a pattern that stays in its folder")
    base = fixed[-1] if fixed else ""
    pattern = os.path.join(glob.escape(base), *parts[len(fixed) :])
    images = (path for path in glob.glob(pattern, recursive=True) if folder_source.is_image(path))
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


def _format_to_write(task: FileTask) -> str:
    return formats.format_of(task.target) or ""


def refuse_formats(
    tasks: Iterable[FileTask], model: Model, direction: str, strip_metadata: bool
) -> tuple[list[FileTask], list[str]]:
    """Return the tasks whose output format can store the translations, and the other files with the reasons.

    Raises:
        UserError: No task is left, but there were some.
    """
    channels, ranges = model.channels(direction), model.value_ranges(direction)
    kept, refused = [], []
    for task in tasks:
        wanted = _format_to_write(task)
        if not (reason := formats.refusal(task.source, wanted, channels[1], ranges[1], strip_metadata)):
            kept.append(task)
            continue
        try:  # another output would not help if the original cannot be read
            with reader.open_rows(task.source, channels[0], bool(ranges[0])):
                pass
        except Exception as error:  # of any decoder
            reason = loading.describe_error(error)
        refused.append(printable(f"{task.source} ({reason})"))
    if refused and not kept:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise UserError(f"{refused[0]}{more}")
    return kept, refused
