"""Inspection of a folder of images: each is decoded once, and only a few numbers of it are kept."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from cyclegan.config.data import DataConfig, ValueRange
from cyclegan.data import folder_source, loading
from cyclegan.data.folder_source import Name
from cyclegan.data.loading import ImageFiles
from cyclegan.data.sources import SPLITS
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.data.value_ranges import find_narrow, measure_ranges
from cyclegan.errors import UserError, printable
from cyclegan.images import formats, geometry, reader
from cyclegan.images.image import Header, ImageError, row_blocks, visible
from cyclegan.images.pillow_format import profile_name
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
MAX_SAMPLED = 256  # rows and columns of which the histogram counts the pixels
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
        ("channel_pages", np.int32),
        ("levels", np.float32, (3, BINS)),  # share of the pixels at equal intervals of the levels, by channel
        ("inside", np.float32),  # of the mask, in percent; NaN without a mask
    ]
)
GRAY_SPREAD = 8  # levels of 255 between the channels of gray pixels at most: JPEG rounds colors
THUMBNAIL = 128  # pixels; hashes of images that are reduced first are the same, but need less memory
BAND_NAMES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


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
    masks: Sequence[Source | None] = ()
    resized: np.ndarray | None = None  # heights and widths after resizing: int [N, 2]
    size: tuple[int, int] | None = None  # (height, width) of crops in training; `None` if it refuses the sizes

    def images(self, split: int, indices: Sequence[int]) -> ImageFiles:
        """Return some images of a split as training reads them, with 8 bits."""
        domain, measures = "XY"[split % 2], self.measures[indices]
        sizes = loading.sizes_of(measures) if self.resized is None else self.resized[indices]
        masks = [mask for i in indices if self.masks and (mask := self.masks[i])]
        return ImageFiles(
            *(SPLITS[split], [self.sources[i] for i in indices], measures, sizes, channels_of(self.data, domain)),
            value_range=self.data.value_range(domain),
            names=[self.names[i] for i in indices],
            nodata=self.data.nodata,
            masks=ImageFiles("masks", masks, measures, sizes, 1, is_mask=True) if len(masks) == len(indices) else None,
        )

    def crops(self, count: int) -> UnpairedDataset | None:
        """Return random training images as a dataset of `count` pairs, cropped as in training; `None` if none fit."""
        readable = [np.flatnonzero(self.measures["readable"] & (self.splits == split)) for split in (0, 1)]
        if self.size is None or not all(map(len, readable)):
            return None
        rng = np.random.default_rng(0)
        x, y = (self.images(split, rng.permutation(found)[:count]) for split, found in enumerate(readable))
        return UnpairedDataset(x, y, 1, self.size, seed=0, names=(x.names, y.names), epoch_size=f"{count}")


def channels_of(data: DataConfig, domain: str) -> int:
    """Return the number of channels of domain "X" or "Y"."""
    return data.channels_x if domain == "X" else data.channels_y


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
        raise UserError(f"{folder}: {folder_source.describe_missing(folder)}; expected a folder with trainA and trainB")
    found, notes = folder_source.find_splits(folder, data, SPLITS, bars, unreadable=[])
    paths = {split: [folder_source.below(folder, name) for name in part] for split, part in found.items()}
    data, measured = measure_ranges(data, paths, bars, skip_unreadable=True)
    names = [f"{name}" for split in SPLITS for name in found[split]]
    sources = [path for split in SPLITS for path in paths[split]]
    splits = np.repeat(np.arange(len(SPLITS)), [len(found[split]) for split in SPLITS])
    measures, reasons, counts = np.zeros(len(names), MEASURES), {}, np.ones(len(names), int)
    masks, bad_masks = _find_masks(folder, names, data)

    def measure_image(_: str, index: int) -> None:
        domain = "XY"[splits[index] % 2]
        channels = channels_of(data, domain)
        try:
            if isinstance(source := sources[index], str):
                with contextlib.suppress(*(ImageError,) * (data.stacks == "first")):
                    counts[index] = reader.count(source, channels, data.slice_axis)
            measures[index] = measure(source, channels, data.value_range(domain), data.nodata)
        except Exception as error:  # the libraries raise almost anything for a damaged file
            reasons[index] = printable(loading.describe_error(error))
            return
        try:
            if mask := masks[index]:
                pixels = reader.decode_mask(mask)
                measures["inside"][index] = 100 * pixels.mean()
                if pixels.shape[:2] != tuple(measures[["height", "width"]][index]):
                    bad_masks[index] = f"the mask has {geometry.format_size(pixels.shape)}"
        except Exception as error:
            bad_masks[index] = printable(loading.describe_error(error))

    loading.for_each_image({"all": names}, measure_image, "Inspecting", bars)
    deep = measures["readable"] & np.char.endswith(measures["kind"], "16 bit")
    deep |= measures["readable"] & np.array([data.value_range(each) is not None for each in "XY"])[splits % 2]
    of_splits = {split: np.flatnonzero(deep[splits == number]) for number, split in enumerate(SPLITS)}
    narrow = "; ".join(text for _, text in find_narrow(data, paths, of_splits))
    stacks = [
        text
        for number, split in enumerate(SPLITS)
        for text in folder_source.describe_stacks(
            *(split, found[split], counts[splits == number]),
            *(measures["channel_pages"][splits == number], channels_of(data, "XY"[number % 2])),
        )
    ]
    resized, size, refused = _sizes_in_training(data, multiple, names, splits, measures)
    unreadable, *others = _find(data, multiple, names, splits, measures, reasons)
    fitting = Finding(findings.REFUSED, [], note=refused), findings.of_details(findings.BAD_MASKS, bad_masks)
    kinds = [unreadable, *fitting, *others, Finding(findings.NARROW_VALUES, [], note=narrow)]
    kept = [finding for finding in kinds if finding.count]
    remarks = [*notes, *stacks, *measured]
    return Inspection(folder, data, names, splits, measures, kept, remarks, sources, masks, resized, size)


def _find_masks(
    folder: pathlib.Path, names: Sequence[str], data: DataConfig
) -> tuple[list[Name | None], dict[int, str]]:
    """Return the mask of each image, and the images that lack one, by index, in folders that have masks."""
    masks: list[Name | None] = [None] * len(names)
    missing = {}
    for domain in "AB":
        indices = [i for i, name in enumerate(names) if name.partition(os.sep)[0].endswith(domain)]
        if (folder / f"mask{domain}").is_dir():
            found = folder_source.find_masks(folder / f"mask{domain}", [names[i] for i in indices], data)
            masks = [dict(zip(indices, found)).get(i, mask) for i, mask in enumerate(masks)]
            missing.update({i: "no mask" for i in indices if not masks[i]})
    return masks, missing


def _sizes_in_training(
    data: DataConfig, multiple: int, names: Sequence[str], splits: np.ndarray, measures: np.ndarray
) -> tuple[np.ndarray, tuple[int, int] | None, str]:
    """Return sizes after resizing, int [N, 2], the size of the crops, and why training refuses the sizes, or ""."""
    sizes, readable = loading.sizes_of(measures), np.flatnonzero(measures["readable"])
    resized = np.zeros_like(sizes)
    resized[readable] = findings.resized_sizes(data, multiple, sizes[readable], splits[readable])
    try:
        named = [names[i] for i in readable]
        return resized, geometry.final_size(data, sizes[readable], resized[readable], named) if named else None, ""
    except UserError as error:
        return resized, None, printable(error)


def _find(
    data: DataConfig,
    multiple: int,
    names: Sequence[str],
    splits: np.ndarray,
    measures: np.ndarray,
    reasons: Mapping[int, str],
) -> list[Finding]:
    """Return a finding of each kind, empty ones included; `reasons` has texts about unreadable images, by index."""
    constant = measures["readable"] & (measures["deviation"].max(axis=1) < CONSTANT_DEVIATION)
    rich = np.flatnonzero(measures["readable"] & ~constant)
    sizes = loading.sizes_of(measures)
    misnamed = {
        index: f"is {format_.upper()}"
        for index, (name, format_) in enumerate(zip(names, measures["format"].tolist()))
        if format_ and formats.format_of(name) not in (None, format_)
    }
    return [
        findings.of_details(findings.UNREADABLE_FILES, reasons),
        *_find_copies(splits, measures, rich),
        findings.of_images(findings.CONSTANT, np.flatnonzero(constant)),
        findings.of_images(findings.MIXED, _rarer_color(splits[rich] % 2, measures["colored"][rich], rich)),
        *findings.of_sizes(data, multiple, sizes, splits, np.flatnonzero(measures["readable"])),
        findings.of_counts(splits[measures["readable"]]),
        findings.of_details(findings.WRONG_EXTENSION, misnamed),
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


def _rarer_color(domains: np.ndarray, colored: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the indices of the gray images of each domain, or of the colored ones if these are fewer."""
    are_few = np.array([domain in domains and np.mean(colored[domains == domain]) < 0.5 for domain in (0, 1)])
    return indices[colored == are_few[domains]]


