"""Translation of files, folders and patterns, on all devices, into files of the same kind."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import os
import pathlib
import queue
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Optional

import numpy as np
import tensorflow as tf
import tqdm

from cyclegan.config.sections import DIRECTIONS
from cyclegan.data import loading
from cyclegan.data.loading import available_cores
from cyclegan.errors import UserError, printable
from cyclegan.images import dicom_format, formats, geometry, reader
from cyclegan.images.image import DecodedImage, ImageError, Metadata, visible
from cyclegan.images.value_range import image_to_values, restore_nodata, to_depth
from cyclegan.inference import conversions, file_plan
from cyclegan.inference.conversions import Path, Size
from cyclegan.inference.file_plan import PAGE_FOLDER, FileTask
from cyclegan.inference.model import Model, load_on_devices
from cyclegan.run import html_report

MAX_PIXELS = 50_000_000  # of all images in memory at the same time, unless one batch has more
MAX_SIDE = 512  # longer side of an image of the page in pixels

Shape = Optional[tuple[int, int, bool]]  # height and width in pixels, whether it has 16 bits; `None` if unreadable


@dataclasses.dataclass
class Report:
    """Outcome of a translation of files."""

    done: int = 0  # files that were written
    failed: list[str] = dataclasses.field(default_factory=list)  # descriptions of files not written or not on the page
    tiled: int = 0  # images that were too large to be translated at once
    cut: int = 0  # files with several frames or pages, of which only the first was translated
    skipped: int = 0  # files that existed before
    seconds: float = 0.0
    page: pathlib.Path | None = None
    items: list[html_report.Item] = dataclasses.field(default_factory=list, repr=False)  # of the page

    def add(self, part: Report) -> None:
        """Add the report of some of the files."""
        self.done += part.done
        self.failed += part.failed
        self.tiled += part.tiled
        self.cut += part.cut
        self.items += part.items

    @contextlib.contextmanager
    def catch(self, task: FileTask) -> Iterator[None]:
        """Describe an error inside the context in `failed`, so that one file does not stop the others."""
        try:
            yield
        except Exception as error:  # Pillow's decoders raise almost any exception on a damaged file
            reason = loading.describe_error(error)
            if isinstance(error, tf.errors.ResourceExhaustedError):
                reason = "the device does not have enough memory for it; try a smaller --tile or --size"
            self.failed.append(printable(f"{task.source} ({reason})"))


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
    nodata: float | None = None,
    masks: Path | None = None,
) -> Report:
    """Translate image files.

    Args:
        run: Folder of a run, whose newest checkpoint runs on all GPUs; or a `Model`; or a list of models, one for each
            device.
        source: File, or folder (its images, also in subfolders), or pattern of `glob` (`**` for any folders).
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
    if direction not in DIRECTIONS or batch_size < 1:
        raise UserError(
            f"direction {direction!r}, batch_size {batch_size!r}: expected x2y or y2x, and at least 1 image"
        )
    if skip_existing and (overwrite or html):
        other = "--overwrite" if overwrite else "--html, whose page would lack the skipped images"
        raise UserError(f"--skip_existing with {other}: expected one of them")
    if size is not None:
        conversions.check_size(size)
    planned, folder = file_plan.plan_tasks(os.fspath(source), os.fspath(target), format)
    tasks = [task for task in planned if not (skip_existing and os.path.lexists(task.target))]
    if not overwrite:
        page = [folder / "index.html", folder / PAGE_FOLDER] if html else []
        file_plan.refuse_existing([*(task.target for task in tasks), *page])
    models = [run] if isinstance(run, Model) else run if isinstance(run, list) else load_on_devices(run)
    models[0].generator(direction)  # raises an error if there is none
    channels, value_range = models[0].channels(direction)[1], models[0].value_ranges(direction)[1]
    tasks, refused = file_plan.refuse_formats(tasks, format, channels, value_range, strip_metadata)
    translator = _FileTranslator(models, direction, size, format, folder if html else None, strip_metadata, nodata)
    if masks is not None:
        tasks, without = file_plan.add_masks(tasks, os.fspath(masks), models[0].channels(direction))
        refused += without
    report = Report(skipped=len(planned) - len(tasks) - len(refused), failed=refused)
    title = " to ".join(DIRECTIONS[direction])
    pool = concurrent.futures.ThreadPoolExecutor(len(models) + available_cores())
    try:
        with tqdm.tqdm(desc=title, total=len(tasks) + len(refused), unit=" images", disable=not bars or None) as bar:
            batches = make_batches(map(translator.inspect, tasks), batch_size, models[0].tile ** 2)
            for part in _in_order(pool, translator, batches):
                report.add(part)
                bar.update(report.done + len(report.failed) - bar.n)
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C, files that are being translated are completed
    report.seconds = time.perf_counter() - began
    if html:
        _write_page(report, folder, title, models[0])
    return report


