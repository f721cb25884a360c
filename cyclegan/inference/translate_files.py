"""Translates files: one, the pictures of a folder, or those of a pattern, on all devices, into files of the same kind."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import glob
import itertools
import os
import pathlib
import queue
import sys
import time
from typing import Literal, Optional, Union

import numpy as np
import tqdm
from PIL import UnidentifiedImageError

from cyclegan.config.directions import DIRECTIONS
from cyclegan.data import folder_source
from cyclegan.distribution.strategy import device_names
from cyclegan.errors import UserError, printable
from cyclegan.images import geometry, reader, writer
from cyclegan.images.image import DecodedImage
from cyclegan.images.value_range import to_depth
from cyclegan.inference.translator import Model, Path, Size, check_size, resized, translated
from cyclegan.reporting import html_report

AHEAD = 50_000_000  # pixels of pictures that are in work at the same time; and always one batch
LOOKS = 64  # files that are looked at before their turn
COPIES = "index_files"  # the folder, beside the page, of the pictures that it shows
SHOWN = 512  # pixels, the longer side of the copies that the page shows


@dataclasses.dataclass
class Report:
    """What became of the files.

    `done`: how many were written. `failed`: a text for each that was not. `unshown`: a text for each that was written but is not
    on the page, and for a page that was not written. `tiled`: how many were too large to be translated at once. `cut`: of how many
    only the first frame or page was translated, of several. `skipped`: how many were there before. `seconds`: all in all. `page`:
    the path of the page, if one was asked for.
    """

    done: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    unshown: list[str] = dataclasses.field(default_factory=list)
    tiled: int = 0
    cut: int = 0
    skipped: int = 0
    seconds: float = 0.0
    page: Optional[pathlib.Path] = None


@dataclasses.dataclass(frozen=True)
class _File:
    number: int  # from 1
    name: str  # relative to what was asked for
    source: str
    target: pathlib.Path


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """What became of a file, as `Report` has it; `failed` and `unshown` are texts or `None`. `item`: its place on a page."""

    failed: Optional[str] = None
    unshown: Optional[str] = None
    item: Optional[html_report.Item] = None
    tiled: bool = False
    cut: bool = False


def translate(
    run: Union[Path, Model, list],
    source: Path,
    target: Path,
    direction: Literal["x2y", "y2x"] = "x2y",
    size: Optional[Size] = None,
    format: Optional[str] = None,
    overwrite: bool = False,
    batch_size: int = 8,
    html: bool = False,
    bars: bool = False,
    checkpoint: Optional[str] = None,
    skip_existing: bool = False,
) -> "Report":
    """Translates pictures from files to files.

    Args:
        run: the run's folder, whose pictures all GPUs share; or its `inference.Model`; or a list of these, one for each device.
        source: a file, a folder (its pictures, in sub-folders too), or a pattern as `glob` has it (`**` for any folders).
        target: a file where `source` is one, or a folder. The names and sub-folders are those of the originals.
        direction: "x2y" or "y2x".
        size: (width, height) in pixels that pictures are resized to first; by default each keeps its own.
        format: one of `writer.FORMATS`; by default that of the original's name.
        overwrite: whether files that are there are replaced.
        batch_size: pictures of one size that are translated at the same time, if they are small enough.
        html: whether to write a page to look at beside the results; each picture is then translated back too.
        bars: show a progress bar.
        checkpoint: with a run's folder, the name of one of its checkpoints; by default the newest that can be read.
        skip_existing: leave files that are there as they are, and translate the others: to go on after a stop.

    Returns:
        A `Report`. A file that can't be read or written is in it, and does not stop the others.

    Raises:
        UserError: there are no pictures, some of the files to write are there, two would be the same, or what comes out has no
            place in their format; nothing is written.
    """
    began = time.perf_counter()
    if direction not in DIRECTIONS or batch_size < 1:
        raise UserError(
            f"direction {direction!r}, batch_size {batch_size!r}: expected x2y or y2x, and at least 1 picture"
        )
    if skip_existing and (overwrite or html):
        other = "--overwrite" if overwrite else "--html, whose page would lack what is skipped"
        raise UserError(f"--skip_existing with {other}: expected one of them")
    if size is not None:
        check_size(size)
    files, folder = _plan(os.fspath(source), os.fspath(target), format)
    planned = len(files)
    if skip_existing:
        files = [file for file in files if not os.path.lexists(file.target)]
    _refuse_to_overwrite(
        [file.target for file in files] + ([folder / "index.html", folder / COPIES] if html else []), overwrite
    )
    models = _models(run, checkpoint)
    _refuse_formats(files, format, models[0].translator(direction).outputs)
    work = _Work(models, direction, size, format, folder if html else None)
    report, items = Report(skipped=planned - len(files)), []
    bar = tqdm.tqdm(desc=" to ".join(DIRECTIONS[direction]), total=len(files), unit=" images", disable=not bars or None)
    with bar, _pool(len(models) + (os.cpu_count() or 1)) as pool:
        for outcome in _outcomes(work, pool, files, batch_size):
            bar.update()
            report.done += outcome.failed is None
            report.failed += filter(None, [outcome.failed])
            report.unshown += filter(None, [outcome.unshown])
            report.tiled += outcome.tiled
            report.cut += outcome.cut
            items += filter(None, [outcome.item])
    report.seconds = time.perf_counter() - began
    if html:
        notes = [f"{models[0].checkpoint}, after {models[0].progress.epoch} epochs"]
        try:
            report.page = html_report.write(folder, " to ".join(DIRECTIONS[direction]), items, notes)
        except OSError as error:
            report.unshown.append(printable(f"{folder / 'index.html'} ({error})"))
    return report


@contextlib.contextmanager
def _pool(count):
    """So many threads. What they have not begun when an exception comes, Ctrl-C too, they never do."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _models(run, checkpoint):
    if isinstance(run, Model):
        return [run]
    if isinstance(run, list):
        return run
    return [Model(run, checkpoint, device=device) for device in device_names()]


