"""Batches of files whose images have the same shape; headers are read ahead of the translation."""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from cyclegan.inference.file_plan import FileTask

MAX_INSPECTED = 64  # files that are inspected before they are needed

Shape = tuple[int, int, bool]  # height and width of the image to translate, and whether it has 16 bits


class Inspected(NamedTuple):
    """Facts about a file from its header.

    Attributes:
        shape: Shape of the image to translate, or the reason why the file cannot be read.
        pixels: Number of pixels of the file.
        task: The file.
    """

    shape: Shape | str
    pixels: int
    task: FileTask


class Batch(NamedTuple):
    """Files to translate together.

    Attributes:
        shape: Shape of all images, or the reason why the only file cannot be read.
        pixels: Number of pixels in memory at the same time.
        tasks: The files.
    """

    shape: Shape | str
    pixels: int
    tasks: list[FileTask]


def inspect_ahead(
    inspect: Callable[[FileTask], Inspected], pool: concurrent.futures.Executor, tasks: Iterable[FileTask]
) -> Iterator[Inspected]:
    """Inspect files in a pool, and yield the results in order; at most `MAX_INSPECTED` before they are needed."""
    waiting: collections.deque[concurrent.futures.Future[Inspected]] = collections.deque()
    for task in tasks:
        waiting.append(pool.submit(inspect, task))
        if len(waiting) > MAX_INSPECTED:
            yield waiting.popleft().result()
    for future in waiting:
        yield future.result()


def make_batches(inspected: Iterable[Inspected], batch_size: int, max_pixels: int) -> Iterator[Batch]:
    """Group consecutive files of the same shape, and yield each group as soon as it is full.

    Args:
        inspected: Files in order.
        batch_size: Maximum number of files of a batch.
        max_pixels: Maximum number of pixels of a batch, if it has several files.
    """
    for shape, group in itertools.groupby(inspected, key=lambda one: one[0]):
        area = 0 if isinstance(shape, str) else shape[0] * shape[1]
        count = max(1, min(batch_size, max_pixels // area)) if area else 1
        while batch := list(itertools.islice(group, count)):
            _, decoded, tasks = zip(*batch)
            yield Batch(shape, max(*decoded, len(tasks) * area), list(tasks))
