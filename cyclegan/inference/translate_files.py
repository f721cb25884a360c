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
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Optional, TypeVar

import numpy as np
import tensorflow as tf
import tqdm

from cyclegan.config.directions import DIRECTIONS
from cyclegan.data import loading
from cyclegan.data.cores import available_cores
from cyclegan.errors import MissingPackageError, UserError, printable
from cyclegan.images import color, dicom_writer, geometry, reader, writer
from cyclegan.images.image import DecodedImage
from cyclegan.images.value_range import image_to_values, to_depth
from cyclegan.inference import conversions, file_plan
from cyclegan.inference.conversions import Path, Size
from cyclegan.inference.file_plan import PAGE_FOLDER, FileTask
from cyclegan.inference.model import Model, load_on_devices
from cyclegan.run import html_report

MAX_PIXELS = 50_000_000  # of all images in memory at the same time, unless one batch has more
MAX_INSPECTED = 64  # files that are inspected before they are needed
MAX_SIDE = 512  # longer side of an image of the page in pixels
OPPOSITE = {"x2y": "y2x", "y2x": "x2y"}

Shape = Optional[tuple[int, int, bool]]  # height and width in pixels, whether it has 16 bits; `None` if unreadable
T = TypeVar("T")
R = TypeVar("R")


@dataclasses.dataclass
class Outcome:
    """Outcome of one file.

    Attributes:
        task: The file.
        failed: Reason why the file was not translated, or empty.
        unshown: Reason why a translated file is not on the page, or empty.
        item: Item of the file on the page.
        tiled: Whether the image was too large to be translated at once.
        cut: Whether the file has frames or pages after the first, which are not translated.
    """

    task: FileTask
    failed: str = ""
    unshown: str = ""
    item: html_report.Item | None = None
    tiled: bool = False
    cut: bool = False

    @contextlib.contextmanager
    def catch(self, reason: Literal["failed", "unshown"] = "failed") -> Iterator[None]:
        """Turn an error inside the context into a reason, so that one file does not stop the others."""
        try:
            yield
        except MissingPackageError:
            raise
        except Exception as error:  # Pillow's decoders raise almost any exception on a damaged file
            text = loading.describe_error(error)
            if isinstance(error, tf.errors.ResourceExhaustedError):
                text = "the device does not have enough memory for it; try a smaller --tile or --size"
            setattr(self, reason, printable(f"{self.task.source} ({text})"))


@dataclasses.dataclass
class Report:
    """Outcome of a translation of files.

    Attributes:
        done: Number of files that were written.
        failed: Description of each file that was not written.
        unshown: Description of each written file that is not on the page, and of a page that could not be written.
        tiled: Number of images that were too large to be translated at once.
        cut: Number of files with several frames or pages; only the first frame or page was translated.
        skipped: Number of files that existed before.
        seconds: Duration.
        page: Path of the page, if there is one.
    """

    done: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    unshown: list[str] = dataclasses.field(default_factory=list)
    tiled: int = 0
    cut: int = 0
    skipped: int = 0
    seconds: float = 0.0
    page: pathlib.Path | None = None


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
    checkpoint: str | None = None,
    skip_existing: bool = False,
) -> Report:
    """Translate image files.

    Args:
        run: Folder of a run, whose generators run on all GPUs; or a `Model`; or a list of models, one for each device.
        source: File, or folder (its images, also in subfolders), or pattern of `glob` (`**` for any folders).
        target: Folder; or a file if `source` is one. Names and subfolders are the same as in `source`.
        direction: "x2y" or "y2x".
        size: (width, height) in pixels to resize images to first; by default each keeps its size.
        format: One of `writer.FORMATS`; by default the format of each original's name.
        overwrite: Whether existing files are replaced.
        batch_size: Number of images of one size to translate together, if they are small enough.
        html: Whether to write a page that shows the results. If the run has both directions, each image is then translated
            back, too.
        bars: Whether to show a progress bar.
        checkpoint: Name of a checkpoint, if `run` is a folder; by default the newest that can be read.
        skip_existing: Whether to leave existing files and translate the others, as after a stop.

    Returns:
        The report. It names each file that cannot be read or written; the other files are translated.

    Raises:
        UserError: There are no images, or files to write exist, or two have the same name, or their format does not support the
            result; nothing was written.
    """
    began = time.perf_counter()
    _check_options(direction, batch_size, size, overwrite, html, skip_existing)
    planned, folder = file_plan.plan_tasks(os.fspath(source), os.fspath(target), format)
    tasks = [task for task in planned if not (skip_existing and os.path.lexists(task.target))]
    if not overwrite:
        page = [folder / "index.html", folder / PAGE_FOLDER] if html else []
        file_plan.refuse_existing([*(task.target for task in tasks), *page])
    if not isinstance(run, (Model, list)):
        run = load_on_devices(run, checkpoint)
    models = [run] if isinstance(run, Model) else run
    translator = FileTranslator(models, direction, size, format, folder if html else None)
    file_plan.refuse_formats(tasks, format, models[0].channels(direction)[1], models[0].value_ranges(direction)[1])
    report = Report(skipped=len(planned) - len(tasks))
    items: list[html_report.Item] = []
    title = " to ".join(DIRECTIONS[direction])
    bar = tqdm.tqdm(desc=title, total=len(tasks), unit=" images", disable=not bars or None)
    with bar, _thread_pool(len(models) + available_cores()) as pool:
        inspected = _in_order(pool, translator.inspect, ((1, task) for task in tasks), MAX_INSPECTED)
        batches = make_batches(inspected, batch_size, models[0].tile ** 2)
        for outcomes in _in_order(pool, translator.translate, batches, MAX_PIXELS):
            for outcome in outcomes:
                bar.update()
                report.done += not outcome.failed
                report.failed += filter(None, [outcome.failed])
                report.unshown += filter(None, [outcome.unshown])
                report.tiled += outcome.tiled
                report.cut += outcome.cut
                items += filter(None, [outcome.item])
    report.seconds = time.perf_counter() - began
    if html:
        _write_page(report, folder, title, items, models[0])
    return report


