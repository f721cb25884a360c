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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional, TypeVar

import numpy as np

from cyclegan import terminal
from cyclegan.config.sections import DIRECTIONS
from cyclegan.data import folder_source, loading
from cyclegan.data.loading import available_cores
from cyclegan.distribution import hardware
from cyclegan.errors import UserError, first_line, printable
from cyclegan.images import formats, geometry, reader, tiff_format
from cyclegan.images.film_format import FilmWriter, open_film
from cyclegan.images.image import Bands, DecodedImage, ImageError, Metadata, TooLargeError, convert, visible
from cyclegan.images.reader import Slice, Source
from cyclegan.images.value_range import restore_nodata, to_depth
from cyclegan.inference import conversions
from cyclegan.inference.conversions import Size
from cyclegan.lazy_tensorflow import tf
from cyclegan.run import html_report

if TYPE_CHECKING:
    from cyclegan.inference.model import Model

PAGE_FOLDER = "index_files"  # folder of the images of the page, beside index.html
MAX_PIXELS = 50_000_000  # of all images in memory at the same time, unless one batch has more
MAX_SIDE = 512  # longer side of an image of the page in pixels
COPIES = 5  # of an image and its translation, in memory at the same time, at most
NETWORK_BYTES = 16  # for each filter of a generator and each pixel of a tile, on a CPU; measured
FAR_LARGER = 2.5  # times the side of the training images, from which on networks have not seen what images show
LARGER = "larger images can be translated from TIFF to TIFF files without --size, --masks and --html"

T = TypeVar("T")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class FileTask:
    """A file to translate, and the facts that `FileTranslator.inspect` finds."""

    number: int  # from 1
    name: str  # path relative to the folder or pattern
    source: str
    target: pathlib.Path
    format: str  # to write, a key of `formats.FORMATS`
    mask: folder_source.Name | None = None  # path of the mask
    images: int = 0  # of the source: pages, slices or frames; 0 if their number is not known
    partial: bool = False  # whether only some channels of the source are used
    far_larger: bool = False  # whether the images are `FAR_LARGER` than those of the training
    has_rows: bool = False  # whether the source is so large that it may be translated row by row
    shape: tuple[int, int, bool] | None = None  # height and width of translations, whether they have 16 bits
    pixels: int = 0  # in memory while it is translated
    failure: Exception | None = None  # why the file cannot be translated

    @property
    def is_film(self) -> bool:
        """Whether the source is a film."""
        return formats.is_film(self.source)


class Original(NamedTuple):
    """An image to translate."""

    image: DecodedImage  # result of `conversions.to_network`
    mask: np.ndarray | None = None  # bool [h, w, 1]
    file: DecodedImage | None = None  # values of the file, for the pixels outside of the mask; `None` if it is resized


Result = tuple[np.ndarray, Optional[np.ndarray]]  # a translation, levels [h, w, C], and for the page the cycle image
Part = tuple[int, Callable[[], Original]]  # of a stack or film: number or time of an image, function that decodes it
Put = Callable[[int, DecodedImage], None]  # writes the translation of a part


@dataclasses.dataclass(frozen=True)
class Request:
    """How files are translated.

    Attributes:
        direction: "x2y" or "y2x".
        size: (width, height) in pixels to resize images to first; by default each keeps its size. `make_plan`
            also takes a number for both.
        format: One of `formats.FORMATS`, or an ending such as "jpg"; by default the format of each original's name.
        overwrite: Whether existing files are replaced.
        batch_size: Number of images of one size to translate together, if they are small enough.
        html: Whether to write a page of the results, which also shows each image translated back if the run can.
        skip_existing: Whether to leave existing files and translate the others, as after a stop.
        strip_metadata: Whether to write files without EXIF, XMP, resolution and place; docs/translate.md lists them.
        stacks: "all" to translate all images of a file into a file of as many, "first" to translate the first one; by
            default as the run was trained. Of NIfTI files, always all are.
        slice_axis: Axis along which the slices of volumes lie, 0 to 2; by default as the run was trained.
        nodata: Value of pixels without data in TIFF files that name none; by default --nodata of the run.
        masks: Folder with a mask for each image, which has its name except for the extension. Where the mask is black
            or transparent, the translation equals the original.

    Raises:
        UserError: A value cannot work.
    """

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

    def __post_init__(self) -> None:
        """Check the values that need no run."""
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise UserError(f"batch_size {self.batch_size!r}: expected a whole number of at least 1 image")
        if self.skip_existing and (self.overwrite or self.html):
            other = "--overwrite" if self.overwrite else "--html, whose page would lack the skipped images"
            raise UserError(f"--skip_existing with {other}: expected one of them")


