"""Translates files: one, the pictures of a folder, or those of a pattern, on all devices, into files of the same kind."""

import collections
import concurrent.futures
import dataclasses
import glob
import itertools
import os
import pathlib
import queue
import time

import numpy as np
import tqdm
from PIL import UnidentifiedImageError

from cyclegan import decoding, encoding, page, pictures
from cyclegan.errors import UserError, printable
from cyclegan.inference import resized

AHEAD = 50_000_000  # pixels of pictures that are in work at the same time; and always one batch
SHOWN = 512  # pixels, the longer side of the copies that the page shows
SIDES = {"x2y": ("X", "Y"), "y2x": ("Y", "X")}


@dataclasses.dataclass
class Report:
    """What became of the files.

    `done`: how many were written. `failed`: a text for each that was not. `tiled`: how many were too large to be translated at
    once. `seconds`: all in all. `page`: the path of the page, if one was asked for.
    """

    done: int = 0
    failed: list = dataclasses.field(default_factory=list)
    tiled: int = 0
    seconds: float = 0.0
    page: object = None


@dataclasses.dataclass(frozen=True)
class _File:
    number: int  # from 1
    name: str  # relative to what was asked for
    source: str
    target: pathlib.Path


def translate(
    models,
    source,
    target,
    direction="x2y",
    size=None,
    format=None,
    overwrite=False,
    batch_size=8,
    html=False,
    bars=False,
):
    """Translates pictures from files to files.

    Args:
        models: the run's `inference.Model`, once for each device.
        source: a file, a folder (its pictures, in sub-folders too), or a pattern as `glob` has it (`**` for any folders).
        target: a file where `source` is one, or a folder. The names and sub-folders are those of the originals.
        direction: "x2y" or "y2x".
        size: (width, height) in pixels that pictures are resized to first; by default each keeps its own.
        format: one of `encoding.FORMATS`; by default that of the original's name.
        overwrite: whether files that are there are replaced.
        batch_size: pictures of one size that are translated at the same time, if they are small enough.
        html: whether to write a page to look at beside the results; each picture is then translated back too.
        bars: show a progress bar.

    Returns:
        A `Report`. A file that can't be read or written is in it, and does not stop the others.

    Raises:
        UserError: there are no pictures, some of the files to write are there, or two would be the same; nothing is written.
    """
    began = time.perf_counter()
    files, folder = _plan(os.fspath(source), os.fspath(target), format)
    _refuse_to_overwrite([file.target for file in files] + ([folder / "index.html"] if html else []), overwrite)
    work = _Work(models, direction, size, format, folder if html else None)
    report, items, waiting = Report(), [], collections.deque()
    most = models[0].tile ** 2  # pixels that are translated at once
    bar = tqdm.tqdm(desc=" to ".join(SIDES[direction]), total=len(files), unit=" images", disable=not bars or None)

    def note(result):
        bar.update()
        if isinstance(result, str):
            report.failed.append(result)
        else:
            report.done += 1
            items.append(result)

    with bar, concurrent.futures.ThreadPoolExecutor(len(models) + (os.cpu_count() or 1)) as pool:
        for shape, batch in _batches(zip(pool.map(work.look, files), files), batch_size, most):
            if isinstance(shape, str):
                note(shape)
                continue
            report.tiled += shape[0] * shape[1] > most
            pixels = len(batch) * shape[0] * shape[1]
            while waiting and sum(part[0] for part in waiting) + pixels > AHEAD:
                for result in waiting.popleft()[1].result():
                    note(result)
            waiting.append((pixels, pool.submit(work.run, batch)))
        for _, future in waiting:
            for result in future.result():
                note(result)
    report.seconds = time.perf_counter() - began
    if html:
        notes = [f"{models[0].checkpoint}, after {models[0].progress.epoch} epochs"]
        try:
            report.page = page.write(folder, " to ".join(SIDES[direction]), items, notes)
        except OSError as error:
            report.failed.append(printable(f"{folder / 'index.html'} ({error})"))
    return report


