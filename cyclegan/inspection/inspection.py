"""Inspection of a folder of images: each is decoded once, and only a few numbers of it are kept."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from cyclegan.config.data import DataConfig, ValueRange
from cyclegan.data import folder_source, loading
from cyclegan.data.folder_source import Found
from cyclegan.data.sources import SPLITS, Domains, find, load_domains
from cyclegan.data.value_ranges import find_narrow, measure_ranges
from cyclegan.errors import UserError, describe_missing, first_line, printable
from cyclegan.images import formats, reader
from cyclegan.images.image import Header, ImageError, profile_name, visible
from cyclegan.images.reader import Source
from cyclegan.images.value_range import image_to_levels, to_depth
from cyclegan.inspection import findings
from cyclegan.inspection.findings import Finding

FLAGS = (  # settings that an inspection takes from training
    *("preprocess", "image_size", "image_width", "load_size"),
    *("channels_x", "channels_y", "value_range_x", "value_range_y", "nodata", "stacks", "slice_axis", "film_every"),
)
CONSTANT_DEVIATION = 2  # levels of 255; less is nearly constant
SAME_COLORS = 8  # levels of 255 between means or deviations of near duplicates at most
MINIATURE = 8  # pixels; two masks or drawings may have equal hashes, but not equal miniatures
BINS = 32  # of the histogram of levels
MAX_SAMPLED = 256  # rows and columns whose pixels give the colors and the histogram
MEASURES = np.dtype(
    [
        ("readable", bool),
        ("height", np.int32),  # of the upright image, in pixels
        ("width", np.int32),
        ("format", "U16"),  # by content
        ("kind", "U24"),  # bands and depth
        ("profile", "U24"),  # name of the ICC profile
        ("pixels", np.uint64),  # hash of the decoded pixels
        ("look", np.uint64),  # perceptual hash
        ("miniature", np.uint8, (MINIATURE, MINIATURE, 3)),
        ("mean", np.float32, (3,)),  # by channel, in levels of 255; gray images have one channel three times
        ("deviation", np.float32, (3,)),
        ("colored", bool),
        ("transparent", np.float32),  # share of the light that the background gives, 0 for opaque images
        ("partial_of", np.int32),  # bands of the file if only some of them are used, otherwise 0
        ("images", np.int32),  # of the file
        ("deep", bool),  # more than 8 bits per band, or a value range
        ("levels", np.float32, (3, BINS)),  # share of the pixels at equal intervals of the levels, by channel
    ]
)
MIN_TRANSPARENT = 0.01  # share from which on transparency matters
GRAY_SPREAD = 8  # levels of 255 between the channels of gray pixels at most: JPEG rounds colors
THUMBNAIL = 128  # pixels; hashes of images that are reduced first are the same, but need less memory
BAND_NAMES = {1: "L", 3: "RGB"}


@dataclasses.dataclass(frozen=True)
class Inspection:
    """Facts about the images of a folder; N in all splits together."""

    folder: pathlib.Path
    data: DataConfig  # the settings of training, with measured value ranges
    names: Sequence[str]  # paths relative to the folder
    splits: np.ndarray  # index of the split of each image in `SPLITS`: int [N]
    measures: np.ndarray  # `MEASURES` [N]
    findings: Sequence[Finding]  # most serious first
    notes: Sequence[str]  # remarks for the user
    sources: Sequence[Source]  # the images
    domains: Domains | None = None  # the dataset as training loads it; `None` if training refuses it


def inspect(folder: str | os.PathLike[str], data: DataConfig, multiple: int, bars: bool = False) -> Inspection:
    """Decode all images of a folder, several at a time, and find what may harm training on them.

    Args:
        folder: Folder with trainA and trainB, and optionally testA and testB.
        data: The settings of training, except for the folder.
        multiple: Pixels by which the sides of the networks' input must be divisible.
        bars: Whether to show a progress bar.
    """
    folder = pathlib.Path(folder).expanduser()
    if not folder.is_dir():
        raise UserError(f"{folder}: {describe_missing(folder)}; expected a folder with trainA and trainB")
    data = dataclasses.replace(data, dataset=os.path.abspath(folder), cache="none")
    found = find(data, bars=bars)
    data, measured = measure_ranges(data, found.sources, bars)
    names = [name for split in SPLITS for name in found.names[split]]
    sources = [source for split in SPLITS for source in found.sources[split]]
    splits = np.repeat(np.arange(len(SPLITS)), [len(found.names[split]) for split in SPLITS])
    measures, reasons = np.zeros(len(names), MEASURES), {}

    def measure_image(index: int) -> None:
        split, source, images = SPLITS[splits[index]], sources[index], 1
        try:
            if isinstance(source, str):
                with contextlib.suppress(ImageError):  # only the first of its images is used
                    images = reader.count(source, data.channels(split), data.slice_axis)
            measures[index] = measure(source, data.channels(split), data.value_range(split), data.nodata)
            measures["images"][index] = images
        except Exception as error:  # the libraries raise almost anything for a damaged file
            reasons[index] = printable(first_line(error))

    loading.for_each(range(len(names)), measure_image, "Inspecting", bars)
    facts = {split: measures[splits == number] for number, split in enumerate(SPLITS)}
    narrow = "; ".join(find_narrow(data, found.sources, facts))
    readable = {split: part["readable"] for split, part in facts.items()}
    domains, masked, blank, refused = None, [], [], ""
    if all(part.any() for part in readable.values()):
        kept_sources = {split: [*itertools.compress(found.sources[split], readable[split])] for split in SPLITS}
        kept_names = {split: [*itertools.compress(found.names[split], readable[split])] for split in SPLITS}
        try:
            domains = load_domains(data, multiple, bars=bars, found=Found(kept_sources, kept_names))
            for name, shares in _shares_inside(domains).items():
                low, middle, high = np.percentile([100 * share for share in shares.values()], (0, 50, 100))
                masked.append(f"{name}: {low:.0f} to {high:.0f} % of the pixels are inside, median {middle:.0f} %")
                blank += [printable(f"{name}: {mask}") for mask, share in shares.items() if not share]
        except UserError as error:
            refused = printable(error)
    unreadable, *others = _find(data, multiple, names, splits, measures, reasons)
    kinds = [unreadable, Finding(findings.REFUSED, [], note=refused), *others]
    kinds += [
        Finding(findings.NARROW_VALUES, [], note=narrow),
        Finding(findings.EMPTY_MASKS, [], note=", ".join(blank)),
    ]
    remarks = [*found.notes, *masked, *folder_source.describe_stacks(data, found, facts), *measured]
    kinds = [finding for finding in kinds if finding.count]
    return Inspection(folder, data, names, splits, measures, kinds, remarks, sources, domains)


def _shares_inside(domains: Domains) -> dict[str, dict[str, float]]:
    """Return the share of the pixels inside each mask by split and name; raise `UserError` if one can't be decoded."""
    splits = {name: masks for name, masks in domains.files.items() if masks.is_mask}
    return {
        split: {str(name): masks[i].mean() for i, name in enumerate(masks.names)} for split, masks in splits.items()
    }