def measure(source: Source, channels: int, value_range: ValueRange | None = None, nodata: float | None = None) -> tuple:
    """Decode an image (see `reader.decode` for the arguments and errors); return its `MEASURES`."""
    import imagehash  # slow to import

    header, decoded = reader.decode_with_header(source, channels, value_range is not None, nodata)
    pixels = image_to_levels(decoded, value_range).pixels if value_range else decoded.pixels
    mean, deviation, spread = _colors(visible(pixels))
    reduced = thumbnail(pixels, THUMBNAIL)
    look = int.from_bytes(np.packbits(imagehash.phash(reduced).hash).tobytes(), "big")
    miniature = np.asarray(reduced.convert("RGB").resize((MINIATURE, MINIATURE), Image.Resampling.BOX))
    content = hashlib.blake2b(f"{decoded.pixels.shape} {decoded.pixels.dtype}".encode(), digest_size=8)
    content.update(np.ascontiguousarray(decoded.pixels).data)
    looks = int.from_bytes(content.digest(), "big"), look, miniature
    return (
        True,
        *pixels.shape[:2],
        header.format,
        _kind(header),
        profile_name(header.profile),
        *looks,
        mean,
        deviation,
        spread > GRAY_SPREAD,
        header.channel_pages,
        _shares_of_levels(visible(pixels)),
        np.nan,
    )


