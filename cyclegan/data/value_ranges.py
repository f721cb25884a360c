"""Value ranges of the domains: what "auto" means, and ranges that leave the networks little contrast."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cyclegan.config.data import AUTO, DataConfig, parse_range
from cyclegan.data import loading
from cyclegan.errors import UserError, counted
from cyclegan.images import reader
from cyclegan.images.reader import Source
from cyclegan.images.value_range import FULL_RANGE, is_missing

RANGES = {"trainA": "value_range_x", "trainB": "value_range_y"}  # settings by the split to measure them on
PERCENTILES = (0.1, 99.9)  # of the values of training images: the range "auto"
NARROW = 1 / 8  # share of the range; values that fill less are reported
FEW_SAMPLED = 4  # images that are decoded to find a narrow range
MAX_SAMPLED = 200  # images that are decoded to measure a range
SAMPLED_VALUES = 20_000  # of each sampled image


def sample_values(
    sources: Sequence[Source], channels: int, nodata: float | None = None, bars: bool = False
) -> np.ndarray:
    """Return values of random pixels of some images at equal distances in `sources`: float64 [images, values].

    NaN, pixels that `is_missing` finds, images without others, and images that cannot be decoded are left out.
    """
    indices = np.unique(np.linspace(0, len(sources) - 1, MAX_SAMPLED).round().astype(int))
    values = np.full((len(indices), SAMPLED_VALUES), np.nan)

    def sample(position: int) -> None:
        index = indices[position]
        with contextlib.suppress(loading.UnreadableImageError), loading.naming_image(sources[index], "", index):
            image = reader.decode_values(sources[index], channels, nodata=nodata)
            places = np.random.default_rng(index).integers(0, image.pixels.size, SAMPLED_VALUES)
            chosen, pixels = image.pixels.flat[places], image.pixels.reshape(-1, channels)[places // channels]
            found = chosen[~(np.isnan(chosen) | is_missing(pixels, image.metadata.nodata))]
            values[position] = np.resize(found, SAMPLED_VALUES) if found.size else np.nan  # repeats them

    loading.for_each(range(len(indices)), sample, "Sampling values", bars)
    return values[~np.isnan(values[:, 0])]


def measure_ranges(
    data: DataConfig, sources: Mapping[str, Sequence[Source]], bars: bool = False
) -> tuple[DataConfig, Sequence[str]]:
    """Measure the value ranges that are "auto", on the images of their split; return the new settings, and remarks."""
    notes = []
    for split, name in RANGES.items():
        if getattr(data, name) != AUTO or split not in sources:
            continue
        values = sample_values(sources[split], data.channels(split), data.nodata, bars)
        if not len(values):
            raise UserError(f"--{name} {AUTO}: no image of {split} can be read and has data; expected one: repair them")
        text = ":".join(f"{value:.9g}" for value in np.percentile(values, PERCENTILES))
        what = "percentiles {} and {} of the values of".format(*PERCENTILES)
        what += f" {counted(len(values), 'image')} of {split}"
        if not parse_range(text):
            raise UserError(f"--{name} {AUTO}: {what} are {text}; expected two numbers: give LO:HI")
        measured: dict[str, Any] = {name: text}
        data = dataclasses.replace(data, **measured)
        notes.append(f"--{name} {text}: {what}; fixed for this run")
    return data, notes


def find_narrow(
    data: DataConfig, sources: Mapping[str, Sequence[Source]], facts: Mapping[str, np.ndarray]
) -> Iterator[str]:
    """Decode a few images; yield remarks about splits whose values fill a small part of their range.

    `facts` has "deep" of each image by split. Those with 16 bits or a value range are decoded.
    """
    for split, name in RANGES.items():
        if split not in facts or not len(chosen := np.flatnonzero(facts[split]["deep"])):
            continue
        sampled = [sources[split][i] for i in chosen[:: -(-len(chosen) // FEW_SAMPLED)]]
        if not len(found := sample_values(sampled, data.channels(split), data.nodata)):
            continue
        values = np.percentile(found, PERCENTILES)
        low, high = data.value_range(split) or FULL_RANGE
        if np.ptp(np.clip(values, low, high)) < NARROW * (high - low):
            advice = f"try --{name} {values[0]:.9g}:{values[1]:.9g}, or {AUTO}"
            if len(chosen) < len(facts[split]):
                advice = f"they are {len(chosen)} of {len(facts[split])} images: convert them to 8 bits like the others"
            yield (
                f"{split} has values from {values[0]:.9g} to {values[1]:.9g}, and its range is {low:.9g} to {high:.9g},"
                f" so the networks see little contrast; {advice}"
            )