def _outcomes(work, pool, files, batch_size):
    """Yields the `_Outcome` of each file. What is in work at the same time is bounded by `AHEAD`."""
    waiting = collections.deque()  # pairs (pixels, future)
    for shape, pixels, batch in _batches(_looked(work.look, pool, files), batch_size, work.most):
        if isinstance(shape, str):
            yield _Outcome(failed=shape)
            continue
        while waiting and (waiting[0][1].done() or sum(part[0] for part in waiting) + pixels > AHEAD):
            yield from waiting.popleft()[1].result()
        waiting.append((pixels, pool.submit(work.run, batch)))
    for _, future in waiting:
        yield from future.result()


def _looked(look, pool, files):
    """Yields (*what `look` says, file) for all, in their order; at most `LOOKS` files before they are wanted."""
    waiting = collections.deque()
    for file in files:
        waiting.append((pool.submit(look, file), file))
        if len(waiting) > LOOKS:
            future, first = waiting.popleft()
            yield (*future.result(), first)
    for future, file in waiting:
        yield (*future.result(), file)


class _Work:
    """What is done with files, in several threads. Where a file fails, its result is a text that says why."""

    def __init__(self, models, direction, size, format, folder):
        self.direction, self.size, self.format, self.folder = direction, size, format, folder
        self.back = {"x2y": "y2x", "y2x": "x2y"}[direction]
        self.channels = models[0].translator(direction).inputs
        self.most = models[0].tile ** 2  # pixels that are translated at once
        self.models = queue.Queue()
        for model in models:
            self.models.put(model)

    def look(self, file):
        """By its header: (height, width, whether it has 16 bits) of what will be translated, or a text; and the file's pixels."""
        with _Failures(file) as failures:
            _, height, width, deep = reader.check(file.source, self.channels)
            return (*(self.size[::-1] if self.size else (height, width)), deep), height * width
        return failures.text, 0

    def run(self, batch):
        """Reads, translates and writes files that `look` found the same for. Returns their `_Outcome`s."""
        outcomes, read = {}, {}
        for file in batch:
            with _Failures(file) as failures:
                read[file] = resized(reader.decode_whole(file.source, self.channels), self.size)
            outcomes[file] = _Outcome(failures.text)
        for file, before, after, cycle in self._translated(read, outcomes):
            with _Failures(file) as failures:
                writer.write(file.target, translated(before, after), self.format)
            outcomes[file] = _Outcome(failures.text)
            if not failures.text:
                outcomes[file] = self._written(file, before.pixels, after, cycle)
        return list(outcomes.values())

    def _written(self, file, before, after, cycle):
        item = None
        with _Failures(file) as failures:
            item = self._item(file, before, after, cycle) if self.folder else None
        tiled = before.shape[0] * before.shape[1] > self.most
        return _Outcome(unshown=failures.text, item=item, tiled=tiled, cut=reader.has_more_frames(file.source))

    def _translated(self, read, outcomes):
        """(file, picture, translation, translation back) of those that can be: all at once, or, where that fails, one by one."""
        pictures = [picture.pixels for picture in read.values()]
        model = self.models.get()
        try:
            with _Failures(None) as failures:
                done = self._there_and_back(model, np.stack(pictures)) if pictures else []
            if not failures.text:
                return list(zip(read, read.values(), *done))
            whole = []
            for file, picture in read.items():
                with _Failures(file) as failures:
                    (after,), (cycle,) = self._there_and_back(model, picture.pixels[None])
                    whole.append((file, picture, after, cycle))
                outcomes[file] = _Outcome(failures.text)
            return whole
        finally:
            self.models.put(model)

    def _there_and_back(self, model, pixels):
        outputs = model.translator(self.direction)(pixels)
        return outputs, model.translator(self.back)(outputs) if self.folder else outputs

    def _item(self, file, before, after, cycle):
        """Writes copies that browsers show. Returns the `page.Item`."""
        shown = {}
        for name, pixels in (("input", before), ("output", after), ("cycle", cycle)):
            shown[name] = f"{COPIES}/{file.number:06d}_{name}.png"
            writer.write(self.folder / shown[name], DecodedImage(_small(pixels)), "png")
        grey = 255 / np.iinfo(before.dtype).max
        pairs = {"cycle error": cycle, **({"change": after} if after.shape == before.shape else {})}
        scores = {name: float(np.abs(before.astype(np.float32) - other).mean() * grey) for name, other in pairs.items()}
        frame = html_report.Frame(shown["output"], shown["cycle"], scores)
        return html_report.Item(file.name, " → ".join(DIRECTIONS[self.direction]), shown["input"], [frame])