def _find(
    data: DataConfig,
    multiple: int,
    names: Sequence[str],
    splits: np.ndarray,
    measures: np.ndarray,
    reasons: Mapping[int, str],
) -> list[Finding]:
    """Return a finding of each kind, empty ones included; `reasons` has texts about unreadable images, by index."""
    once = np.unique(names, return_index=True)[1]  # a single image is held out, too
    readable = np.intersect1d(np.flatnonzero(measures["readable"]), once)
    is_constant = measures["deviation"][readable].max(axis=1) < CONSTANT_DEVIATION
    constant, rich = readable[is_constant], readable[~is_constant]
    mixed = _rarer(splits[rich] % 2, measures["colored"][rich], rich)
    transparent = np.flatnonzero(measures["transparent"] > MIN_TRANSPARENT)
    transparent = np.intersect1d(transparent, _rarer(splits[rich] % 2, measures["transparent"][rich] > 0, rich))
    shares = {index: f"{measures['transparent'][index]:.0%} transparent" for index in transparent.tolist()}
    misnamed = {
        index: f"is {format_.upper()}"
        for index, (name, format_) in enumerate(zip(names, measures["format"].tolist()))
        if format_ and formats.format_of(name) not in (None, format_)
    }
    return [
        findings.of_unreadable(reasons),
        *_find_copies(splits, measures, rich),
        findings.of_images(findings.CONSTANT, dict.fromkeys(constant.tolist(), "")),
        findings.of_images(findings.MIXED, dict.fromkeys(mixed.tolist(), "")),
        findings.of_images(findings.TRANSPARENT, shares),
        *findings.of_sizes(data, multiple, loading.sizes_of(measures), splits, readable),
        findings.of_counts(splits[readable]),
        findings.of_images(findings.WRONG_EXTENSION, misnamed),
    ]


