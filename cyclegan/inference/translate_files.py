"""Translation of files, folders and patterns, on all devices, into files of the same kind."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import tqdm

from cyclegan.config.sections import DIRECTIONS
from cyclegan.data.cores import available_cores
from cyclegan.errors import UserError, printable
from cyclegan.inference import file_plan
from cyclegan.inference.conversions import Path, Size, check_size
from cyclegan.inference.file_batches import inspect_ahead, make_batches
from cyclegan.inference.file_plan import FileTask
from cyclegan.inference.file_translator import FileTranslator, Outcome
from cyclegan.inference.model import Model, load_on_devices
from cyclegan.inference.page_images import PAGE_FOLDER
from cyclegan.run import html_report

MAX_PIXELS = 50_000_000  # of all images in memory at the same time, unless one batch has more


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

    def add(self, outcome: Outcome) -> None:
        """Count the outcome of a file."""
        self.done += outcome.failed is None
        self.failed += filter(None, [outcome.failed])
        self.unshown += filter(None, [outcome.unshown])
        self.tiled += outcome.tiled
        self.cut += outcome.cut


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
    plan = file_plan.make_plan(os.fspath(source), os.fspath(target), format)
    file_plan.refuse_originals(plan.tasks)
    tasks = [task for task in plan.tasks if not (skip_existing and os.path.lexists(task.target))]
    page = [plan.folder / "index.html", plan.folder / PAGE_FOLDER] if html else []
    file_plan.refuse_existing([*(task.target for task in tasks), *page], overwrite)
    models = _as_models(run, checkpoint)
    channels, value_range = models[0].translator(direction).channels_out, models[0].value_ranges(direction)[1]
    file_plan.refuse_formats(tasks, format, channels, value_range)
    translator = FileTranslator(models, direction, size, format, plan.folder if html else None)
    report = Report(skipped=len(plan.tasks) - len(tasks))
    items: list[html_report.Item] = []
    title = " to ".join(DIRECTIONS[direction])
    bar = tqdm.tqdm(desc=title, total=len(tasks), unit=" images", disable=not bars or None)
    with bar, _thread_pool(len(models) + available_cores()) as pool:
        for outcome in _outcomes(translator, pool, tasks, batch_size):
            bar.update()
            report.add(outcome)
            items += filter(None, [outcome.item])
    report.seconds = time.perf_counter() - began
    if html:
        _write_page(report, plan.folder, title, items, models[0])
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
        check_size(size)


def _as_models(run: Path | Model | list[Model], checkpoint: str | None) -> list[Model]:
    if isinstance(run, Model):
        return [run]
    return run if isinstance(run, list) else load_on_devices(run, checkpoint)


def _write_page(
    report: Report, folder: pathlib.Path, title: str, items: Sequence[html_report.Item], model: Model
) -> None:
    notes = [f"{model.checkpoint}, after {model.train_state.epoch} epochs"]
    if len(model.config.objective.directions) < len(DIRECTIONS):
        notes.append("No cycle: the run has no generator for the other direction.")
    try:
        report.page = html_report.write(folder, title, items, notes)
    except OSError as error:
        report.unshown.append(printable(f"{folder / 'index.html'} ({error})"))


@contextlib.contextmanager
def _thread_pool(threads: int) -> Iterator[concurrent.futures.Executor]:
    """Provide a pool that cancels the waiting work if an exception is raised, Ctrl-C included."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _outcomes(
    translator: FileTranslator, pool: concurrent.futures.Executor, tasks: Iterable[FileTask], batch_size: int
) -> Iterator[Outcome]:
    """Translate files in a pool, and yield their outcomes in order; `MAX_PIXELS` bounds the work in progress."""
    waiting: collections.deque[tuple[int, concurrent.futures.Future[list[Outcome]]]] = collections.deque()
    inspected = inspect_ahead(translator.inspect, pool, tasks)
    for shape, pixels, batch in make_batches(inspected, batch_size, translator.max_pixels):
        if isinstance(shape, str):
            yield Outcome(failed=shape)
            continue
        while waiting and (waiting[0][1].done() or sum(part[0] for part in waiting) + pixels > MAX_PIXELS):
            yield from waiting.popleft()[1].result()
        waiting.append((pixels, pool.submit(translator.translate_batch, batch)))
    for _, future in waiting:
        yield from future.result()
