"""Translation of files, folders and patterns, on all devices, into files of the same kind."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Literal

from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import UserError, printable
from cyclegan.inference import conversions, file_plan
from cyclegan.inference.conversions import Path, Size
from cyclegan.inference.file_plan import PAGE_FOLDER
from cyclegan.inference.file_translator import FileTranslator, Report, Request
from cyclegan.inference.model import Model, load_on_devices
from cyclegan.run import html_report


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
    slice_axis: int | None = None,
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
    planned, folder = file_plan.plan_tasks(os.fspath(source), os.fspath(target), format)
    tasks = [task for task in planned if not (skip_existing and os.path.lexists(task.target))]
    if not overwrite:
        pages = [folder / "index.html", folder / PAGE_FOLDER] if html else []
        file_plan.refuse_existing([*(task.target for task in tasks), *pages])
    models = [run] if isinstance(run, Model) else run if isinstance(run, list) else load_on_devices(run)
    models[0].generator(direction)  # raises an error if there is none
    channels, value_range = models[0].channels(direction)[1], models[0].value_ranges(direction)[1]
    tasks, refused = file_plan.refuse_formats(tasks, format, channels, value_range, strip_metadata)
    if masks is not None:
        tasks, without = file_plan.add_masks(tasks, os.fspath(masks), models[0].channels(direction))
        refused += without
    report = Report(skipped=len(planned) - len(tasks) - len(refused), failed=refused)
    data, page = models[0].config.data, folder if html else None
    stacks = stacks or data.stacks
    slice_axis = data.slice_axis if slice_axis is None and stacks == "all" else slice_axis
    nodata = data.nodata if nodata is None else nodata
    request = Request(direction, size, format, batch_size, page, strip_metadata, stacks, slice_axis, nodata)
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