def _find_copies(splits: np.ndarray, measures: np.ndarray, rich: np.ndarray) -> list[Finding]:
    """Return the findings of equal and of similar images among the indices `rich`."""
    equal = [rich[group].tolist() for group in findings.equal_groups(measures["pixels"][rich])]
    distinct = np.setdiff1d(rich, [index for group in equal for index in group[1:]])
    colors = np.concatenate([measures["mean"], measures["deviation"]], axis=1)
    looks = measures[distinct]
    near = findings.near_groups(looks["look"], colors[distinct], SAME_COLORS, looks["miniature"])
    same = {group[0]: group for group in equal}
    near = [sorted(i for first in distinct[group].tolist() for i in same.pop(first, [first])) for group in near]
    duplicates = findings.of_copies(findings.DUPLICATES, equal, splits)[-1]
    *leaks, near_duplicates = findings.of_copies(findings.NEAR_DUPLICATES, [*same.values(), *near], splits)
    known = set(map(tuple, duplicates.groups))
    others = [group for group in near_duplicates.groups if tuple(group) not in known]
    return [*leaks, duplicates, Finding(findings.NEAR_DUPLICATES, others)]


def _rarer(domains: np.ndarray, holds: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the indices of the images of a domain for which something holds, or of the others if these are fewer."""
    are_few = np.array([domain in domains and np.mean(holds[domains == domain]) < 0.5 for domain in (0, 1)])
    return indices[holds == are_few[domains]]


def measure(source: Source, channels: int, value_range: ValueRange | None = None, nodata: float | None = None) -> tuple:
    """Decode an image (see `reader.decode` for the arguments and errors); return its `MEASURES`."""
    import imagehash  # slow to import

    header, decoded = reader.decode_with_header(source, channels, value_range is not None, nodata)
    pixels = image_to_levels(decoded, value_range).pixels if value_range else decoded.pixels
    reduced = thumbnail(pixels, THUMBNAIL)
    look = int.from_bytes(np.packbits(imagehash.phash(reduced).hash).tobytes(), "big")
    miniature = np.asarray(reduced.convert("RGB").resize((MINIATURE, MINIATURE), Image.Resampling.BOX))
    content = hashlib.blake2b(f"{decoded.pixels.shape} {decoded.pixels.dtype}".encode(), digest_size=8)
    content.update(np.ascontiguousarray(decoded.pixels).data)
    step = -(-max(pixels.shape[:2]) // MAX_SAMPLED)
    sample = visible(pixels)[::step, ::step]
    levels = sample.reshape(-1, sample.shape[2]) * (255 / np.iinfo(sample.dtype).max)
    counts = [np.bincount(channel, minlength=BINS) for channel in (levels * (BINS / 256)).astype(int).T]
    return (
        True,
        *pixels.shape[:2],
        header.format,
        _kind(header),
        profile_name(header.profile),
        int.from_bytes(content.digest(), "big"),
        look,
        miniature,
        np.broadcast_to(levels.mean(axis=0), 3),
        np.broadcast_to(levels.std(axis=0), 3),
        np.ptp(levels, axis=1).max() > GRAY_SPREAD,
        0 if decoded.opacity is None else 1 - decoded.opacity.mean() / np.iinfo(decoded.opacity.dtype).max,
        header.partial_of(channels),
        1,
        header.deep or value_range is not None,
        np.broadcast_to(np.stack(counts) / len(levels), (3, BINS)),
    )


def thumbnail(pixels: np.ndarray, side: int) -> Image.Image:
    """Return a reduced image of 8 bits, at most `side` pixels wide and high; `pixels` are as decoded: [h, w, C]."""
    levels = to_depth(visible(pixels), np.uint8)
    image = Image.fromarray(levels if levels.shape[2] == 3 else levels[..., 0])
    image.thumbnail((side, side))
    return image


def outlined(pixels: np.ndarray, inside: np.ndarray) -> Image.Image:
    """Return an image of 8 bits, [h, w, C], with the border of its mask, bool [h, w, 1], in red."""
    levels = np.broadcast_to(to_depth(visible(pixels), np.uint8), (*inside.shape[:2], 3)).copy()
    border = np.zeros_like(inside[..., 0])
    for axis in (0, 1):
        change = np.diff(inside[..., 0], axis=axis)
        border |= np.pad(change, [(0, int(axis == 0)), (0, int(axis == 1))])
    levels[border] = (255, 0, 0)
    return Image.fromarray(levels)


def _kind(header: Header) -> str:
    """Return the name of the bands and the depth of a file."""
    if header.mode and not header.deep:
        return header.mode
    depth = f" {header.other_values}" if header.other_values else " 16 bit" * header.deep
    colors = BAND_NAMES.get(header.bands - header.opacity) if header.channel_pages == 1 else None
    return (f"{colors}{'A' * header.opacity}" if colors else f"{header.bands} bands") + depth