class _Failures:
    """What goes wrong with a file within it becomes `text`, and nothing more."""

    def __init__(self, file):
        self.file, self.text = file, None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if not isinstance(error, Exception):  # Pillow's decoders raise almost anything on a damaged file
            return False
        reason = "not a picture" if isinstance(error, UnidentifiedImageError) else error
        if kind.__name__ == "ResourceExhaustedError":  # TensorFlow's
            reason = "the device has not enough memory for it; try a smaller --tile or --size"
        self.text = printable(f"{self.file.source if self.file else 'a batch'} ({reason or kind.__name__})")
        return True


def _plan(source, target, format):
    """What to read and to write. Returns (list of `_File`, the folder that all is written to).

    Raises:
        UserError: there is nothing to read, or two files would be written to the same place.
    """
    if format not in (None, *writer.FORMATS):
        raise UserError(f"--format {format}: expected one of {', '.join(writer.FORMATS)}")
    if os.path.isfile(source):
        base, name = os.path.split(source)
        names = [name]
        one = not os.path.isdir(target) and writer.format_of(target)
        ending = os.path.splitext(target)[1]
        if ending and not one and not os.path.isdir(target) and not target.endswith(os.sep):
            known = " ".join(itertools.chain(*writer.FORMATS.values()))
            raise UserError(f"{printable(target)}: expected a folder, or a file that ends in one of {known}")
        folder = pathlib.Path(os.path.dirname(target) if one else target)
        written = os.path.basename(target) if one else None
        if one and format and writer.format_of(target) != format:
            raise UserError(f"{target}: --format {format} is called {' or '.join(writer.FORMATS[format])}")
        if not one and not format and not writer.format_of(name):
            raise UserError(
                f"{printable(source)}: its name does not say which format to write; expected --format"
                f" ({', '.join(writer.FORMATS)}), or an output that is a file: {printable(pathlib.Path(name).stem)}.jpg"
            )
    else:
        base, names = _found(source)
        folder, written = pathlib.Path(target), None
        if os.path.isfile(target):
            raise UserError(f"{target}: a file; expected a folder for the translations of {len(names)} pictures")
        inside = os.path.relpath(os.path.abspath(target), os.path.abspath(base or os.curdir)) + os.sep
        names = [name for name in names if inside == f".{os.sep}" or not name.startswith(inside)]
        if not names:
            raise UserError(f"{source}: no pictures; expected at least one of {' '.join(folder_source.EXTENSIONS)}")
    files, taken = [], {}
    for number, name in enumerate(names, 1):
        target_name = written or (os.path.splitext(name)[0] + writer.FORMATS[format][0] if format else name)
        key = (
            target_name.casefold() if sys.platform == "darwin" else target_name
        )  # where capital letters make no other file
        if key in taken:
            raise UserError(
                printable(f"{taken[key]} and {name} would both be written to {folder / target_name}:")
                + " expected other names, or no --format"
            )
        taken[key] = name
        files.append(_File(number, name, os.path.join(base, name), folder / target_name))
    return files, folder


