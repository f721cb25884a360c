"""The images of both domains, from TensorFlow Datasets, a folder or an embedded dataset.

Loading finds the errors of a dataset before training starts, except damaged pixels of images that are decoded later.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import io
import itertools
import os
import pathlib
import zlib
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from PIL import Image

from cyclegan import terminal
from cyclegan.config.data import DataConfig
from cyclegan.data import folder_source, loading, scenes, stripes
from cyclegan.data.folder_source import Name
from cyclegan.data.loading import ImageFiles
from cyclegan.data.value_ranges import RANGES, find_narrow, measure_ranges
from cyclegan.errors import UserError, counted, printable
from cyclegan.images import geometry, reader
from cyclegan.images.reader import Source

SPLITS = ("trainA", "trainB", "testA", "testB")
TEST_SPLITS = SPLITS[2:]
# Numbers of images and seeds of the embedded datasets. Images of one seed and number show the same scene.
SPLIT_SIZES = {"trainA": 256, "trainB": 288, "testA": 32, "testB": 32}
SEEDS = {
    "stripes": {"trainA": 1, "trainB": 2, "testA": 3, "testB": 3},
    "scenes": {"trainA": 1, "trainB": 1, "testA": 3, "testB": 3},
}
COMPARED = 2  # images on which exports are compared, at each size
RAM_FRACTION = 0.25  # share of the free memory up to which --cache auto keeps decoded images in memory


@dataclasses.dataclass(frozen=True)
class Domains:
    """Images of both domains; training images are `None` if they were not loaded."""

    files: Mapping[str, ImageFiles]  # all images and masks, such as "trainA" and "masks of trainA"
    train_x: ImageFiles | None
    train_y: ImageFiles | None
    test_x: ImageFiles
    test_y: ImageFiles
    in_decay: tuple[ImageFiles, ImageFiles] | None  # training images in other sizes, with --crop_until_decay
    size: tuple[int, int]  # (height, width) in pixels of the crops that the networks see
    notes: Sequence[str]  # remarks for the user
    value_ranges: Mapping[str, str | None]  # the settings of these names, measured where they were "auto"
    pairs: np.ndarray | None  # indices of training images of the same name, with --paired_names

    def fingerprint(self) -> dict[str, str]:
        """Return texts that identify the dataset, whatever its folder is; see `RunDirectory.check_data`."""
        counts, lengths = {}, {}
        for split, part in self.files.items():
            names = "\0".join(part.names).encode(errors="surrogateescape")
            counts[split] = f"{len(part)} images ({zlib.crc32(names):08x})"
            sizes = part.facts["length"]
            checksum = zlib.crc32(sizes.astype("<i8").tobytes())
            lengths[f"{split} bytes"] = f"{sizes.sum()} bytes ({checksum:08x})"
        return {**counts, **lengths}

    def checksums(self) -> dict[str, int]:
        """Return a checksum of each file by its name, which tells other content of the same length."""
        files: dict[str, Source] = {}
        for split, part in self.files.items():
            for name, source in zip(part.names or map(str, range(len(part))), part.sources):
                file = name.rpartition("[")[0] if isinstance(source, reader.Slice) else name
                files[f"{split}: {file}"] = source
        with concurrent.futures.ThreadPoolExecutor() as pool:
            return dict(zip(files, pool.map(reader.checksum, files.values())))


def load_domains(
    data: DataConfig,
    multiple: int,
    *,
    local_workers: int = 0,
    splits: Sequence[str] = SPLITS,
    bars: bool = False,
    leave_out: Collection[str] = (),
) -> Domains:
    """Load the images of both domains.

    Images are uint8. If any image of the dataset has 16 bits, or a domain has a value range, all images are uint16.
    8-bit values without a range are scaled by 257.

    Args:
        data: The data section of the configuration.
        multiple: Pixels by which the sides of the networks' input must be divisible.
        local_workers: Number of workers on this machine if several train together; 0 if this process trains alone.
            Workers share the memory. Each one needs only some images, and decodes an image when it is first used.
        splits: Splits to load: `SPLITS` or `TEST_SPLITS`.
        bars: Whether to show progress bars.
        leave_out: Names of images that can't be read, as if they were not there.

    Raises:
        UserError: Images are missing, cannot be decoded, or do not fit --preprocess or --paired_names.
    """
    with terminal.phase("Finding the images", bars):
        unreadable: list[str] = []
        sources, names, notes = _find(data, splits, bars, unreadable)
    if leave_out:
        unreadable.clear()
        kept = {split: [f"{name}" not in leave_out for name in part] for split, part in names.items()}
        sources = {split: [*itertools.compress(part, kept[split])] for split, part in sources.items()}
        names = {split: [*itertools.compress(part, kept[split])] for split, part in names.items()}
    channels = {split: data.channels(split) for split in splits}
    ranged = [split for split in splits if (data.value_range_x if split.endswith("A") else data.value_range_y)]
    facts = loading.check_files(sources, channels, bars, ranged, unreadable)
    stacks = folder_source.describe_stacks(data, names, facts)
    data, measured = measure_ranges(data, sources, bars)
    dtype = np.dtype(np.uint16 if any(part["deep"].any() for part in facts.values()) else np.uint8)
    files = {
        split: ImageFiles(
            split,
            sources[split],
            facts[split],
            geometry.resized_sizes(data, multiple, loading.sizes_of(facts[split]), split.startswith("train")),
            channels[split],
            dtype,
            data.value_range(split),
            [f"{name}" for name in names[split]],
            nodata=data.nodata,
        )
        for split in splits
    }
    masked = _add_masks(data, files, bars)
    size = geometry.final_size(
        data,
        np.concatenate([loading.sizes_of(part.facts) for part in files.values()]),
        np.concatenate([part.sizes for part in files.values()]),
        [name for part in files.values() for name in part.names],
    )
    pairs, paired = _find_pairs(data, files)
    narrow = [*find_narrow(data, sources, facts)]
    in_decay = _uncropped(data, multiple, files)
    decoded = _decode(data, {**_with_masks(files), **_with_masks(in_decay)}, local_workers, bars)
    return Domains(
        _with_masks(files),
        files.get("trainA"),
        files.get("trainB"),
        files["testA"],
        files["testB"],
        (in_decay["trainA in decay"], in_decay["trainB in decay"]) if in_decay else None,
        size,
        (*notes, *stacks, *paired, *masked, *measured, *narrow, *decoded),
        {name: getattr(data, name) for name in RANGES.values()},
        pairs,
    )


def check_dataset(data: DataConfig) -> None:
    """Raise `UserError` if the folder of a dataset does not exist."""
    if data.folder is not None and not data.folder.is_dir():
        from cyclegan.data import tfds_source

        raise UserError(
            f"--dataset {data.dataset}: {folder_source.describe_missing(data.folder)}; expected a folder with trainA"
            f" and trainB, stripes, scenes, or cycle_gan/NAME with NAME one of"
            f" {', '.join(tfds_source.cycle_gan_names())}"
        )


def _find(
    data: DataConfig, splits: Sequence[str], bars: bool, unreadable: list[str] | None = None
) -> tuple[Mapping[str, Sequence[Source]], Mapping[str, Sequence[Name]], Sequence[str]]:
    """Return paths or contents of files by split, names of the images by split, and remarks for the user.

    See `folder_source.expand` for `unreadable`.
    """
    if data.is_embedded:
        test_shape = data.image_shape if data.preprocess == "resize_and_crop" else data.load_shape
        sides = {split: max(data.load_shape if split.startswith("train") else test_shape) for split in splits}
        return *_draw_files(data, sides), ()
    if (folder := data.folder) is None:
        from cyclegan.data import tfds_source  # slow to import

        builder = tfds_source.cycle_gan_builder(data.dataset, data.tfds_folder)
        return *tfds_source.read(builder, splits, data.max_dataset_size, bars), ()
    check_dataset(data)
    found, notes = folder_source.find_splits(folder, data, splits, bars, unreadable)
    names = {split: part[: data.max_dataset_size] for split, part in found.items()}
    return {split: [folder_source.below(folder, name) for name in part] for split, part in names.items()}, names, notes


def draw(dataset: str, split: str, index: int, size: int) -> np.ndarray:
    """Draw an image of an embedded dataset: uint8 [size, size, 3]."""
    rng = np.random.default_rng([SEEDS[dataset][split], index])
    if dataset == "stripes":
        return stripes.draw(stripes.random_scene(rng), "horse" if split.endswith("A") else "zebra", size)
    return scenes.draw(scenes.random_scene(rng), "labels" if split.endswith("A") else "rendering", size)


def _draw_files(data: DataConfig, sides: Mapping[str, int]) -> tuple[dict[str, list[bytes]], dict[str, list[str]]]:
    """Draw the images of an embedded dataset as PNG, with sides in pixels by split; return them and their names."""

    def png(split: str, index: int) -> bytes:
        file = io.BytesIO()
        Image.fromarray(draw(data.dataset, split, index, sides[split])).save(file, "png", compress_level=1)
        return file.getvalue()

    files, names = {}, {}
    with concurrent.futures.ThreadPoolExecutor(loading.available_cores()) as pool:
        for split, side in sides.items():
            indices = range(SPLIT_SIZES[split])[: data.max_dataset_size]
            files[split] = list(pool.map(png, [split] * len(indices), indices))
            names[split] = [f"{data.dataset}/{side}/{split}[{i}]" for i in indices]
    return files, names


def _uncropped(data: DataConfig, multiple: int, files: Mapping[str, ImageFiles]) -> dict[str, ImageFiles]:
    """Return the training images of --crop_until_decay in the sizes that they have while the learning rates decay."""
    side = {"resize_and_crop": data.image_size, "scale_width_and_crop": data.image_width}.get(data.preprocess)
    if not data.crop_until_decay or side is None:
        return {}
    small = dataclasses.replace(data, load_size=side)
    return {
        f"{split} in decay": part.resized(
            geometry.resized_sizes(small, multiple, loading.sizes_of(part.facts), training=True)
        )
        for split, part in files.items()
        if split.startswith("train")
    }


def _add_masks(data: DataConfig, files: Mapping[str, ImageFiles], bars: bool) -> Sequence[str]:
    """Give the images of a folder with maskA or maskB their masks; return remarks for the user."""
    notes: list[str] = []
    for domain in "AB":
        if not (data.folder and (folder := data.folder / f"mask{domain}").is_dir()):
            continue
        if not data.same_channels:
            raise UserError(
                f"{folder}: outside of masks, images stay as they are; expected --channels_x equal to --channels_y"
            )
        of_domain = {split: part for split, part in files.items() if split.endswith(domain)}
        names = [name for part in of_domain.values() for name in part.names]
        found = folder_source.find_masks(folder, names, data)
        masks = [mask for mask in found if mask]
        if missing := [printable(name) for name, mask in zip(names, found) if not mask]:
            more = ", ..." * (len(missing) > loading.MAX_NAMED)
            raise UserError(
                f"{folder}: no mask for {len(missing)} of {len(names)} images; expected an image of the same name for"
                f" each of them: {', '.join(missing[: loading.MAX_NAMED])}{more}"
            )
        for split, part in of_domain.items():
            paths, masks = masks[: len(part)], masks[len(part) :]
            part.masks = _load_masks(folder, split, part, paths, bars)
        notes.append(f"Masks: {folder} has one for each of {len(names)} images; the networks change nothing outside")
    return notes


def _with_masks(files: Mapping[str, ImageFiles]) -> dict[str, ImageFiles]:
    return {**files, **{f"masks of {name}": part.masks for name, part in files.items() if part.masks}}


def _load_masks(folder: pathlib.Path, split: str, images: ImageFiles, paths: Sequence[Name], bars: bool) -> ImageFiles:
    """Return the masks of some images; raise `UserError` if they cannot be used or have other sizes."""
    title = f"masks of {split}"
    facts = loading.check_files({title: paths}, {title: 1}, bars, ranged=[title])[title]
    sizes, expected = loading.sizes_of(facts), loading.sizes_of(images.facts)
    for i in np.flatnonzero((sizes != expected).any(axis=1)).tolist():
        raise UserError(
            f"{printable(paths[i])} has {geometry.format_size(sizes[i])}; expected {geometry.format_size(expected[i])},"
            f" as its image {printable(images.names[i])} has"
        )
    names = [os.path.relpath(f"{path!s}", folder) for path in paths]
    return ImageFiles(title, paths, facts, images.sizes, channels=1, names=names, is_mask=True)


def _find_pairs(data: DataConfig, files: Mapping[str, ImageFiles]) -> tuple[np.ndarray | None, Sequence[str]]:
    """Return the pairs of training images, if the settings ask for them, and remarks for the user."""
    if not data.has_pairs or "trainA" not in files:
        return None, ()
    pairs = folder_source.find_pairs(files["trainA"], files["trainB"])
    counts = (f"{counted(len(files[split]) - len(pairs), 'more image')} in {split}" for split in RANGES)
    return pairs, [
        f"Pairs: {len(pairs)} names are in trainA and in trainB ({', '.join(counts)}); they are used together with"
        f" probability {data.paired_share:g}"
    ]


def _decode(data: DataConfig, files: Mapping[str, ImageFiles], local_workers: int, bars: bool) -> Sequence[str]:
    """Decode the images now, or let them be decoded when they are used; return remarks for the user."""
    keep = data.cache == "ram"
    if data.cache == "auto":
        share = RAM_FRACTION * loading.free_bytes() / (local_workers or 1)
        needed = sum(part.nbytes for part in files.values())
        keep = needed <= (share if data.cache_gb is None else data.cache_gb * 1e9)
    if keep and not local_workers:
        loading.decode_all(files, bars)
        return ()
    if keep:
        loading.check_memory(files, local_workers)
        for part in files.values():
            part.keep = True
    kept = "kept in memory from then on" if keep else "not kept (--cache none)"
    return (f"Images are decoded when they are needed, and {kept}",)


def comparison_images(
    data: DataConfig, direction: str, multiple: int, files: Sequence[str] = (), size: tuple[int, int] | None = None
) -> tuple[list[np.ndarray], str]:
    """Return images of the source domain, uint8 [H, W, C], and a description of them.

    Without `files`, they are the first held-out images of the dataset, or drawn images if the dataset is gone.

    They have the `size` (height, width) in pixels, by default the size of the training, and again a larger one. The
    sides of the generators' input must be divisible by `multiple`.
    """
    split = "testA" if direction == "x2y" else "testB"
    channels = data.channels(split)
    height, width = data.image_shape
    sizes = [size] if size else [(height, width), (height + multiple, width + 2 * multiple)]
    shown = " and ".join(f"{height} x {width}" for height, width in sizes) + " pixels"
    origin, sources = ("given", list(files)) if files else (f"{data.dataset}, {split}", _held_out(data, split))
    if not sources:
        dataset, bands = data.dataset if data.is_embedded else "stripes", np.arange(channels) % 3
        drawn = [(i, *each) for each in sizes for i in range(COMPARED)]
        images = [draw(dataset, split, i, max(h, w))[:h, :w, bands] for i, h, w in drawn]
        return images, f"{COMPARED} drawn images, {shown}"
    at_each_size = [file for _ in sizes for file in sources]
    resized = np.array([each for each in sizes for _ in sources])
    value_range = data.value_range(split)
    facts = loading.check_files({"": at_each_size}, {"": channels}, ranged=[""] if value_range else [])[""]
    found = ImageFiles("", at_each_size, facts, resized, channels, value_range=value_range, nodata=data.nodata)
    loading.decode_all({"": found})
    return [found[i] for i in range(len(found))], f"{counted(len(sources), 'image')} ({printable(origin)}), {shown}"


def _held_out(data: DataConfig, split: str) -> Sequence[Source]:
    """Return the first held-out images of a folder or a prepared dataset; none if it is gone."""
    is_prepared = data.is_tfds and any((data.tfds_folder / data.dataset).glob("*/dataset_info.json"))
    if data.folder or is_prepared:
        with contextlib.suppress(UserError):
            return _find(dataclasses.replace(data, max_dataset_size=COMPARED), [split], bars=False)[0][split]
    return ()
