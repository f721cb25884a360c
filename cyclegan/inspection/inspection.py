"""Inspection of a folder of images."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Optional

import numpy as np

from cyclegan.config.data import DataConfig, ValueRange
from cyclegan.data import folder_source, loading
from cyclegan.data.sources import SPLITS
from cyclegan.data.value_ranges import find_narrow, measure_ranges
from cyclegan.errors import MissingPackageError, UserError, printable
from cyclegan.images import writer
from cyclegan.inspection import copies, findings
from cyclegan.inspection.findings import Finding
from cyclegan.inspection.measure import MEASURES, measure

FLAGS = (  # settings that an inspection takes from training
    *(
        "preprocess",
        "image_size",
        "image_width",
        "load_size",
        "channels_x",
        "channels_y",
        "value_range_x",
        "value_range_y",
    ),
)
ValueRanges = tuple[Optional[ValueRange], Optional[ValueRange]]

CONSTANT_DEVIATION = 2  # levels of 255; less is nearly constant
SAME_COLORS = 8  # levels of 255 between means or deviations of near duplicates at most
EXTENSIONS = {name.upper(): endings for name, endings in writer.FORMATS.items()}
EXTENSIONS["MPO"] = EXTENSIONS["JPEG"]  # cameras write MPO


@dataclasses.dataclass(frozen=True)
class Inspection:
    """Facts about the images of a folder; N in all splits together.

    Attributes:
        folder: The folder.
        channels: Number of channels of the images of both domains.
        value_ranges: Value ranges of both domains.
        names: Paths relative to the folder; N of them.
        splits: Index of the split of each image in `SPLITS`: int [N].
        measures: `MEASURES` [N].
        findings: The findings, most serious first; empty if nothing was found.
        notes: Remarks for the user.
    """

    folder: pathlib.Path
    channels: tuple[int, int]
    value_ranges: ValueRanges
    names: Sequence[str]
    splits: np.ndarray
    measures: np.ndarray
    findings: Sequence[Finding]
    notes: Sequence[str]

    def path(self, index: int) -> str:
        """Return the path of an image."""
        return os.path.join(self.folder, self.names[index])


def inspect(folder: str | os.PathLike[str], data: DataConfig, multiple: int, bars: bool = False) -> Inspection:
    """Decode all images of a folder, several at a time, and find what may harm training on them.

    Args:
        folder: Folder with trainA and trainB, and optionally testA and testB.
        data: The data section of the configuration of training, except for the folder.
        multiple: Pixels by which the sides of the networks' input must be divisible.
        bars: Whether to show a progress bar.

    Raises:
        UserError: A folder is missing or empty, or a value range cannot be measured.
        MissingPackageError: The images need a package that is not installed.
    """
    folder = pathlib.Path(folder).expanduser()
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; expected a folder with trainA and trainB")
    found, notes = folder_source.find_splits(folder, SPLITS)
    paths = {split: [os.path.join(folder, name) for name in part] for split, part in found.items()}
    data, measured = measure_ranges(data, paths, bars, skip_unreadable=True)
    channels, value_ranges = (data.channels_x, data.channels_y), (data.value_range("x"), data.value_range("y"))
    parts = {split: np.zeros(len(part), MEASURES) for split, part in found.items()}
    starts = dict(zip(SPLITS, np.cumsum([0, *map(len, parts.values())]).tolist()))
    reasons: dict[int, str] = {}

    def measure_image(split: str, index: int) -> None:
        try:
            domain = "AB".index(split[-1])
            parts[split][index] = measure(paths[split][index], channels[domain], value_ranges[domain])
        except MissingPackageError:
            raise
        except Exception as error:  # the libraries raise almost anything for a damaged file
            reasons[starts[split] + index] = printable(loading.describe_error(error))

    loading.for_each_image(found, measure_image, "Inspecting", bars)
    names = [name for split in SPLITS for name in found[split]]
    splits = np.repeat(np.arange(len(SPLITS)), [len(found[split]) for split in SPLITS])
    measures = np.concatenate([parts[split] for split in SPLITS])
    found_kinds = _find(data, multiple, names, splits, measures, reasons)
    found_kinds.append(
        findings.of_values(find_narrow(data, paths, {split: _deep(data, split, parts[split]) for split in parts}))
    )
    kept = [finding for finding in found_kinds if finding.count]
    return Inspection(folder, channels, value_ranges, names, splits, measures, kept, [*notes, *measured])


def _deep(data: DataConfig, split: str, measures: np.ndarray) -> np.ndarray:
    """Return the indices of the readable images of a split that have 16 bits or a value range."""
    has_range = data.value_range("xy"["AB".index(split[-1])]) is not None
    return np.flatnonzero(measures["readable"] & (has_range | np.char.endswith(measures["kind"], "16 bit")))


def _find(
    data: DataConfig,
    multiple: int,
    names: Sequence[str],
    splits: np.ndarray,
    measures: np.ndarray,
    reasons: Mapping[int, str],
) -> list[Finding]:
    """Return a finding of each kind, empty ones included; `reasons` has why an image is unreadable, by index."""
    constant = measures["readable"] & (measures["deviation"].max(axis=1) < CONSTANT_DEVIATION)
    rich = np.flatnonzero(measures["readable"] & ~constant)
    sizes = loading.sizes_of(measures)
    misnamed = {
        index: f"is {format_}"
        for index, format_ in enumerate(measures["format"].tolist())
        if format_ in EXTENSIONS and not _has_extension(names[index], EXTENSIONS[format_])
    }
    return [
        findings.of_images(findings.UNREADABLE, np.array(sorted(reasons), int), reasons),
        *_find_copies(splits, measures, rich),
        findings.of_images(findings.CONSTANT, np.flatnonzero(constant)),
        findings.of_images(findings.MIXED, _rarer_color(splits[rich] % 2, measures["colored"][rich], rich)),
        findings.of_sizes(data, multiple, sizes, splits, np.flatnonzero(measures["readable"])),
        findings.of_counts(splits[measures["readable"]]),
        findings.of_images(findings.WRONG_EXTENSION, np.array(sorted(misnamed), int), misnamed),
    ]


def _has_extension(name: str, expected: tuple[str, ...]) -> bool:
    """Return whether a name has one of these extensions, or none."""
    return folder_source.stem(name) == name or name.lower().endswith(expected)


def _find_copies(splits: np.ndarray, measures: np.ndarray, rich: np.ndarray) -> list[Finding]:
    """Return the findings of equal and of similar images among those with these indices."""
    equal = _to_indices(copies.equal_groups(measures["pixels"][rich]), rich)
    distinct = np.setdiff1d(rich, [index for group in equal for index in group[1:]])
    colors = np.concatenate([measures["mean"], measures["deviation"]], axis=1)
    looks = measures[distinct]
    near = _to_indices(copies.near_groups(looks["look"], colors[distinct], SAME_COLORS, looks["miniature"]), distinct)
    same = {group[0]: group for group in equal}
    near = [sorted(index for first in group for index in same.pop(first, [first])) for group in near]
    duplicates = findings.of_copies(findings.DUPLICATES, equal, splits)[-1]
    *leaks, near_duplicates = findings.of_copies(findings.NEAR_DUPLICATES, [*same.values(), *near], splits)
    known = set(map(tuple, duplicates.groups))
    others = [group for group in near_duplicates.groups if tuple(group) not in known]
    return [*leaks, duplicates, Finding(findings.NEAR_DUPLICATES, others)]


def _to_indices(groups: Sequence[Sequence[int]], indices: np.ndarray) -> list[list[int]]:
    return [indices[list(group)].tolist() for group in groups]


def _rarer_color(domains: np.ndarray, colored: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the indices of the gray images of each domain, or of the colored ones if these are fewer."""
    are_few = np.array([domain in domains and np.mean(colored[domains == domain]) < 0.5 for domain in (0, 1)])
    return indices[colored == are_few[domains]]