def _shares_of_levels(pixels: np.ndarray) -> np.ndarray:
    """Return the shares of a sample of the pixels [h, w, 1 or 3] at `BINS` intervals of the levels, [3, BINS]."""
    step = -(-max(pixels.shape) // MAX_SAMPLED)
    bins = (pixels[::step, ::step] // ((np.iinfo(pixels.dtype).max + 1) // BINS)).reshape(-1, pixels.shape[2])
    counts = np.stack([np.bincount(channel, minlength=BINS) for channel in bins.T])
    return np.broadcast_to(counts / len(bins), (3, BINS))


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
    return BAND_NAMES.get(header.bands, f"{header.bands} bands") + depth


def _colors(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return mean and standard deviation by channel, and the largest difference between channels of a pixel."""
    mean = squares = np.zeros(pixels.shape[2])
    spread, count, level = 0.0, pixels.shape[0] * pixels.shape[1], np.iinfo(pixels.dtype).max / 255
    for rows in row_blocks(pixels.shape):
        block = pixels[rows].reshape(-1, pixels.shape[2]) / level
        mean, squares = mean + block.sum(axis=0) / count, squares + np.square(block).sum(axis=0) / count
        spread = max(spread, np.ptp(block, axis=1).max())
    return np.broadcast_to(mean, 3), np.broadcast_to(np.sqrt(np.maximum(squares - mean**2, 0)), 3), spread
