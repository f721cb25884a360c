"""The images of both domains, from TensorFlow Datasets, a folder or an embedded dataset.

Loading finds the errors of a dataset before training starts, except damaged pixels of images that are decoded later.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cyclegan import terminal
from cyclegan.config.data import AUTO, DataConfig
from cyclegan.data import folder_source, loading, memory
from cyclegan.data.cache import DiskStore, MemoryStore, Store
from cyclegan.data.lazy_images import LazyImages
from cyclegan.data.pairs import find_pairs
from cyclegan.data.value_ranges import RANGES, find_narrow, measure_ranges
from cyclegan.errors import UserError
from cyclegan.images import geometry
from cyclegan.images.image_array import ImageArray
from cyclegan.images.reader import Source

SPLITS = ("trainA", "trainB", "testA", "testB")
TEST_SPLITS = SPLITS[2:]
RAM_FRACTION = 0.25  # share of the free memory up to which --cache auto keeps decoded images in memory


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """Images of one domain and split.

    Attributes:
        images: uint8 or uint16 [N, h, w, C].
        names: Names of the images.
        facts: Facts about their files, `reader.FACTS_DTYPE` [N].
    """

    images: ImageArray
    names: Sequence[str]
    facts: np.ndarray

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.names)


@dataclasses.dataclass(frozen=True)
class Domains:
    """Images of both domains.

    Attributes:
        train_x: Training images of X; `None` if they were not loaded.
        train_y: Training images of Y; `None` if they were not loaded.
        test_x: Validation images of X.
        test_y: Validation images of Y.
        size: (height, width) in pixels of the crops that the networks see.
        notes: Remarks for the user.
        value_ranges: The settings `value_range_x` and `value_range_y`, measured where they were "auto".
        pairs: Indices of training images of the same name, see `find_pairs`; `None` without `--paired_names`.
    """

    train_x: ImageSet | None
    train_y: ImageSet | None
    test_x: ImageSet
    test_y: ImageSet
    size: tuple[int, int]
    notes: Sequence[str] = ()
    value_ranges: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    pairs: np.ndarray | None = None

    def fingerprint(self) -> dict[str, str]:
        """Return texts that identify the dataset, wherever it lies and however it is cached.

        A resumed run requires the same names in the same order, and warns of other lengths of files: see
        `RunDirectory.check_data`.
        """
        counts, lengths = {}, {}
        for split, part in zip(SPLITS, (self.train_x, self.train_y, self.test_x, self.test_y)):
            if part is not None:
                names = "\0".join(part.names).encode(errors="surrogateescape")
                counts[split] = f"{len(part)} images ({zlib.crc32(names):08x})"
                sizes = part.facts["length"]
                checksum = zlib.crc32(sizes.astype("<i8").tobytes())
                lengths[f"{split} bytes"] = f"{sizes.sum()} bytes ({checksum:08x})"
        return {**counts, **lengths}


class Found(NamedTuple):
    """Images of a dataset that are not decoded.

    Attributes:
        sources: Paths or contents of files, by split.
        names: Names of the images, by split.
        notes: Remarks for the user.
    """

    sources: Mapping[str, Sequence[Source]]
    names: Mapping[str, Sequence[str]]
    notes: Sequence[str] = ()


def load_domains(
    data: DataConfig,
    multiple: int,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    local_workers: int = 0,
    splits: Sequence[str] = SPLITS,
    bars: bool = False,
) -> Domains:
    """Load the images of both domains.

    Images are uint8. If any image of the dataset has 16 bits, or a domain has a value range, all images are uint16. 8-bit values
    without a range are scaled by 257.

    Args:
        data: The data section of the configuration.
        multiple: Pixels by which the sides of the networks' input must be divisible.
        cache_dir: Folder of the file of `--cache disk`; `None` for the temporary folder.
        local_workers: Number of workers on this machine if several train together; 0 if this process trains alone. Workers share
            the memory. Each one needs only some of the images, and decodes an image when it is first used.
        splits: Splits to load: `SPLITS` or `TEST_SPLITS`.
        bars: Whether to show progress bars.

    Raises:
        UserError: The dataset is missing; or a domain is empty; or images cannot be decoded, or their sizes do not fit
            --preprocess or --paired_names. If images are decoded later, only damaged headers and ends of files are found now.
    """
    with terminal.phase("Finding the images", bars):
        found = _find_in_tfds(data, splits, bars) if data.is_tfds else _find_in_folder(data, splits)
    facts = _check(data, found.sources, bars)
    data, measured = measure_ranges(data, found.sources, bars)
    files = _describe(data, multiple, found.sources, facts)
    size = geometry.final_size(
        data,
        np.concatenate([loading.sizes_of(files[split].facts) for split in splits]),
        np.concatenate([files[split].sizes for split in splits]),
        [name for split in splits for name in found.names[split]],
    )
    pairs, counted = _find_pairs(data, found.names, files)
    deep = {split: np.flatnonzero(part["deep"]) for split, part in facts.items()}
    narrow = [
        f"{each}, so the networks see little contrast: try --{each.setting} {AUTO}"
        for each in find_narrow(data, found.sources, deep)
    ]
    images, notes = _decode(data, files, cache_dir, local_workers, bars)
    sets = {split: ImageSet(images[split], found.names[split], part.facts) for split, part in files.items()}
    ranges = {name: getattr(data, name) for name in RANGES.values()}
    return Domains(
        sets.get("trainA"),
        sets.get("trainB"),
        sets["testA"],
        sets["testB"],
        size,
        (*found.notes, *counted, *measured, *narrow, *notes),
        ranges,
        pairs,
    )


def _find_in_tfds(data: DataConfig, splits: Sequence[str], bars: bool) -> Found:
    from cyclegan.data import tfds_source  # slow to import

    if data.is_embedded:
        test_shape = data.image_shape if data.preprocess == "resize_and_crop" else data.load_shape
        sides = {split: max(data.load_shape if split.startswith("train") else test_shape) for split in splits}
        builders = tfds_source.drawn_builders(data.dataset, sides, data.data_dir)
    else:
        builders = dict.fromkeys(splits, tfds_source.cycle_gan_builder(data.dataset, data.data_dir))
    return Found(*tfds_source.read(builders, data.max_dataset_size, bars))


def _find_in_folder(data: DataConfig, splits: Sequence[str]) -> Found:
    folder = pathlib.Path(os.path.expanduser(data.dataset))
    if not folder.is_dir():
        if folder.exists():
            raise UserError(f"--dataset {data.dataset}: a file; expected a folder with trainA and trainB")
        from cyclegan.data import tfds_source  # slow to import

        raise UserError(
            f"--dataset {data.dataset}: no such folder; expected a folder with trainA and trainB, stripes, scenes, or"
            f" cycle_gan/NAME with NAME one of {', '.join(tfds_source.cycle_gan_names())}"
        )
    names, notes = folder_source.find_splits(folder, splits)
    names = {split: part[: data.max_dataset_size] for split, part in names.items()}
    return Found({split: [os.path.join(folder, name) for name in part] for split, part in names.items()}, names, notes)


def _check(data: DataConfig, sources: Mapping[str, Sequence[Source]], bars: bool) -> dict[str, np.ndarray]:
    """Check the headers of all images."""
    channels = {split: _channels(data, split) for split in sources}
    ranged = [split for split in sources if getattr(data, RANGES[f"train{split[-1]}"])]
    return loading.check_files(sources, channels, bars, ranged)


def _describe(
    data: DataConfig, multiple: int, sources: Mapping[str, Sequence[Source]], facts: Mapping[str, np.ndarray]
) -> dict[str, loading.ImageFiles]:
    """Choose one depth for all images, and the size of each."""
    dtype = np.uint16 if any(part["deep"].any() for part in facts.values()) else np.uint8
    files = {}
    for split, part in sources.items():
        domain = "x" if split.endswith("A") else "y"
        sizes = geometry.resized_sizes(
            data, multiple, loading.sizes_of(facts[split]), training=split.startswith("train")
        )
        value_range = data.value_range(domain)
        files[split] = loading.ImageFiles(split, part, facts[split], sizes, _channels(data, split), dtype, value_range)
    return files


def _find_pairs(
    data: DataConfig, names: Mapping[str, Sequence[str]], files: Mapping[str, loading.ImageFiles]
) -> tuple[np.ndarray | None, Sequence[str]]:
    """Return the pairs of training images, if the settings ask for them, and remarks for the user."""
    if not data.has_pairs or "trainA" not in names:
        return None, ()
    pairs = find_pairs(names, {split: part.sizes for split, part in files.items()})
    counts = (f"{len(names[split]) - len(pairs)} more images in {split}" for split in RANGES)
    return pairs, [
        f"Pairs: {len(pairs)} names are in trainA and in trainB ({', '.join(counts)}); they are used together with"
        f" probability {data.paired_share:g}"
    ]


def _channels(data: DataConfig, split: str) -> int:
    return data.channels_x if split.endswith("A") else data.channels_y


def _decode(
    data: DataConfig,
    files: Mapping[str, loading.ImageFiles],
    cache_dir: str | os.PathLike[str] | None,
    local_workers: int,
    bars: bool,
) -> tuple[Mapping[str, ImageArray], Sequence[str]]:
    """Return the images by split, decoded now or when they are used, and remarks for the user."""
    needed, cache = loading.decoded_bytes(files), str(data.cache)
    if cache == "auto":
        share = RAM_FRACTION * memory.free_bytes() / (local_workers or 1)
        cache = "ram" if needed <= (share if data.cache_gb is None else data.cache_gb * 1e9) else "none"
    if cache == "ram" and not local_workers:
        return loading.decode_all(files, bars), ()
    if cache == "ram":
        loading.check_memory(files, local_workers)
    store: Store | None = None
    if cache != "none":
        store = MemoryStore() if cache == "ram" else DiskStore(cache_dir)
    images = {
        split: LazyImages(part.decode, part.shape, part.sizes, part.dtype, store) for split, part in files.items()
    }
    kept = {
        "ram": "kept in memory from then on",
        "disk": f"kept on disk from then on ({needed / 1e9:.1f} GB in {cache_dir})",
        "none": "not kept (--cache none)",
    }[cache]
    return images, (f"Images are decoded when they are needed, and {kept}",)