@dataclasses.dataclass
class Report:
    """Outcome of a translation of files."""

    done: int = 0  # files that were written
    images: int = 0  # pages, slices and frames in them
    failed: list[str] = dataclasses.field(default_factory=list)  # descriptions of files not written or not on the page
    tiled: int = 0  # images that were too large to be translated at once
    cut: int = 0  # files with several frames or pages, of which only the first was translated
    partial: int = 0  # files of which only some channels were translated
    far_larger: int = 0  # files of images much larger than those of the training
    skipped: int = 0  # files that existed before
    seconds: float = 0.0
    page: pathlib.Path | None = None
    items: list[html_report.Item] = dataclasses.field(default_factory=list, repr=False)  # of the page

    def add(self, part: Report) -> None:
        """Add the report of some of the files."""
        for name in ("done", "images", "failed", "tiled", "cut", "partial", "far_larger", "items"):
            setattr(self, name, getattr(self, name) + getattr(part, name))

    @contextlib.contextmanager
    def catch(self, task: FileTask) -> Iterator[None]:
        """Describe an error inside the context in `failed`, so that one file does not stop the others."""
        try:
            yield
        except Exception as error:  # Pillow's decoders raise almost any exception on a damaged file
            reason = first_line(error)
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


def make_batches(tasks: Iterable[FileTask], batch_size: int, max_pixels: int) -> Iterator[tuple[int, list[FileTask]]]:
    """Group consecutive files of the same shape; yield (pixels in memory, files).

    A group has at most `batch_size` files and, if it has several, at most `max_pixels` pixels.
    """
    for shape, group in itertools.groupby(tasks, key=lambda task: task.shape):
        area = shape[0] * shape[1] if shape else max_pixels
        while batch := list(itertools.islice(group, max(1, min(batch_size, max_pixels // area)))):
            yield max(len(batch) * area, *(task.pixels for task in batch)), batch


class FileTranslator:
    """Read, translate and write files with models, one for each device, that several threads share.

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
        """Translate files, and add what becomes of them to a report; show a progress bar if `bars` is true.

        Images come first, several files at a time, then stacks and films, one after the other.
        """
        title, total = " to ".join(DIRECTIONS[self._request.direction]), len(tasks) + len(report.failed)
        sequences: list[FileTask] = []
        pool = concurrent.futures.ThreadPoolExecutor(self._idle.qsize() + available_cores())
        try:
            with terminal.progress_bar(bars, desc=title, total=total, unit=" images") as self._bar:
                images = self._inspect_all(tasks, sequences)
                batches = make_batches(images, self._request.batch_size, self._model.tile**2)
                for part in _in_order(pool, self.translate, batches):
                    report.add(part)
                    self._bar.update(report.done + len(report.failed) - self._bar.n)
                self._bar.update(report.done + len(report.failed) - self._bar.n)
                for task in sequences:
                    before, total = self._bar.n, self._bar.total
                    with report.catch(task):
                        self._translate_sequence(report, task, pool)
                    made = max(1, self._bar.n - before)  # the number of frames may be an estimate
                    self._bar.total = total + made - 1
                    self._bar.update(before + made - self._bar.n)
        finally:  # after Ctrl-C, images that are being translated end at the next tile
            self._stopped.set()
            pool.shutdown(cancel_futures=True)
            reader.close_files()

    def _progress(self, task: FileTask, text: str) -> None:
        """Show how much of a file is done; after Ctrl-C, end its translation."""
        if self._stopped.is_set():
            raise KeyboardInterrupt
        self._bar.set_postfix_str(f"{printable(task.name)}: {text}")

    def _inspect_all(self, tasks: Sequence[FileTask], sequences: list[FileTask]) -> Iterator[FileTask]:
        """Inspect files; yield those with one image to translate, and append films and stacks to `sequences`."""
        for task in tasks:
            task = self.inspect(task)
            if task.shape and self._is_sequence(task):
                sequences.append(task)
            else:
                yield task

    def inspect(self, task: FileTask) -> FileTask:
        """Return a task with the facts from the header of its file, or with the error if it cannot be translated."""
        axis, size = self._request.slice_axis, self._request.size
        by_rows = bool(formats.FORMATS[task.format].write_rows) and not (size or self._page or task.mask)
        try:
            task = dataclasses.replace(task, images=reader.count(task.source, self._channels, axis))
            source = task.source if task.is_film or not self._is_sequence(task) else Slice(task.source, 0, axis)
            facts = reader.check(source, self._channels, bool(self._ranges[0]), by_rows)
            area, (width, height) = facts.height * facts.width, size or (facts.width, facts.height)
            has_rows = by_rows and area > tiff_format.LARGE_PIXELS
            shape = (height, width, facts.deep or any(self._ranges))
            if task.format == "jpegxl" and shape[2] and not self._ranges[1]:  # other ranges are refused before
                raise ImageError("16 bits, which are not written as JPEG XL: expected --format png or tiff")
            if not has_rows:
                self._check_memory(*shape)
        except TooLargeError as error:
            return dataclasses.replace(task, failure=ImageError(f"{error}; {LARGER}"))
        except Exception as error:  # of any decoder
            return dataclasses.replace(task, failure=error)
        return dataclasses.replace(
            task,
            partial=facts.partial_of > 0,
            far_larger=not size and self._is_far_larger(facts.height, facts.width),
            has_rows=has_rows,
            shape=shape,
            pixels=area,
        )

    def _is_far_larger(self, height: int, width: int) -> bool:
        """Return whether an image is so large that the training has shown the networks no objects at this scale."""
        data = self._model.config.data
        by_width = width / data.load_size
        ratio = (
            by_width if data.preprocess.startswith("scale") else min(height / data.image_size, width / data.image_width)
        )
        return data.preprocess not in ("crop", "none") and ratio > FAR_LARGER

    def _check_memory(self, height: int, width: int, deep: bool) -> None:
        """Raise `TooLargeError` if an image of this size and its translation do not fit into the free memory."""
        model, area = self._model, height * width
        needed = area * sum(model.channels(self._request.direction)) * (1 + deep) * COPIES
        if not hardware.has_accelerator():
            needed += min(area, model.tile**2) * model.config.networks.filters * NETWORK_BYTES
        if needed > (free := loading.free_bytes()):
            raise TooLargeError(
                f"its translation takes about {needed / 1e9:.1f} GB of memory, but {free / 1e9:.1f} GB are free:"
                " expected a smaller --tile or --size"
            )

    def _is_sequence(self, task: FileTask) -> bool:
        """Return whether all images of a file are translated, into one file."""
        form = formats.FORMATS[task.format]
        return form.is_film or form.is_volume or (self._request.stacks == "all" and task.images > 1)

    def translate(self, tasks: Sequence[FileTask]) -> Report:
        """Read, translate and write the first images of files, which have the same shape."""
        report, originals = Report(), {}
        for task in tasks:
            with report.catch(task):
                if task.failure:
                    raise task.failure
                if not (task.has_rows and self._translate_rows(report, task)):
                    originals[task] = self._read(task, task.source, task.mask)
        try:
            results = self._generate(tasks[0], [*originals.values()])
        except Exception:  # such as too little memory: one by one
            results = []
        for (task, original), result in itertools.zip_longest(originals.items(), results):
            with report.catch(task):
                self._write(report, task, original, result or self._generate(task, [original])[0])
        return report

    def _read(self, task: FileTask, source: Source, mask: Source | None) -> Original:
        """Return an image of a file, in the size of its translation, and its mask."""
        any_type = bool(self._ranges[0])
        header, decoded = reader.decode_with_header(source, self._channels, any_type, self._request.nodata)
        if mask is None:
            return self._prepare(decoded)
        with loading.naming_image(mask, "", 0):
            inside = reader.decode_mask(mask)
            if inside.shape[:2] != decoded.pixels.shape[:2]:
                sizes = geometry.format_size(inside.shape), geometry.format_size(decoded.pixels.shape)
                raise ImageError(f"a mask of {sizes[0]}, expected {sizes[1]}")
        if size := self._request.size:
            return self._prepare(decoded, geometry.resize(inside, size[::-1], is_mask=True) > 0)
        file = decoded
        if formats.FORMATS[task.format].opacity and not self._is_sequence(task):
            file = conversions.with_own_colors(decoded, header, source, any_type)
        return self._prepare(decoded, inside > 0, file)

    def _prepare(
        self, decoded: DecodedImage, mask: np.ndarray | None = None, file: DecodedImage | None = None
    ) -> Original:
        metadata = decoded.metadata
        if self._request.strip_metadata:
            kept = ("profile", "nodata", "array", "channel_pages")
            metadata = Metadata(**{name: getattr(metadata, name) for name in kept})
        decoded = dataclasses.replace(decoded, metadata=metadata)
        return Original(conversions.to_network(decoded, self._ranges, self._request.size), mask, file)

    def _translate_sequence(self, report: Report, task: FileTask, pool: concurrent.futures.Executor) -> None:
        """Translate a film, or all images of a file, into a file of as many, with few of them in memory."""
        with (self._open_film if task.is_film else self._open_stack)(task) as (shown, images, put):
            parts, (height, width, _) = iter(images), shown.image.pixels.shape
            size = max(1, min(self._request.batch_size, self._model.tile**2 // (height * width)))
            self._bar.total += task.images - 1
            count = 0

            def batches() -> Iterator[tuple[int, list[Part]]]:
                while batch := list(itertools.islice(parts, size)):
                    yield len(batch) * height * width, batch

            def translate(batch: list[Part]) -> list[tuple[int, DecodedImage]]:
                originals = [decode() for _, decode in batch]
                kinds = {(each.image.pixels.shape, each.image.pixels.dtype) for each in (shown, *originals)}
                if len(kinds) > 1:
                    raise ImageError("its images differ in size or depth: expected equal ones, or --stacks first")
                results = self._generate(task, originals, cycles=False)
                return [
                    (key, self._to_file(task, original, output))
                    for (key, _), original, (output, _) in zip(batch, originals, results)
                ]

            for made in _in_order(pool, translate, batches()):
                for key, image in made:
                    put(key, image)
                count += len(made)
                self._progress(task, f"{count} of {task.images}")
                self._bar.update(len(made))
        self._report(report, task, shown, self._generate(task, [shown])[0] if self._page else None, count)

    @contextlib.contextmanager
    def _open_stack(self, task: FileTask) -> Iterator[tuple[Original, Iterable[Part], Put]]:
        """Provide an image of a stack to show, all images, and the function that writes their translations."""
        count, axis = task.images, self._request.slice_axis
        if task.mask and (number := reader.count(f"{task.mask}", 1, axis)) != count:
            raise ImageError(f"{count} images, but its mask has {number}: expected equal numbers")

        def read(number: int) -> Original:
            mask = Slice(f"{task.mask}", number, axis) if task.mask else None
            return self._read(task, Slice(task.source, number, axis), mask)

        first = read(0)
        channels = self._model.channels(self._request.direction)[1]
        blank = np.zeros((*first.image.pixels.shape[:2], channels), first.image.pixels.dtype)
        form = self._to_file(task, first, blank)
        shape, dtype = (count, *form.pixels.shape), form.pixels.dtype
        with formats.create_stack(task.target, task.source, axis, shape, dtype, form.metadata, task.format) as put:
            parts = [(number, functools.partial(read, number)) for number in range(count)]
            yield read(count // 2), parts, lambda number, made: put(number, made.pixels)

    @contextlib.contextmanager
    def _open_film(self, task: FileTask) -> Iterator[tuple[Original, Iterable[Part], Put]]:
        """Provide the first frame of a film, all frames, and the function that writes their translations."""
        first = self._read(task, task.source, task.mask)

        def prepare(pixels: np.ndarray) -> Original:
            frame = convert(Bands(pixels), self._channels)
            return self._prepare(frame, first.mask, frame if first.file else None)

        def put(time: int, made: DecodedImage) -> None:
            levels = to_depth(made.pixels, np.uint8)
            writer.write(levels.repeat(3 // levels.shape[2], axis=2), time)

        with (
            formats.partial_file(task.target) as path,
            open_film(task.source) as film,
            FilmWriter(path, task.target.suffix.lower(), film, self._request.strip_metadata) as writer,
        ):
            frames = film.frames(writer.add_sound)
            yield first, ((time, functools.partial(prepare, film.pixels(frame))) for time, frame in frames), put

    def _translate_rows(self, report: Report, task: FileTask) -> bool:
        """Translate a file row by row; return whether it is one for this."""
        with reader.open_rows(task.source, self._channels, bool(self._ranges[0]), self._request.nodata) as image:
            if image is None:
                return False
            size, direction = (image.header.height, image.header.width), self._request.direction

            def read(rows: slice) -> Original:
                return self._prepare(image.read(rows))

            def translate(model: Model) -> Iterator[DecodedImage]:
                top, progress = 0, functools.partial(self._progress, task)
                for output in model.translate_rows(direction, lambda rows: read(rows).image.pixels, size, progress):
                    yield self._to_file(task, read(slice(top, top + len(output))), output)
                    top += len(output)

            model = self._idle.get()
            try:
                formats.write_rows(task.target, size[0], translate(model), task.format)
            finally:
                self._idle.put(model)
        self._report(report, task)
        return True

    def _generate(self, task: FileTask, originals: Sequence[Original], cycles: bool = True) -> list[Result]:
        """Translate images of a file, or of several if they are small, with a model that is idle."""
        model, back = self._idle.get(), self._request.direction[::-1]

        def translate(direction: str, batch: np.ndarray) -> np.ndarray:
            outputs = model.translate(direction, batch, functools.partial(self._progress, task))
            return np.where(np.stack(masks), outputs, batch) if masks else outputs

        try:
            masks = [original.mask for original in originals if original.mask is not None]
            outputs = translate(self._request.direction, np.stack([original.image.pixels for original in originals]))
            has_cycles = cycles and self._page and back in model.generators
            return list(zip(outputs, translate(back, outputs) if has_cycles else [None] * len(outputs)))
        finally:
            self._idle.put(model)

    def _to_file(self, task: FileTask, original: Original, output: np.ndarray) -> DecodedImage:
        """Return a translation with the values of the range of its domain, and the metadata of its original.

        Outside of the mask, pixels have the values of the file if both domains have a value range or none has one, and
        otherwise their place between the lowest and the highest value.
        """
        image, mask, file = original
        holds_any = formats.FORMATS[task.format].any_values
        if mask is not None and file is not None:
            output = np.where(mask, output, conversions.to_network(file, self._ranges).pixels)
        held = None
        source, target = self._ranges
        if mask is not None and holds_any and source and target:
            held = min(source[0], target[0]), max(source[1], target[1])
        made = conversions.from_network(image, output, self._ranges[1], holds_any, held)
        if mask is not None and file is not None and all(self._ranges):
            made = dataclasses.replace(made, pixels=conversions.put_values(made.pixels, file.pixels, ~mask))
        return restore_nodata(made) if holds_any else made

    def _write(self, report: Report, task: FileTask, original: Original, result: Result) -> None:
        """Write a translation, and its copies for the page."""
        made = self._to_file(task, original, result[0])
        if write_copy := formats.FORMATS[task.format].copy:
            run, checkpoint = self._model.path.resolve().name, self._model.checkpoint
            note = f"{self._model.config.objective.objective} {self._request.direction}, {run}, {checkpoint.name}"
            network = f"{self._request.direction} of {checkpoint.resolve()}"
            with formats.partial_file(task.target) as path:
                write_copy(path, task.source, made.pixels, self._ranges[1], note, network)
        elif task.images == 1 < made.metadata.channel_pages and task.format == "tiff":  # of a microscope
            shape, dtype = (1, *made.pixels.shape), made.pixels.dtype
            with formats.create_stack(task.target, task.source, None, shape, dtype, made.metadata, "tiff") as put:
                put(0, made.pixels)
        else:
            formats.write(task.target, made, task.format)
        self._report(report, task, original, result)

    def _report(
        self,
        report: Report,
        task: FileTask,
        original: Original | None = None,
        result: Result | None = None,
        count: int = 1,
    ) -> None:
        """Count a file with its images, one of which is shown on the page."""
        if self._page and original and result:
            images = {"input": original.image.pixels, "output": result[0], "cycle": result[1]}
            try:
                report.items.append(_write_item(self._page, task, self._request.direction, images))
            except OSError as error:
                raise OSError(f"translated, but not shown on the page: {error}") from error
        height, width = task.shape[:2] if task.shape else (0, 0)
        report.done, report.images = report.done + 1, report.images + count
        report.tiled += height * width > self._model.tile**2
        report.cut += count == 1 < task.images
        report.partial += task.partial
        report.far_larger += task.far_larger


def _write_item(
    folder: pathlib.Path, task: FileTask, direction: str, images: Mapping[str, np.ndarray | None]
) -> html_report.Item:
    """Write small copies of "input", "output" and "cycle" for the page; return the item of the page."""
    shown = {kind: pixels for kind, pixels in images.items() if pixels is not None}
    paths = {kind: f"{PAGE_FOLDER}/{task.number:06d}_{kind}.png" for kind in shown}
    for kind, path in paths.items():
        formats.write(folder / path, DecodedImage(make_thumbnail(shown[kind])), "png")
    original, scores = shown["input"], {}
    for name, kind in (("cycle error", "cycle"), ("change", "output")):
        if kind in shown and shown[kind].shape == original.shape:
            difference = np.abs(original.astype(np.float32) - shown[kind]).mean()
            scores[name] = float(difference * (255 / np.iinfo(original.dtype).max))  # in gray levels of 8 bits
    frame = html_report.Frame(paths["output"], paths.get("cycle", ""), scores)
    return html_report.Item(task.name, " → ".join(DIRECTIONS[direction]), paths["input"], [frame])


def make_thumbnail(pixels: np.ndarray) -> np.ndarray:
    """Return a copy for the page: uint8 [h, w, 1 or 3], its longer side at most `MAX_SIDE` pixels."""
    pixels = visible(pixels)
    shrink = min(1.0, MAX_SIDE / max(pixels.shape[:2]))
    height, width = (max(1, round(side * shrink)) for side in pixels.shape[:2])
    return to_depth(geometry.resize(pixels, (height, width)), np.uint8)