def _found(source):
    """(folder, sorted names relative to it) of the pictures of a folder or a pattern."""
    if os.path.isdir(source):
        made = {path.parent.relative_to(source) / COPIES for path in pathlib.Path(source).rglob("index.html")}
        return source, [name for name in folder_source.find_images(source) if pathlib.Path(name).parent not in made]
    if not glob.has_magic(source):
        raise UserError(
            f"{printable(source)}: no such file or folder; expected a picture, a folder of pictures, or a pattern"
        )
    parts = pathlib.PurePath(source).parts
    fixed = os.path.join("", *itertools.takewhile(lambda part: not glob.has_magic(part), parts))
    found = sorted(
        os.path.relpath(path, fixed or os.curdir)
        for path in glob.glob(source, recursive=True)
        if os.path.isfile(path) and path.lower().endswith(folder_source.EXTENSIONS)
    )
    return fixed, found


def _refuse_to_overwrite(targets, overwrite):
    there = [target for target in targets if os.path.lexists(target)]
    if there and not overwrite:
        raise UserError(
            printable(f"{len(there)} of {len(targets)} files to write are there, {there[0]} for one: expected none;")
            + " use --overwrite to replace them, --skip_existing to leave them, or another folder"
        )


def _refuse_formats(files, format, channels):
    if channels in (1, 3):
        return
    for file in files:
        wanted = format or writer.format_of(file.target.name)
        if wanted != "tiff":
            raise UserError(
                f"{printable(file.target)}: {channels} channels don't fit into {wanted}; expected --format tiff"
            )


def _batches(looked, batch_size, most):
    """Groups files that follow each other and are of the same shape, of no more than `most` pixels together, or one.

    Yields (shape, pixels that are in memory at once, list of files), each as soon as it is full; of one that `look` has refused,
    (text, 0, [file]).
    """
    for shape, run in itertools.groupby(looked, key=lambda one: one[0]):
        area = 0 if isinstance(shape, str) else shape[0] * shape[1]
        count = max(1, min(batch_size, most // area)) if area else 1
        while batch := list(itertools.islice(run, count)):
            _, decoded, files = zip(*batch)
            yield shape, max(*decoded, len(files) * area), list(files)


def _small(pixels):
    """A copy for the page: uint8 [h, w, 1 or 3], its longer side at most `SHOWN` pixels."""
    pixels = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1]
    shrink = min(1.0, SHOWN / max(pixels.shape[:2]))
    size = tuple(max(1, round(side * shrink)) for side in pixels.shape[:2])
    return to_depth(geometry.resize(pixels, size), np.uint8)
