"""Translation of files, folders and patterns, on all devices, into files of the same kind."""

from __future__ import annotations

import dataclasses
import glob
import itertools
import logging
import os
import pathlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cyclegan.config import Config, command_line
from cyclegan.config.sections import DIRECTIONS
from cyclegan.data import folder_source
from cyclegan.errors import UserError, check_path, counted, describe_missing, first_line, printable
from cyclegan.images import formats, reader
from cyclegan.inference import conversions
from cyclegan.inference.conversions import Path
from cyclegan.inference.file_translator import PAGE_FOLDER, FileTask, FileTranslator, Report, Request
from cyclegan.run import html_report
from cyclegan.whole_file import check_folder, open_regular

if TYPE_CHECKING:
    from cyclegan.inference.model import Model

logger = logging.getLogger(__name__)


def translate(
    run: Path | Model | list[Model],
    source: Path | Sequence[Path],
    target: Path,
    direction: str = "x2y",
    bars: bool = False,
    **options: Any,
) -> Report:
    """Translate image files and films; see `api.translate`."""
    from cyclegan.inference.model import Model, load_on_devices

    command_line.check_names(options, (field.name for field in dataclasses.fields(Request)))
    sources = [os.fspath(each) for each in ([source] if isinstance(source, (str, os.PathLike)) else source)]
    if not sources:
        raise UserError(f"source {source!r}: expected at least one file or folder")
    request = Request(direction=direction, **options)
    models = run if isinstance(run, list) else [run] if isinstance(run, Model) else load_on_devices(run)
    return translate_plan(models, make_plan(models[0].config, sources, os.fspath(target), request), bars)


class Plan(NamedTuple):
    """Files to translate, checked before TensorFlow is loaded."""

    request: Request  # without None for what the run has
    tasks: list[FileTask]
    folder: pathlib.Path  # that everything is written below
    report: Report  # of the files that are skipped or cannot be translated


def make_plan(config: Config, sources: Sequence[str], target: str, request: Request) -> Plan:
    """Plan a translation with a run of a configuration; raise the errors of `translate`."""
    for path in (*sources, target):
        check_path(path)
    conversions.check_direction(config, request.direction)
    if request.size is not None:
        request = dataclasses.replace(request, size=conversions.check_size(request.size))
    tasks, folder = plan_tasks(sources, target, request.format and _known_format(request.format))
    pages = [folder / "index.html", folder / PAGE_FOLDER] if request.html else []
    written = [*(task.target for task in tasks), *pages]
    existing = [] if request.overwrite else [path for path in written if os.path.lexists(path)]
    if request.skip_existing:
        tasks = [task for task in tasks if task.target not in existing]
    elif existing:
        raise UserError(
            f"{len(existing)} of {len(written)} files to write exist, for example {printable(existing[0])}:"
            " expected none; use --overwrite to replace them, --skip_existing to leave them, or another folder"
        )
    if config.data.is_inside(folder, parts_only=True):
        raise UserError(
            f"{printable(folder)}: holds images that the run was trained or scored on; expected another folder, because"
            " the translations would become some of them"
        )
    check_folder(folder)
    tasks, failed = refuse_formats(tasks, config, request)
    if request.masks is not None:
        if not config.data.same_channels:
            raise UserError("--masks: expected a run whose domains have the same number of channels")
        tasks, without = add_masks(tasks, os.fspath(request.masks))
        failed += without
    data = config.data
    stacks, axis = request.stacks or data.stacks, request.slice_axis
    if axis is not None and stacks != "all" and not all(formats.FORMATS[task.format].is_volume for task in tasks):
        raise UserError(f"--slice_axis {axis}: expected --stacks all, too, for files other than NIfTI")
    axis = data.slice_axis if axis is None else axis
    nodata = data.nodata if request.nodata is None else request.nodata
    request = dataclasses.replace(request, stacks=stacks, slice_axis=axis, nodata=nodata)
    return Plan(request, tasks, folder, Report(skipped=len(existing), failed=failed))