def _check_options(
    direction: str, batch_size: int, size: Size | None, overwrite: bool, html: bool, skip_existing: bool
) -> None:
    if direction not in DIRECTIONS or batch_size < 1:
        raise UserError(
            f"direction {direction!r}, batch_size {batch_size!r}: expected x2y or y2x, and at least 1 image"
        )
    if skip_existing and (overwrite or html):
        other = "--overwrite" if overwrite else "--html, whose page would lack the skipped images"
        raise UserError(f"--skip_existing with {other}: expected one of them")
    if size is not None:
        conversions.check_size(size)


@contextlib.contextmanager
def _thread_pool(threads: int) -> Iterator[concurrent.futures.Executor]:
    """Provide a pool that cancels the waiting work if an exception is raised, Ctrl-C included."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _in_order(
    pool: concurrent.futures.Executor, function: Callable[[T], R], items: Iterable[tuple[int, T]], limit: int
) -> Iterator[R]:
    """Apply a function to items in a pool, and yield the results in order.

    Args:
        pool: The pool.
        function: The function.
        items: (weight, argument of the function).
        limit: Sum of the weights of the items whose results are not yielded yet, unless a single item weighs more.
    """
    waiting: collections.deque[tuple[int, concurrent.futures.Future[R]]] = collections.deque()
    for weight, item in items:
        while waiting and (waiting[0][1].done() or sum(part[0] for part in waiting) + weight > limit):
            yield waiting.popleft()[1].result()
        waiting.append((weight, pool.submit(function, item)))
    while waiting:
        yield waiting.popleft()[1].result()


def make_batches(
    inspected: Iterable[tuple[Shape, int, FileTask]], batch_size: int, max_pixels: int
) -> Iterator[tuple[int, list[FileTask]]]:
    """Group consecutive files of the same shape, and yield each group as soon as it is full.

    Args:
        inspected: (shape of the image to translate, number of pixels of the file, file), see `FileTranslator.inspect`.
        batch_size: Maximum number of files of a batch.
        max_pixels: Maximum number of pixels of a batch, if it has several files.

    Yields:
        (number of pixels in memory at the same time, files).
    """
    for shape, group in itertools.groupby(inspected, key=lambda one: one[0]):
        area = shape[0] * shape[1] if shape else max_pixels
        while batch := list(itertools.islice(group, max(1, min(batch_size, max_pixels // area)))):
            _, decoded, tasks = zip(*batch)
            yield max(*decoded, len(tasks) * area), list(tasks)


class FileTranslator:
    """Read, translate and write batches of files with models that several threads share.

    Args:
        models: A model for each device.
        direction: "x2y" or "y2x".
        size: (width, height) in pixels to resize images to first; `None` keeps their sizes.
        format: Format to write; `None` for the format of each target's name.
        page_folder: Folder of the page that shows the translations; `None` for no page.

    Raises:
        UserError: The run has no generator of this direction.
    """

    def __init__(
        self,
        models: Sequence[Model],
        direction: Literal["x2y", "y2x"],
        size: Size | None,
        format: str | None,
        page_folder: pathlib.Path | None,
    ) -> None:
        model = models[0]
        model.generator(direction)
        self._direction, self._size, self._format, self._page_folder = direction, size, format, page_folder
        self._channels, self._ranges = model.channels(direction)[0], model.value_ranges(direction)
        self._max_pixels = model.tile**2
        self._goes_back = page_folder is not None and OPPOSITE[direction] in model.generators
        self._derivation = (
            f"{model.config.objective.objective} {direction}, {model.path.resolve().name}, {model.checkpoint.name}"
        )
        self._network = f"{direction} of {model.checkpoint.resolve()}"
        self._models: queue.Queue[Model] = queue.Queue()
        for model in models:
            self._models.put(model)

    def inspect(self, task: FileTask) -> tuple[Shape, int, FileTask]:
        """Read the header of a file; return the shape of the image to translate, the pixels of the file, and the file."""
        try:
            facts = reader.check(task.source, self._channels, bool(self._ranges[0]))
        except Exception:  # `translate` reports it
            return None, 0, task
        height, width = self._size[::-1] if self._size else (facts.height, facts.width)
        return (height, width, facts.deep or any(self._ranges)), facts.height * facts.width, task

    def translate(self, tasks: Sequence[FileTask]) -> list[Outcome]:
        """Read, translate and write files whose images have the same shape."""
        outcomes = [Outcome(task) for task in tasks]
        originals: list[tuple[Outcome, DecodedImage]] = []
        for outcome in outcomes:
            with outcome.catch():
                decoded = conversions.read(outcome.task.source, self._channels, self._ranges)
                originals.append((outcome, conversions.resize(decoded, self._size)))
        if originals:
            self._translate_and_write(originals)
        return outcomes

    def _translate_and_write(self, originals: Sequence[tuple[Outcome, DecodedImage]]) -> None:
        """Translate images together or, if that fails, one by one; write them."""
        pixels = np.stack([image.pixels for _, image in originals])
        if len(originals) == 1:
            ((outcome, image),) = originals
            with outcome.catch():
                (output,), (cycle,) = self._translate_and_back(pixels)
                self._write(outcome, image, output, cycle)
            return
        try:
            outputs, cycles = self._translate_and_back(pixels)
        except Exception:  # of one of the images, or too little memory for all
            for original in originals:
                self._translate_and_write([original])
            return
        for (outcome, image), output, cycle in zip(originals, outputs, cycles):
            with outcome.catch():
                self._write(outcome, image, output, cycle)

    def _translate_and_back(self, images: np.ndarray) -> tuple[np.ndarray, Sequence[np.ndarray | None]]:
        """Return the translations and, for the page, the translations back."""
        model = self._models.get()
        try:
            outputs = model.translate(self._direction, images)
            if self._goes_back:
                return outputs, list(model.translate(OPPOSITE[self._direction], outputs))
            return outputs, [None] * len(outputs)
        finally:
            self._models.put(model)

    def _write(self, outcome: Outcome, original: DecodedImage, output: np.ndarray, cycle: np.ndarray | None) -> None:
        task = outcome.task
        self._write_file(task, conversions.with_pixels(original, output))
        height, width = output.shape[:2]
        outcome.tiled, outcome.cut = height * width > self._max_pixels, reader.has_more_frames(task.source)
        if self._page_folder:
            with outcome.catch("unshown"):
                images = {"input": original.pixels, "output": output, **({} if cycle is None else {"cycle": cycle})}
                outcome.item = _write_item(self._page_folder, task, self._direction, images)

    def _write_file(self, task: FileTask, image: DecodedImage) -> None:
        """Write a translation with the values of the range of its domain."""
        format, value_range = self._format or writer.format_of(task.target), self._ranges[1]
        if format == "dicom":
            with writer.partial_file(task.target) as path:
                dicom_writer.write_copy(
                    path, task.source, image.pixels, value_range, image.fractional, self._derivation, self._network
                )
            return
        if value_range:
            image = image_to_values(image, value_range, image.fractional and format == "tiff")
        writer.write(task.target, image, self._format)


def _write_item(
    folder: pathlib.Path, task: FileTask, direction: str, images: dict[str, np.ndarray]
) -> html_report.Item:
    """Write small copies of "input", "output" and "cycle" for the page; return the item of the page."""
    paths = {kind: f"{PAGE_FOLDER}/{task.number:06d}_{kind}.png" for kind in images}
    for kind, path in paths.items():
        writer.write(folder / path, DecodedImage(make_thumbnail(images[kind])), "png")
    original, scores = images["input"], {}
    for name, kind in (("cycle error", "cycle"), ("change", "output")):
        if kind in images and images[kind].shape == original.shape:
            difference = np.abs(original.astype(np.float32) - images[kind]).mean()
            scores[name] = float(difference * (255 / np.iinfo(original.dtype).max))  # in gray levels of 8 bits
    frame = html_report.Frame(paths["output"], paths.get("cycle", ""), scores)
    return html_report.Item(task.name, " → ".join(DIRECTIONS[direction]), paths["input"], [frame])


def make_thumbnail(pixels: np.ndarray) -> np.ndarray:
    """Return a copy for the page: uint8 [h, w, 1 or 3], its longer side at most `MAX_SIDE` pixels."""
    pixels = color.visible(pixels)
    shrink = min(1.0, MAX_SIDE / max(pixels.shape[:2]))
    height, width = (max(1, round(side * shrink)) for side in pixels.shape[:2])
    return to_depth(geometry.resize(pixels, (height, width)), np.uint8)


def _write_page(
    report: Report, folder: pathlib.Path, title: str, items: Sequence[html_report.Item], model: Model
) -> None:
    notes = [f"{model.checkpoint}, after {model.train_state.epoch} epochs"]
    if len(model.generators) < len(DIRECTIONS):
        notes.append("No cycle: the run has no generator for the other direction.")
    try:
        report.page = html_report.write(folder, title, items, notes)
    except OSError as error:
        report.unshown.append(printable(f"{folder / 'index.html'} ({error})"))
