"""Reading, translation and writing of files, on all devices."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import pathlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Optional, TypeVar

import numpy as np

from cyclegan import terminal
from cyclegan.config.sections import DIRECTIONS
from cyclegan.data import folder_source, loading
from cyclegan.data.loading import available_cores
from cyclegan.distribution import hardware
from cyclegan.errors import printable
from cyclegan.images import formats, geometry, reader, tiff_format
from cyclegan.images.film_format import FilmWriter, open_film
from cyclegan.images.image import Bands, DecodedImage, ImageError, Metadata, TooLargeError, convert, visible
from cyclegan.images.reader import Slice, Source
from cyclegan.images.value_range import image_to_values, restore_nodata, to_depth
from cyclegan.inference import conversions
from cyclegan.inference.conversions import Size
from cyclegan.lazy_tensorflow import tf
from cyclegan.run import html_report

if TYPE_CHECKING:
    from cyclegan.inference.model import Model

PAGE_FOLDER = "index_files"  # folder of the images of the page, beside index.html
MAX_PIXELS = 50_000_000  # of all images in memory at the same time, unless one batch has more
STACK_SHARE = 4  # times as many pixels may lie in volumes that are unpacked; see `reader.MAX_KEPT_BYTES`
MAX_SIDE = 512  # longer side of an image of the page in pixels
COPIES = 5  # of an image and its translation, in memory at the same time, at most
NETWORK_BYTES = 16  # for each filter of a generator and each pixel of a tile, on a CPU; measured
LARGER = "larger images can be translated from TIFF to TIFF files without --size, --masks and --html"

# Height and width in pixels, whether it has 16 bits, the number of a file of several images; `None` if unreadable.
Shape = Optional[tuple[int, int, bool, int]]
Frames = list[tuple[int, np.ndarray]]  # of a film, with their times
Pair = tuple[DecodedImage, Optional[np.ndarray]]  # an image and its mask, bool [h, w, 1]
Result = tuple[np.ndarray, Optional[np.ndarray]]  # a translation and, for the page, the cycle image
T = TypeVar("T")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class FileTask:
    """A file to translate."""

    number: int  # from 1
    name: str  # path relative to the folder or pattern
    source: str
    target: pathlib.Path
    format: str  # to write, a key of `formats.FORMATS`
    images: int = 0  # of the source: pages, slices or frames; 0 if their number is not known
    mask: folder_source.Name | None = None  # path of the mask
    partial: bool = False  # whether only some channels of the source are used
    failure: Exception | None = None  # why the file cannot be translated

    @property
    def is_film(self) -> bool:
        """Whether the source is a film."""
        return formats.is_film(self.source)


@dataclasses.dataclass(frozen=True)
class Request:
    """How files are translated: arguments of `translate_files.translate`, of which None stands for those of the run."""

    direction: str = "x2y"
    size: Size | None = None
    format: str | None = None
    overwrite: bool = False
    batch_size: int = 8
    html: bool = False
    skip_existing: bool = False
    strip_metadata: bool = False
    stacks: str | None = None
    slice_axis: int | None = None
    nodata: float | None = None
    masks: conversions.Path | None = None


@dataclasses.dataclass
class Report:
    """Outcome of a translation of files."""

    done: int = 0  # files that were written
    images: int = 0  # pages, slices and frames in them
    failed: list[str] = dataclasses.field(default_factory=list)  # descriptions of files not written or not on the page
    tiled: int = 0  # images that were too large to be translated at once
    cut: int = 0  # files with several frames or pages, of which only the first was translated
    partial: int = 0  # files of which only some channels were translated
    skipped: int = 0  # files that existed before
    seconds: float = 0.0
    page: pathlib.Path | None = None
    items: list[html_report.Item] = dataclasses.field(default_factory=list, repr=False)  # of the page

    def add(self, part: Report) -> None:
        """Add the report of some of the files."""
        for name in ("done", "images", "failed", "tiled", "cut", "partial", "items"):
            setattr(self, name, getattr(self, name) + getattr(part, name))

    @contextlib.contextmanager
    def catch(self, task: FileTask) -> Iterator[None]:
        """Describe an error inside the context in `failed`, so that one file does not stop the others."""
        try:
            yield
        except Exception as error:  # Pillow's decoders raise almost any exception on a damaged file
            reason = loading.describe_error(error)
            if isinstance(error, OSError) and error.strerror:
                reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
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
    """Read, translate and write batches of files with models, one for each device, that several threads share.

    Args:
        models: The models.
        request: How files are translated, without None for what the run has.
        page: Folder of the page; `None` without one.
    """

    def __init__(self, models: Sequence[Model], request: Request, page: pathlib.Path | None = None) -> None:
        self._model, self._request, self._page = models[0], request, page
        self._channels = models[0].channels(request.direction)[0]
        self._ranges = models[0].value_ranges(request.direction)
        self._bar = terminal.progress_bar(False)  # shows how much of a file is done
        self._stopped = threading.Event()
        self._idle: queue.Queue[Model] = queue.Queue()
        for model in models:
            self._idle.put(model)

    def run(self, tasks: Sequence[FileTask], report: Report, bars: bool) -> None:
        """Translate files, and add what becomes of them to a report; show a progress bar if `bars` is true."""
        images = [task for task in tasks if not task.is_film]
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
            for task in tasks:
                if task.is_film:
                    self.translate_film(report, task, pool, bars)
        finally:  # after Ctrl-C, images that are being translated end at the next tile
            self._stopped.set()
            pool.shutdown(cancel_futures=True)
            reader.close_files()

    def _progress(self, task: FileTask, text: str) -> None:
        """Show how much of a file is done; after Ctrl-C, end its translation."""
        if self._stopped.is_set():
            raise KeyboardInterrupt
        self._bar.set_postfix_str(f"{printable(task.name)}: {text}")

    def inspect(self, task: FileTask) -> tuple[Shape, int, FileTask]:
        """Read the header of a file.

        Returns:
            Shape of its translated images, for `make_batches`; pixels in memory while it is translated; and the task
            with the number of its images. Without a shape, but with the error, if the file cannot be translated.
        """
        axis, by_rows = self._request.slice_axis, self._may_read_rows(task)
        try:
            task = dataclasses.replace(task, images=reader.count(task.source, self._channels, axis))
            source = Slice(task.source, 0, axis) if self._is_stack(task) else task.source
            facts = reader.check(source, self._channels, bool(self._ranges[0]), by_rows)
            height, width = self._request.size[::-1] if self._request.size else (facts.height, facts.width)
            task = dataclasses.replace(task, partial=facts.partial_of > 0)
            deep = facts.deep or any(self._ranges)
            if not (by_rows and height * width > tiff_format.LARGE_PIXELS):
                self._check_memory(height * width, deep)
        except TooLargeError as error:
            return None, 0, dataclasses.replace(task, failure=ImageError(f"{error}; {LARGER}"))
        except Exception as error:  # of any decoder
            return None, 0, dataclasses.replace(task, failure=error)
        alone, pixels = 0, facts.height * facts.width
        if self._is_stack(task):  # so many files are read at a time that all of them are kept, if they are unpacked
            alone, pixels = task.number, pixels * max(1, task.images // STACK_SHARE)
        return (height, width, deep, alone), pixels, task

    def _check_memory(self, area: int, deep: bool) -> None:
        """Raise `ImageError` if an image of so many pixels and its translation do not fit into the free memory."""
        model, direction = self._model, self._request.direction
        needed = area * sum(model.channels(direction)) * (1 + deep) * COPIES
        if not hardware.has_accelerator():
            needed += min(area, model.tile**2) * model.config.networks.filters * NETWORK_BYTES
        if needed > (free := loading.free_bytes()):
            raise TooLargeError(
                f"its translation takes about {needed / 1e9:.1f} GB of memory, but {free / 1e9:.1f} GB are free:"
                " expected a smaller --tile or --size"
            )

    def _is_stack(self, task: FileTask) -> bool:
        """Return whether all images of a file are translated, into one file."""
        is_volume = formats.FORMATS[task.format].is_volume
        return is_volume or (self._request.stacks == "all" and task.images != 1)

    def translate(self, tasks: Sequence[FileTask]) -> Report:
        """Read, translate and write files whose images have the same shape."""
        report, images = Report(), {}
        for task in tasks:
            with report.catch(task):
                if task.failure:
                    raise task.failure
                if self._is_stack(task):
                    self._translate_stack(report, task)
                elif not (self._may_read_rows(task) and self._translate_rows(report, task)):
                    images[task] = self._read(task.source, task.mask)
        try:
            results = self._generate(tasks[0], [*images.values()])
        except Exception:  # such as too little memory: one by one
            results = []
        for (task, image), result in itertools.zip_longest(images.items(), results):
            with report.catch(task):
                self._write(report, task, image, *(result or self._generate(task, [image])[0]))
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
        size = self._batch_size(area)
        with contextlib.ExitStack() as stack:
            for start in range(0, count, size):
                self._progress(task, f"{start} of {count}")
                images = [self._read(*each) for each in slices[start : start + size]]
                if any((each.pixels.shape, each.pixels.dtype) != (first.shape, first.dtype) for each, _ in images):
                    raise ImageError("its images differ in size or depth: expected equal ones, or --stacks first")
                for number, (image, result) in enumerate(zip(images, self._generate(task, images)), start):
                    made = self._to_values(task, image, result[0], slices[number][0])
                    if number == 0:
                        shape, dtype = (count, *made.pixels.shape), made.pixels.dtype
                        put = stack.enter_context(
                            formats.create_stack(
                                task.target, task.source, axis, shape, dtype, made.metadata, task.format
                            )
                        )
                    put(number, made.pixels)
                    if number == count // 2:
                        shown = image[0], result
        self._report(report, task, area, shown, count)

    def _batch_size(self, area: int) -> int:
        """Return how many images of so many pixels are translated together."""
        return max(1, min(self._request.batch_size, self._model.tile**2 // area))

    def _read(self, source: Source, mask: Source | None) -> Pair:
        """Return an image and its mask in the size of the translation."""
        decoded = conversions.read(source, self._channels, self._ranges, self._request.nodata)
        image = conversions.resize(decoded, self._request.size)
        return image, _read_mask(mask, decoded.pixels.shape, image.pixels.shape) if mask else None

    def translate_film(self, report: Report, task: FileTask, pool: concurrent.futures.Executor, bars: bool) -> None:
        """Read, translate and write a film, with few frames in memory. The page shows its first frame."""
        with (
            report.catch(task),
            terminal.progress_bar(bars, desc=printable(task.name), unit=" frames") as self._bar,
        ):
            first, mask = self._read(task.source, task.mask)
            area = first.pixels.shape[0] * first.pixels.shape[1]
            self._check_memory(area, deep=False)
            with (
                formats.partial_file(task.target) as path,
                open_film(task.source) as film,
                FilmWriter(path, task.target.suffix.lower(), film, self._request.strip_metadata) as writer,
            ):
                self._bar.total = len(film) or None
                frames = film.frames(writer.add_sound)

                def batches() -> Iterator[tuple[int, Frames]]:
                    while batch := [*itertools.islice(frames, self._batch_size(area))]:
                        yield len(batch) * area, [(time, film.pixels(frame)) for time, frame in batch]

                translate = functools.partial(self._translate_frames, task, mask)
                for translated in _in_order(pool, translate, batches()):
                    for time, pixels in translated:
                        writer.write(pixels, time)
                    self._bar.update(len(translated))
            shown = (first, self._generate(task, [(first, mask)])[0]) if self._page else None
            self._report(report, task, area, shown, writer.frames)

    def _translate_frames(self, task: FileTask, mask: np.ndarray | None, frames: Frames) -> Frames:
        """Translate frames of a film, uint8 [h, w, 3], into the same."""
        images = [convert(Bands(pixels), self._channels) for _, pixels in frames]
        images = [
            conversions.resize(conversions.to_network(image, self._ranges), self._request.size) for image in images
        ]
        results = self._generate(task, [(image, mask) for image in images], cycles=False)
        outputs = [to_depth(output, np.uint8) for output, _ in results]
        return [(time, output.repeat(3 // output.shape[2], axis=2)) for (time, _), output in zip(frames, outputs)]

    def _may_read_rows(self, task: FileTask) -> bool:
        can_write = formats.FORMATS[task.format].write_rows is not None
        return can_write and not (self._request.size or self._page or task.mask)

    def _translate_rows(self, report: Report, task: FileTask) -> bool:
        """Translate a file row by row; return whether it is one for this."""
        with reader.open_rows(task.source, self._channels, bool(self._ranges[0]), self._request.nodata) as image:
            if image is None:
                return False
            model = self._idle.get()
            try:
                rows = self._make_rows(model, task, image)
                formats.write_rows(task.target, image.header.height, rows, task.format)
            finally:
                self._idle.put(model)
            self._report(report, task, image.header.height * image.header.width)
        return True

    def _make_rows(self, model: Model, task: FileTask, image: reader.RowImage) -> Iterator[DecodedImage]:
        """Yield the rows of the translation of a file, from top to bottom."""

        def read(rows: slice) -> DecodedImage:
            return conversions.to_network(image.read(rows), self._ranges)

        top = 0
        size, progress = (image.header.height, image.header.width), functools.partial(self._progress, task)
        for output in model.translate_rows(self._request.direction, lambda rows: read(rows).pixels, size, progress):
            yield self._to_values(task, (read(slice(top, top + len(output))), None), output, task.source)
            top += len(output)

    def _generate(self, task: FileTask, images: Sequence[Pair], cycles: bool = True) -> list[Result]:
        """Translate images of a file, or of several if they are small, with a model that is idle."""
        model, back = self._idle.get(), self._request.direction[::-1]

        def translate(direction: str, batch: np.ndarray) -> np.ndarray:
            outputs = model.translate(direction, batch, functools.partial(self._progress, task))
            return outputs if masks[0] is None else np.where(np.stack(masks), outputs, batch)

        try:
            originals, masks = zip(*images)
            outputs = translate(self._request.direction, np.stack([image.pixels for image in originals]))
            has_cycles = cycles and self._page and back in model.generators
            return list(zip(outputs, translate(back, outputs) if has_cycles else [None] * len(images)))
        finally:
            self._idle.put(model)

    def _to_values(self, task: FileTask, image: Pair, output: np.ndarray, source: Source) -> DecodedImage:
        """Return a translation with the values of the range of its domain, and the metadata of its original."""
        original, mask = image
        made, value_range = conversions.with_pixels(original, output), self._ranges[1]
        if self._request.strip_metadata:
            kept = Metadata(made.metadata.profile, nodata=made.metadata.nodata, array=made.metadata.array)
            made = dataclasses.replace(made, metadata=kept)
        form = formats.FORMATS[task.format]
        if value_range:
            made = image_to_values(made, value_range, floats=form.any_values)
        if mask is not None and not self._request.size and self._ranges[0] == value_range:
            has_opacity = made.opacity is not None and form.opacity and not self._is_stack(task)
            values = conversions.read_values(source, self._channels, bool(value_range), has_opacity)
            with np.errstate(over="ignore", invalid="ignore"):
                outside = values.astype(made.pixels.dtype)
            is_held = (outside == values) | np.issubdtype(outside.dtype, np.floating)  # not 0.5 by integers
            made = dataclasses.replace(made, pixels=np.where(mask | ~is_held, made.pixels, outside))
        return restore_nodata(made) if form.any_values else made

    def _write(self, report: Report, task: FileTask, image: Pair, output: np.ndarray, cycle: np.ndarray | None) -> None:
        """Write a translation, and its copies for the page."""
        made = self._to_values(task, image, output, task.source)
        if write_copy := formats.FORMATS[task.format].copy:
            run, checkpoint = self._model.path.resolve().name, self._model.checkpoint
            note = f"{self._model.config.objective.objective} {self._request.direction}, {run}, {checkpoint.name}"
            network = f"{self._request.direction} of {checkpoint.resolve()}"
            with formats.partial_file(task.target) as path:
                write_copy(path, task.source, made.pixels, self._ranges[1], note, network)
        else:
            formats.write(task.target, made, task.format)
        self._report(report, task, output.shape[0] * output.shape[1], (image[0], (output, cycle)))

    def _report(
        self,
        report: Report,
        task: FileTask,
        area: int,
        shown: tuple[DecodedImage, Result] | None = None,
        count: int = 1,
    ) -> None:
        """Count a file with its images of `area` pixels, one of which is shown on the page."""
        if self._page and shown:
            original, (output, cycle) = shown
            images = {"input": original.pixels, "output": output, **({} if cycle is None else {"cycle": cycle})}
            try:
                report.items.append(_write_item(self._page, task, self._request.direction, images))
            except OSError as error:
                raise OSError(f"translated, but not shown on the page: {error}") from error
        report.done, report.images = report.done + 1, report.images + count
        report.tiled += area > self._model.tile**2
        report.cut += task.images > count
        report.partial += task.partial


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