def translate_plan(models: Sequence[Model], plan: Plan, bars: bool = False) -> Report:
    """Translate the files of a plan with a model for each device; see `translate`."""
    began, (request, tasks, folder, report), model = time.perf_counter(), plan, models[0]
    FileTranslator(models, request, folder if request.html else None).run(tasks, report, bars)
    report.seconds = time.perf_counter() - began
    if request.html:
        notes = [f"{model.checkpoint}, after {counted(model.train_state.epoch, 'epoch')}"]
        if len(model.generators) < len(DIRECTIONS):
            notes.append("No cycle: the run has no generator for the other direction.")
        title = " to ".join(DIRECTIONS[request.direction])
        try:
            report.page = html_report.write(folder, title, report.items, notes)
        except OSError as error:
            report.failed.append(printable(f"{folder / 'index.html'} ({error})"))
    return report


def _known_format(name: str) -> str:
    """Return a format by its name or an ending of its files, such as "jpg"."""
    found = name if name in formats.FORMATS else formats.format_of(f".{name}")
    if not found:
        raise UserError(f"--format {name}: expected an ending such as jpg, or one of {', '.join(formats.WRITTEN)}")
    return found


def plan_tasks(sources: Sequence[str], target: str, format: str | None) -> tuple[list[FileTask], pathlib.Path]:
    """Plan the translation of files, of folders, and of the files that match patterns.

    Returns:
        The files, and the folder that everything is written below.

    Raises:
        UserError: There are no images, or a target is not clear, or two files have the same target, or a translation
            would replace an original.
    """
    folder, first = pathlib.Path(target), sources[0]
    if len(sources) > 1 or not os.path.isfile(first):
        base, names = _find_images(sources)
        if folder.is_file() or (formats.format_of(target) and not folder.is_dir()):
            count = counted(len(names), "image")
            raise UserError(f"{printable(target)}: names a file; expected a folder for the translations of {count}")
        inside = os.path.relpath(target, base or os.curdir) + os.sep
        names = [name for name in names if inside == f".{os.sep}" or not name.startswith(inside)]
        if not names:
            known = " ".join(folder_source.EXTENSIONS)
            raise UserError(f"{printable(' '.join(sources))}: no images; expected at least one of {known}")
        tasks = _make_tasks(base, names, folder, format)
    elif formats.format_of(target) and not folder.is_dir():
        kind = format or formats.format_of(target) or ""
        if formats.format_of(target) != kind:
            endings = " or ".join(formats.FORMATS[kind].endings)
            raise UserError(f"{target}: --format {format} expects a name that ends in {endings}")
        tasks, folder = [FileTask(1, os.path.basename(first), first, folder, kind)], folder.parent
    else:
        if os.path.splitext(target)[1] and not folder.is_dir() and not target.endswith(os.sep):
            known = " ".join(folder_source.EXTENSIONS)
            raise UserError(f"{printable(target)}: expected a folder, or a file that ends in one of {known}")
        if not format and not formats.format_of(first) and not folder_source.is_image(first):
            try:
                with open_regular(first) as file:
                    formats.open_image(file)
            except formats.ImageError as error:
                raise UserError(f"{printable(first)}: {error}; expected an image, or a folder of images") from error
            raise UserError(
                f"{printable(first)}: its name does not end in the suffix of a format; expected --format"
                f" ({', '.join(formats.WRITTEN)}), or a file as output: {printable(pathlib.Path(first).stem)}.jpg"
            )
        base, name = os.path.split(first)
        tasks = _make_tasks(base, [name], folder, format)
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
        tasks[path] = FileTask(number, name, os.path.join(base, name), path, formats.format_of(target) or "")
    return list(tasks.values())