def _in_order(
    pool: concurrent.futures.Executor, translator: _FileTranslator, batches: Iterable[tuple[int, list[FileTask]]]
) -> Iterator[Report]:
    """Translate batches, (pixels, files), in a pool with at most `MAX_PIXELS` in memory; yield the reports in order."""
    waiting: collections.deque[tuple[int, concurrent.futures.Future[Report]]] = collections.deque()
    for pixels, tasks in batches:
        while waiting and (waiting[0][1].done() or sum(part[0] for part in waiting) + pixels > MAX_PIXELS):
            yield waiting.popleft()[1].result()
        waiting.append((pixels, pool.submit(translator.translate, tasks)))
    for _, report in waiting:
        yield report.result()


def make_batches(
    inspected: Iterable[tuple[Shape, int, FileTask]], batch_size: int, max_pixels: int
) -> Iterator[tuple[int, list[FileTask]]]:
    """Group consecutive files of the same shape, see `_FileTranslator.inspect`; yield (pixels in memory, files).

    A group has at most `batch_size` files and, if it has several, at most `max_pixels` pixels.
    """
    for shape, group in itertools.groupby(inspected, key=lambda one: one[0]):
        area = shape[0] * shape[1] if shape else max_pixels
        while batch := list(itertools.islice(group, max(1, min(batch_size, max_pixels // area)))):
            _, decoded, tasks = zip(*batch)
            yield max(*decoded, len(tasks) * area), list(tasks)


class _FileTranslator:
    """Read, translate and write batches of files with models, one for each device, that several threads share."""

    def __init__(
        self,
        models: Sequence[Model],
        direction: str,
        size: Size | None,
        format: str | None,
        page: pathlib.Path | None,
        strip_metadata: bool,
        nodata: float | None,
    ) -> None:
        self._model, self._direction, self._size, self._format, self._page = models[0], direction, size, format, page
        self._channels, self._ranges = models[0].channels(direction)[0], models[0].value_ranges(direction)
        self._strip_metadata = strip_metadata
        self._nodata = models[0].config.data.nodata if nodata is None else nodata
        self._idle: queue.Queue[Model] = queue.Queue()
        for model in models:
            self._idle.put(model)

    def inspect(self, task: FileTask) -> tuple[Shape, int, FileTask]:
        """Read the header of a file; return (shape of the image to translate, pixels of the file, file)."""
        try:
            facts = reader.check(task.source, self._channels, bool(self._ranges[0]), self._may_read_rows(task))
        except Exception:  # `translate` reports it
            return None, 0, task
        height, width = self._size[::-1] if self._size else (facts.height, facts.width)
        return (height, width, facts.deep or any(self._ranges)), facts.height * facts.width, task

    def translate(self, tasks: Sequence[FileTask]) -> Report:
        """Read, translate and write files whose images have the same shape."""
        report, originals = Report(), {}
        masks: dict[FileTask, np.ndarray] = {}
        for task in tasks:
            with report.catch(task):
                if self._may_read_rows(task) and self._translate_rows(report, task):
                    continue
                decoded = conversions.read(task.source, self._channels, self._ranges, self._nodata)
                original = conversions.resize(decoded, self._size)
                if task.mask:
                    masks[task] = _read_mask(task.mask, decoded.pixels.shape, original.pixels.shape)
                originals[task] = original
        try:
            results = self._generate([(image.pixels, masks.get(task)) for task, image in originals.items()])
        except Exception:  # such as too little memory: one by one
            results = None
        for number, (task, original) in enumerate(originals.items()):
            with report.catch(task):
                result = results[number] if results else self._generate([(original.pixels, masks.get(task))])[0]
                self._write(report, task, original, *result)
        return report

    def _may_read_rows(self, task: FileTask) -> bool:
        return self._size is None and self._page is None and not task.mask and self._format_of(task) == "tiff"

    def _format_of(self, task: FileTask) -> str | None:
        return self._format or formats.format_of(task.target)

    def _translate_rows(self, report: Report, task: FileTask) -> bool:
        """Translate a file row by row; return whether it is one for this."""
        with reader.open_rows(task.source, self._channels, bool(self._ranges[0]), self._nodata) as image:
            if image is None:
                return False
            model = self._idle.get()
            try:
                formats.write_rows(task.target, image.header.height, self._make_rows(model, image))
            finally:
                self._idle.put(model)
            report.done += 1
            report.tiled += 1
            report.cut += image.has_more_frames
        return True

    def _make_rows(self, model: Model, image: reader.RowImage) -> Iterator[DecodedImage]:
        """Yield the rows of the translation of a file, from top to bottom."""

        def read(rows: slice) -> DecodedImage:
            return conversions.to_network(image.read(rows), self._ranges)

        top = 0
        size = image.header.height, image.header.width
        for output in model.translate_rows(self._direction, lambda rows: read(rows).pixels, size):
            yield self._to_values(read(slice(top, top + len(output))), output, "tiff")
            top += len(output)

    def _to_values(self, original: DecodedImage, output: np.ndarray, format: str | None) -> DecodedImage:
        """Return a translation as it is written: with the values of its domain, and its pixels without data."""
        image, value_range = conversions.with_pixels(original, output), self._ranges[1]
        if self._strip_metadata:
            kept = Metadata(image.metadata.profile, nodata=image.metadata.nodata)
            image = dataclasses.replace(image, metadata=kept)
        if value_range:
            image = image_to_values(image, value_range, floats=format == "tiff")
        return restore_nodata(image) if format == "tiff" else image

    def _generate(
        self, originals: Sequence[tuple[np.ndarray, np.ndarray | None]]
    ) -> list[tuple[np.ndarray, np.ndarray | None]]:
        """Return the translation and, for a page, the cycle image of each (image, mask), with a model that is idle."""
        images, masks = zip(*originals)
        model, back = self._idle.get(), self._direction[::-1]

        def translate(direction: str, batch: np.ndarray) -> np.ndarray:
            outputs = model.translate(direction, batch)
            return outputs if masks[0] is None else np.where(np.stack(masks), outputs, batch)

        try:
            outputs = translate(self._direction, np.stack(images))
            has_cycles = self._page is not None and back in model.generators
            return list(zip(outputs, translate(back, outputs) if has_cycles else [None] * len(images)))
        finally:
            self._idle.put(model)

    def _write(
        self, report: Report, task: FileTask, original: DecodedImage, output: np.ndarray, cycle: np.ndarray | None
    ) -> None:
        """Write a translation with the values of the range of its domain, and its copies for the page."""
        format = self._format_of(task)
        if format == "dicom":
            run, checkpoint = self._model.path.resolve().name, self._model.checkpoint
            note = f"{self._model.config.objective.objective} {self._direction}, {run}, {checkpoint.name}"
            network = f"{self._direction} of {checkpoint.resolve()}"
            fractional = original.fractional
            with formats.partial_file(task.target) as path:
                dicom_format.write_copy(path, task.source, output, self._ranges[1], fractional, note, network)
        else:
            formats.write(task.target, self._to_values(original, output, format), self._format)
        if self._page:
            images = {"input": original.pixels, "output": output, **({} if cycle is None else {"cycle": cycle})}
            try:
                report.items.append(_write_item(self._page, task, self._direction, images))
            except OSError as error:
                raise OSError(f"translated, but not shown on the page: {error}") from error
        height, width = output.shape[:2]
        report.done += 1
        report.tiled += height * width > self._model.tile**2
        report.cut += reader.has_more_frames(task.source, self._channels)


def _read_mask(path: str, original: Sequence[int], resized: Sequence[int]) -> np.ndarray:
    """Read the mask of an image of the shape `original`: bool [h, w, 1], resized like the image."""
    with loading.naming_image(path, "", 0):
        mask = reader.decode_mask(path)
        if mask.shape[:2] != tuple(original[:2]):
            sizes = geometry.format_size(mask.shape), geometry.format_size(original)
            raise ImageError(f"a mask of {sizes[0]}, expected {sizes[1]}")
    return geometry.resize(mask, (resized[0], resized[1]), is_mask=True) > 0


def _write_item(
    folder: pathlib.Path, task: FileTask, direction: str, images: dict[str, np.ndarray]
) -> html_report.Item:
    """Write small copies of "input", "output" and "cycle" for the page; return the item of the page."""
    paths = {kind: f"{PAGE_FOLDER}/{task.number:06d}_{kind}.png" for kind in images}
    for kind, path in paths.items():
        formats.write(folder / path, DecodedImage(make_thumbnail(images[kind])), "png")
    original, scores = images["input"], {}
    for name, kind in (("cycle error", "cycle"), ("change", "output")):
        if kind in images and images[kind].shape == original.shape:
            difference = np.abs(original.astype(np.float32) - images[kind]).mean()
            scores[name] = float(difference * (255 / np.iinfo(original.dtype).max))  # in gray levels of 8 bits
    frame = html_report.Frame(paths["output"], paths.get("cycle", ""), scores)
    return html_report.Item(task.name, " → ".join(DIRECTIONS[direction]), paths["input"], [frame])


def make_thumbnail(pixels: np.ndarray) -> np.ndarray:
    """Return a copy for the page: uint8 [h, w, 1 or 3], its longer side at most `MAX_SIDE` pixels."""
    pixels = visible(pixels)
    shrink = min(1.0, MAX_SIDE / max(pixels.shape[:2]))
    height, width = (max(1, round(side * shrink)) for side in pixels.shape[:2])
    return to_depth(geometry.resize(pixels, (height, width)), np.uint8)


def _write_page(report: Report, folder: pathlib.Path, title: str, model: Model) -> None:
    notes = [f"{model.checkpoint}, after {model.train_state.epoch} epochs"]
    if len(model.generators) < len(DIRECTIONS):
        notes.append("No cycle: the run has no generator for the other direction.")
    try:
        report.page = html_report.write(folder, title, report.items, notes)
    except OSError as error:
        report.failed.append(printable(f"{folder / 'index.html'} ({error})"))