class _Work:
    """What is done with files, in several threads. Where a file fails, its result is a text that says why."""

    def __init__(self, models, direction, size, format, folder):
        self.direction, self.size, self.format, self.folder = direction, size, format, folder
        self.back = {"x2y": "y2x", "y2x": "x2y"}[direction]
        self.channels = models[0].translator(direction).inputs
        self.models = queue.Queue()
        for model in models:
            self.models.put(model)

    def look(self, file):
        """(height, width, whether it has 16 bits) of what will be translated, by the file's header; or a text."""
        with _Failures(file) as failures:
            _, height, width, deep = decoding.check(file.source, self.channels)
            return (*(self.size[::-1] if self.size else (height, width)), deep)
        return failures.text

    def run(self, batch):
        """Reads, translates and writes files that `look` found the same for. Returns their `page.Item`s, or `None`s, or texts."""
        results, read = {}, {}
        for file in batch:
            with _Failures(file) as failures:
                read[file] = resized(decoding.decode_whole(file.source, self.channels), self.size)
            results[file] = failures.text
        if read:
            pixels = np.stack([picture.pixels for picture in read.values()])
            model = self.models.get()
            try:
                outputs = model.translator(self.direction)(pixels)
                cycles = model.translator(self.back)(outputs) if self.folder else outputs
            finally:
                self.models.put(model)
            for file, before, after, cycle in zip(read, read.values(), outputs, cycles):
                with _Failures(file) as failures:
                    profile = before.profile if after.shape == before.pixels.shape else b""
                    encoding.write(file.target, decoding.Picture(after, before.opacity, profile), self.format)
                    item = self._item(file, before.pixels, after, cycle) if self.folder else None
                results[file] = failures.text or item
        return list(results.values())

    def _item(self, file, before, after, cycle):
        """Writes copies that browsers show. Returns the `page.Item`."""
        shown = {}
        for name, pixels in (("input", before), ("output", after), ("cycle", cycle)):
            shown[name] = f"page/{file.number:06d}_{name}.png"
            encoding.write(self.folder / shown[name], decoding.Picture(_small(pixels)), "png")
        grey = 255 / np.iinfo(before.dtype).max
        pairs = {"cycle error": cycle, **({"change": after} if after.shape == before.shape else {})}
        scores = {name: float(np.abs(before.astype(np.float32) - other).mean() * grey) for name, other in pairs.items()}
        frame = page.Frame(shown["output"], shown["cycle"], scores)
        return page.Item(file.name, " → ".join(SIDES[self.direction]), shown["input"], [frame])


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
        self.text = printable(f"{self.file.source} ({reason or kind.__name__})")
        return True


def _plan(source, target, format):
    """What to read and to write. Returns (list of `_File`, the folder that all is written to).

    Raises:
        UserError: there is nothing to read, or two files would be written to the same place.
    """
    if format not in (None, *encoding.FORMATS):
        raise UserError(f"--format {format}: expected one of {', '.join(encoding.FORMATS)}")
    if os.path.isfile(source):
        base, names = os.path.split(source)
        names = [names]
        one = not os.path.isdir(target) and encoding.format_of(target)
        folder = pathlib.Path(os.path.dirname(target) if one else target)
        written = os.path.basename(target) if one else None
        if one and format and encoding.format_of(target) != format:
            raise UserError(f"{target}: --format {format} has other names, expected one of {encoding.FORMATS[format]}")
    else:
        base, names = _found(source)
        folder, written = pathlib.Path(target), None
        if os.path.isfile(target):
            raise UserError(f"{target}: a file; expected a folder for the translations of {len(names)} pictures")
        inside = os.path.relpath(os.path.abspath(target), os.path.abspath(base or os.curdir)) + os.sep
        names = [name for name in names if inside == f".{os.sep}" or not name.startswith(inside)]
        if not names:
            raise UserError(f"{source}: no pictures; expected at least one of {' '.join(pictures.ENDINGS)}")
    files, taken = [], {}
    for number, name in enumerate(names, 1):
        target_name = written or (os.path.splitext(name)[0] + encoding.FORMATS[format][0] if format else name)
        if target_name.casefold() in taken:
            raise UserError(
                printable(
                    f"{taken[target_name.casefold()]} and {name} would both be written to {folder / target_name}:"
                )
                + " expected other names; translate them one at a time, or without --format"
            )
        taken[target_name.casefold()] = name
        files.append(_File(number, name, os.path.join(base, name), folder / target_name))
    return files, folder


def _found(source):
    """(folder, sorted names relative to it) of the pictures of a folder or a pattern."""
    if os.path.isdir(source):
        return source, pictures.find(source)
    if not glob.has_magic(source):
        raise UserError(
            f"{printable(source)}: no such file or folder; expected a picture, a folder of pictures, or a pattern"
        )
    parts = pathlib.PurePath(source).parts
    fixed = os.path.join("", *itertools.takewhile(lambda part: not glob.has_magic(part), parts))
    found = sorted(
        os.path.relpath(path, fixed or os.curdir)
        for path in glob.glob(source, recursive=True)
        if os.path.isfile(path) and path.lower().endswith(pictures.ENDINGS)
    )
    return fixed, found


def _refuse_to_overwrite(targets, overwrite):
    there = [target for target in targets if os.path.lexists(target)]
    if there and not overwrite:
        raise UserError(
            printable(f"{len(there)} of {len(targets)} files to write are there, {there[0]} for one: expected none;")
            + " use --overwrite to replace them, or another folder"
        )


def _batches(looked, batch_size, most):
    """Groups files that follow each other and are of the same shape, of no more than `most` pixels together, or one.

    Yields (shape, list of files); of one that `look` has refused, (text, file).
    """
    for shape, run in itertools.groupby(looked, key=lambda pair: pair[0]):
        files = [file for _, file in run]
        if isinstance(shape, str):
            yield from ((shape, file) for file in files)
            continue
        count = max(1, min(batch_size, most // (shape[0] * shape[1])))
        for first in range(0, len(files), count):
            yield shape, files[first : first + count]


def _small(pixels):
    """A copy for the page: uint8 [h, w, 1 or 3], its longer side at most `SHOWN` pixels."""
    pixels = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1]
    shrink = min(1.0, SHOWN / max(pixels.shape[:2]))
    size = tuple(max(1, round(side * shrink)) for side in pixels.shape[:2])
    return decoding.to_depth(decoding.resize(pixels, size), np.uint8)