def _find_images(sources: Sequence[str]) -> tuple[str, list[str]]:
    """Return (folder, sorted names relative to it) of the images of folders, patterns and files.

    With several sources, the folder is the nearest one that holds all of them.
    """
    others: list[str] = []
    found = [_find(source, others) for source in sources]
    if others := [name for name in others if name != "index.html"]:
        logger.info(folder_source.describe_others(sources[0] if len(sources) == 1 else "the inputs", others))
    if len(found) == 1:
        return found[0]
    folders = [
        os.path.dirname(os.path.abspath(source)) if os.path.exists(source) else os.path.abspath(base)
        for source, (base, _) in zip(sources, found)
    ]
    common = os.path.commonpath(folders)
    paths = {os.path.abspath(os.path.join(base, name)) for base, names in found for name in names}
    base = common if os.path.isabs(sources[0]) else os.path.join(os.path.relpath(common), "").removeprefix("./")
    return base, sorted(os.path.relpath(path, common) for path in paths)


def _find(source: str, others: list[str]) -> tuple[str, list[str]]:
    """Return (folder, names relative to it) of the images of a folder, a file or a pattern; add the other files."""
    if os.path.isdir(source):
        names = folder_source.find_images(source, others)
        return source, [name for name in names if PAGE_FOLDER not in pathlib.Path(name).parts]
    if os.path.isfile(source):
        base, name = os.path.split(source)
        others += [] if folder_source.is_image(source) else [name]
        return base, [name] if folder_source.is_image(source) else []
    if not glob.has_magic(source):
        missing = describe_missing(source, "file or folder")
        raise UserError(f"{printable(source)}: {missing}; expected an image, a folder of images, or a pattern")
    parts = pathlib.PurePath(source).parts
    fixed = list(itertools.takewhile(os.path.exists, itertools.accumulate(parts, os.path.join)))  # as it is written
    if os.pardir in parts[len(fixed) :]:  # the translations would leave the output folder, too
        raise UserError(f"{printable(source)}: .. after a wildcard; expected a pattern that stays in its folder")
    base = fixed[-1] if fixed else ""
    pattern = os.path.join(glob.escape(base), *parts[len(fixed) :])
    images = (path for path in glob.glob(pattern, recursive=True) if folder_source.is_image(path))
    return base, sorted(os.path.relpath(path, base or os.curdir) for path in images)


def add_masks(tasks: Sequence[FileTask], folder: str) -> tuple[list[FileTask], list[str]]:
    """Return the tasks with the masks from a folder, and the files without one; see `folder_source.find_masks`.

    Raises:
        UserError: There is no such folder, or no file has a mask there, but there are files.
    """
    if not os.path.isdir(folder):
        missing = describe_missing(folder)
        raise UserError(f"--masks {printable(folder)}: {missing}; expected a folder with a mask for each image")
    above = (os.path.basename(os.path.dirname(task.source[: -len(task.name)])) for task in tasks)  # such as testA
    masks = folder_source.find_masks(folder, [split + os.sep + task.name for split, task in zip(above, tasks)])
    kept = [dataclasses.replace(task, mask=mask) for task, mask in zip(tasks, masks) if mask]
    without = [printable(task.source) for task, mask in zip(tasks, masks) if not mask]
    if without and not kept:
        raise UserError(f"--masks {printable(folder)}: no mask has the name of an image, for example {without[0]}")
    return kept, [f"{source} (it has no mask in {printable(folder)})" for source in without]


def refuse_formats(tasks: Sequence[FileTask], config: Config, request: Request) -> tuple[list[FileTask], list[str]]:
    """Return the tasks whose output format can store the translations, and the other files with the reasons.

    Raises:
        UserError: No task is left, but there were some.
    """
    source, made = DIRECTIONS[request.direction]
    domain, kept, refused = (config.data.channels(made), config.data.value_range(made)), [], []
    for task in tasks:
        if not (reason := formats.refusal(task.source, task.format, *domain, request.strip_metadata)):
            kept.append(task)
            continue
        given = config.data.channels(source), bool(config.data.value_range(source))
        try:  # another output would not help if the original cannot be read
            if task.format == "dicom":  # whose decoder may be missing
                reader.check(task.source, *given)
            with reader.open_rows(task.source, *given):
                pass
        except Exception as error:  # of any decoder
            reason = first_line(error)
        refused.append(printable(f"{task.source} ({reason})"))
    if refused and not kept:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise UserError(f"{refused[0]}{more}")
    return kept, refused
