"""Reading, translation and writing of files, on all devices."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import math
import pathlib
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Optional, TypeVar

import numpy as np
import tensorflow as tf

from cyclegan import terminal
from cyclegan.config.sections import DIRECTIONS
from cyclegan.data import folder_source, loading
from cyclegan.data.loading import available_cores
from cyclegan.errors import printable
from cyclegan.images import formats, geometry, reader
from cyclegan.images.film_format import FilmWriter, open_film
from cyclegan.images.image import DecodedImage, ImageError, Metadata, convert_bands, visible
from cyclegan.images.reader import Slice, Source
from cyclegan.images.value_range import image_to_values, restore_nodata, to_depth
from cyclegan.inference import conversions
from cyclegan.inference.conversions import Size
from cyclegan.inference.model import Model
from cyclegan.run import html_report

PAGE_FOLDER = "index_files"  # folder of the images of the page, beside index.html
MAX_PIXELS = 50_000_000  # of all images in memory at the same time, unless one batch has more
STACK_SHARE = 4  # times as many pixels may lie in volumes that are unpacked; see `reader.MAX_KEPT_BYTES`
MAX_SIDE = 512  # longer side of an image of the page in pixels

# Height and width in pixels, whether it has 16 bits, the number of a file of several images; `None` if unreadable.
Shape = Optional[tuple[int, int, bool, int]]
Frames = list[tuple[int, np.ndarray]]  # of a film, with their times
Shown = tuple[DecodedImage, np.ndarray, Optional[np.ndarray]]  # original, translation and cycle image
T = TypeVar("T")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class FileTask:
    """A file to translate."""

    number: int  # from 1
    name: str  # path relative to the folder or pattern
    source: str
    target: pathlib.Path
    images: int = 0  # of the source: pages, slices or frames; 0 if their number is not known
    mask: folder_source.Name | None = None  # path of the mask


@dataclasses.dataclass(frozen=True)
class Request:
    """How files are translated; see `translate_files.translate`.

    Attributes:
        page: Folder of the page; `None` without one.
        stacks: "all" to translate all images of each file. NIfTI files are always translated completely.
        slice_axis: Axis along which the slices of volumes lie; `None` for the usual one.
    """

    direction: str
    size: Size | None
    format: str | None
    batch_size: int
    page: pathlib.Path | None
    strip_metadata: bool
    nodata: float | None
    stacks: str
    slice_axis: int | None


@dataclasses.dataclass
class Report:
    """Outcome of a translation of files."""

    done: int = 0  # files that were written
    images: int = 0  # pages, slices and frames in them
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
        self.images += part.images
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


def _in_order(
    pool: concurrent.futures.Executor, translate: Callable[[T], R], batches: Iterable[tuple[int, T]]
) -> Iterator[R]:
    """Translate batches, (pixels, batch), in a pool with at most `MAX_PIXELS` in memory; yield the results in order."""
    waiting: collections.deque[tuple[int, concurrent.futures.Future[R]]] = collections.deque()
    for pixels, batch in batches:
        while waiting and (waiting[0][1].done() or sum(part[0] for part in waiting) + pixels > MAX_PIXELS):
            yield waiting.popleft()[1].result()
        waiting.append((pixels, pool.submit(translate, batch)))
    for _, result in waiting:
        yield result.result()


def make_batches(
    inspected: Iterable[tuple[Shape, int, FileTask]], batch_size: int, max_pixels: int
) -> Iterator[tuple[int, list[FileTask]]]:
    """Group consecutive files of the same shape, see `FileTranslator.inspect`; yield (pixels in memory, files).

    A group has at most `batch_size` files and, if it has several, at most `max_pixels` pixels.
    """
    for shape, group in itertools.groupby(inspected, key=lambda one: one[0]):
        area = shape[0] * shape[1] if shape else max_pixels
        while batch := list(itertools.islice(group, max(1, min(batch_size, max_pixels // area)))):
            _, decoded, tasks = zip(*batch)
            yield max(*decoded, len(tasks) * area), list(tasks)


class FileTranslator:
    """Read, translate and write batches of files with models, one for each device, that several threads share."""

    def __init__(self, models: Sequence[Model], request: Request) -> None:
        self._model, self._request = models[0], request
        self._channels = models[0].channels(request.direction)[0]
        self._ranges = models[0].value_ranges(request.direction)
        self._bar = terminal.progress_bar(False)  # shows how many images of a file are done
        self._idle: queue.Queue[Model] = queue.Queue()
        for model in models:
            self._idle.put(model)

    def run(self, tasks: Sequence[FileTask], report: Report, bars: bool) -> None:
        """Translate files, and add what becomes of them to a report; show a progress bar if `bars` is true."""
        images, films = (
            [task for task in tasks if formats.is_film(task.source) == is_film] for is_film in (False, True)
        )
        title, total = " to ".join(DIRECTIONS[self._request.direction]), len(images) + len(report.failed)
        pool = concurrent.futures.ThreadPoolExecutor(self._idle.qsize() + available_cores())
        try:
            visible = bars and bool(images)
            with terminal.progress_bar(visible, desc=title, total=total, unit=" images") as bar:
                batches = make_batches(map(self.inspect, images), self._request.batch_size, self._model.tile**2)
                self._bar = bar
                for part in _in_order(pool, self.translate, batches):
                    report.add(part)
                    bar.update(report.done + len(report.failed) - bar.n)
            for task in films:
                self.translate_film(report, task, pool, bars)
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C, files that are being translated are completed
            reader.close_files()

    def inspect(self, task: FileTask) -> tuple[Shape, int, FileTask]:
        """Read the header of a file.

        Returns:
            Shape of its translated images, for `make_batches`; pixels in memory while it is translated; and the task
            with the number of its images. Without a shape if the file cannot be read, which `translate` reports.
        """
        axis = self._request.slice_axis
        try:
            by_rows = self._may_read_rows(task)
            task = dataclasses.replace(task, images=reader.count(task.source, self._channels, axis, by_rows))
            source = Slice(task.source, 0, axis) if self._is_stack(task) else task.source
            facts = reader.check(source, self._channels, bool(self._ranges[0]), by_rows)
        except Exception:  # of any decoder; `translate` meets it again and reports it
            return None, 0, task
        height, width = self._request.size[::-1] if self._request.size else (facts.height, facts.width)
        alone, pixels = 0, facts.height * facts.width
        if self._is_stack(task):  # so many files are read at a time that all of them are kept, if they are unpacked
            alone, pixels = task.number, pixels * max(1, task.images // STACK_SHARE)
        return (height, width, facts.deep or any(self._ranges), alone), pixels, task

    def _format_of(self, task: FileTask) -> str:
        return self._request.format or formats.format_of(task.target) or ""

    def _is_stack(self, task: FileTask) -> bool:
        """Return whether all images of a file are translated, into one file."""
        is_volume = formats.FORMATS[self._format_of(task)].is_volume
        return is_volume or (self._request.stacks == "all" and task.images != 1)

    def translate(self, tasks: Sequence[FileTask]) -> Report:
        """Read, translate and write files whose images have the same shape."""
        report, originals = Report(), {}
        if self._is_stack(tasks[0]):
            with report.catch(tasks[0]):
                self._translate_stack(report, tasks[0])
            return report
        masks: dict[FileTask, np.ndarray | None] = {}
        for task in tasks:
            with report.catch(task):
                if not (self._may_read_rows(task) and self._translate_rows(report, task)):
                    originals[task], masks[task] = self._read(task.source, task.mask)
        try:
            results = self._generate([(image.pixels, masks.get(task)) for task, image in originals.items()])
        except Exception:  # such as too little memory: one by one
            results = None
        for number, (task, original) in enumerate(originals.items()):
            with report.catch(task):
                result = results[number] if results else self._generate([(original.pixels, masks.get(task))])[0]
                self._write(report, task, original, *result)
        return report

    def _translate_stack(self, report: Report, task: FileTask) -> None:
        """Translate all images of a file, some at a time, into a file of as many."""
        axis = self._request.slice_axis
        count = reader.count(task.source, self._channels, axis)
        if task.mask and (number := reader.count(f"{task.mask}", 1, axis)) != count:
            raise ImageError(f"{count} images, but its mask has {number}: expected equal numbers")
        slices = [
            (Slice(task.source, number, axis), Slice(f"{task.mask}", number, axis) if task.mask else None)
            for number in range(count)
        ]
        first = self._read(*slices[0])[0].pixels
        area = first.shape[0] * first.shape[1]
        size = max(1, min(self._request.batch_size, self._model.tile**2 // area))
        with contextlib.ExitStack() as stack:
            for start in range(0, count, size):
                originals = [self._read(*each) for each in slices[start : start + size]]
                if any((each.pixels.shape, each.pixels.dtype) != (first.shape, first.dtype) for each, _ in originals):
                    raise ImageError("its images differ in size or depth: expected equal ones, or --stacks first")
                results = self._generate([(each.pixels, mask) for each, mask in originals])
                for number, ((original, _), (output, cycle)) in enumerate(zip(originals, results), start):
                    image = self._to_values(task, original, output)
                    if number == 0:
                        shape, dtype = (count, *image.pixels.shape), image.pixels.dtype
                        put = stack.enter_context(
                            formats.create_stack(
                                task.target, task.source, axis, shape, dtype, image.metadata, self._request.format
                            )
                        )
                    put(number, image.pixels)
                    if number == count // 2:
                        shown = original, output, cycle
                self._bar.set_postfix_str(f"{printable(task.name)}: {min(start + size, count)} of {count}")
        self._report(report, task, area, shown, count)

    def _read(self, source: Source, mask: Source | None) -> tuple[DecodedImage, np.ndarray | None]:
        """Return an image and its mask, bool [h, w, 1], in the size of the translation."""
        decoded = conversions.read(source, self._channels, self._ranges, self._request.nodata)
        original = conversions.resize(decoded, self._request.size)
        shapes = decoded.pixels.shape, original.pixels.shape
        return original, None if mask is None else _read_mask(mask, *shapes)

    def translate_film(self, report: Report, task: FileTask, pool: concurrent.futures.Executor, bars: bool) -> None:
        """Read, translate and write a film, with few frames in memory. The page shows its first frame."""
        with report.catch(task):
            if task.mask:
                raise ImageError("a film has no mask: expected images")
            with (
                formats.partial_file(task.target) as path,
                open_film(task.source) as film,
                FilmWriter(path, task.target.suffix.lower(), film, self._request.strip_metadata) as writer,
                terminal.progress_bar(bars, desc=printable(task.name), total=len(film) or None, unit=" frames") as bar,
            ):
                frames, area = film.frames(writer.add_sound), math.prod(self._request.size or film.size)
                count = max(1, min(self._request.batch_size, self._model.tile**2 // area))

                def batches() -> Iterator[tuple[int, Frames]]:
                    while batch := [(time, film.pixels(frame)) for time, frame in itertools.islice(frames, count)]:
                        yield len(batch) * area, batch

                for translated in _in_order(pool, self._translate_frames, batches()):
                    for time, pixels in translated:
                        writer.write(pixels, time)
                    bar.update(len(translated))
            shown = None
            if self._request.page:
                first, _ = self._read(task.source, None)
                shown = (first, *self._generate([(first.pixels, None)])[0])
            self._report(report, task, area, shown, writer.frames)

    def _translate_frames(self, frames: Frames) -> Frames:
        """Translate frames of a film, uint8 [h, w, 3], into the same."""
        images = [DecodedImage(convert_bands(pixels, self._channels, has_opacity=False)[0]) for _, pixels in frames]
        images = [
            conversions.resize(conversions.to_network(image, self._ranges), self._request.size) for image in images
        ]
        outputs = [
            to_depth(output, np.uint8)
            for output, _ in self._generate([(image.pixels, None) for image in images], cycles=False)
        ]
        return [(time, output.repeat(3 // output.shape[2], axis=2)) for (time, _), output in zip(frames, outputs)]

    def _may_read_rows(self, task: FileTask) -> bool:
        return (
            self._request.size is None
            and self._request.page is None
            and not task.mask
            and formats.FORMATS[self._format_of(task)].write_rows is not None
        )

    def _translate_rows(self, report: Report, task: FileTask) -> bool:
        """Translate a file row by row; return whether it is one for this."""
        with reader.open_rows(task.source, self._channels, bool(self._ranges[0]), self._request.nodata) as image:
            if image is None:
                return False
            model = self._idle.get()
            try:
                rows = self._make_rows(model, task, image)
                formats.write_rows(task.target, image.header.height, rows, self._request.format)
            finally:
                self._idle.put(model)
            report.done, report.images, report.tiled = report.done + 1, report.images + 1, report.tiled + 1
            report.cut += task.images > 1
        return True

    def _make_rows(self, model: Model, task: FileTask, image: reader.RowImage) -> Iterator[DecodedImage]:
        """Yield the rows of the translation of a file, from top to bottom."""

        def read(rows: slice) -> DecodedImage:
            return conversions.to_network(image.read(rows), self._ranges)

        top = 0
        size = image.header.height, image.header.width
        for output in model.translate_rows(self._request.direction, lambda rows: read(rows).pixels, size):
            yield self._to_values(task, read(slice(top, top + len(output))), output)
            top += len(output)

    def _generate(
        self, originals: Sequence[tuple[np.ndarray, np.ndarray | None]], cycles: bool = True
    ) -> list[tuple[np.ndarray, np.ndarray | None]]:
        """Return the translation and, for a page, the cycle image of each (image, mask), with a model that is idle."""
        images, masks = zip(*originals)
        model, back = self._idle.get(), self._request.direction[::-1]

        def translate(direction: str, batch: np.ndarray) -> np.ndarray:
            outputs = model.translate(direction, batch)
            return outputs if masks[0] is None else np.where(np.stack(masks), outputs, batch)

        try:
            outputs = translate(self._request.direction, np.stack(images))
            has_cycles = cycles and self._request.page is not None and back in model.generators
            return list(zip(outputs, translate(back, outputs) if has_cycles else [None] * len(images)))
        finally:
            self._idle.put(model)

    def _to_values(self, task: FileTask, original: DecodedImage, output: np.ndarray) -> DecodedImage:
        """Return a translation with the values of the range of its domain, and the metadata of its original."""
        image, value_range = conversions.with_pixels(original, output), self._ranges[1]
        if self._request.strip_metadata:
            kept = Metadata(image.metadata.profile, nodata=image.metadata.nodata, array=image.metadata.array)
            image = dataclasses.replace(image, metadata=kept)
        any_values = formats.FORMATS[self._format_of(task)].any_values
        if value_range:
            image = image_to_values(image, value_range, floats=any_values)
        return restore_nodata(image) if any_values else image

    def _write(
        self, report: Report, task: FileTask, original: DecodedImage, output: np.ndarray, cycle: np.ndarray | None
    ) -> None:
        """Write a translation, and its copies for the page."""
        if write_copy := formats.FORMATS[self._format_of(task)].copy:
            run, checkpoint = self._model.path.resolve().name, self._model.checkpoint
            note = f"{self._model.config.objective.objective} {self._request.direction}, {run}, {checkpoint.name}"
            network = f"{self._request.direction} of {checkpoint.resolve()}"
            image = conversions.with_pixels(original, output)
            with formats.partial_file(task.target) as path:
                write_copy(path, task.source, image.pixels, self._ranges[1], image.fractional, note, network)
        else:
            formats.write(task.target, self._to_values(task, original, output), self._request.format)
        self._report(report, task, output.shape[0] * output.shape[1], (original, output, cycle))
        report.cut += task.images > 1

    def _report(self, report: Report, task: FileTask, area: int, shown: Shown | None, count: int = 1) -> None:
        """Count a file with its images of `area` pixels, one of which is shown on the page."""
        if self._request.page and shown:
            original, output, cycle = shown
            images = {"input": original.pixels, "output": output, **({} if cycle is None else {"cycle": cycle})}
            try:
                report.items.append(_write_item(self._request.page, task, self._request.direction, images))
            except OSError as error:
                raise OSError(f"translated, but not shown on the page: {error}") from error
        report.done, report.images = report.done + 1, report.images + count
        report.tiled += area > self._model.tile**2


def _read_mask(source: Source, original: Sequence[int], resized: Sequence[int]) -> np.ndarray:
    """Read the mask of an image of the shape `original`: bool [h, w, 1], resized like the image."""
    with loading.naming_image(source, "", 0):
        mask = reader.decode_mask(source)
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
