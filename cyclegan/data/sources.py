"""The images of both domains, from TensorFlow Datasets, a folder or an embedded dataset.

Loading finds the errors of a dataset before training starts, except damaged pixels of images that are decoded later.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import io
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from PIL import Image

from cyclegan import lazy_tensorflow, terminal
from cyclegan.config.data import DataConfig
from cyclegan.data import folder_source, loading, scenes, stripes
from cyclegan.data.folder_source import Found, Name
from cyclegan.data.loading import ImageFiles
from cyclegan.data.value_ranges import RANGES, find_narrow, measure_ranges
from cyclegan.errors import UserError, counted, describe_missing, printable, similar_folder
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
    in_decay: Sequence[ImageFiles]  # training images of X and Y in other sizes, only with --crop_until_decay
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
    found: Found | None = None,
) -> Domains:
    """Load the images of both domains.

    Args:
        data: The data section of the configuration.
        multiple: Pixels by which the sides of the networks' input must be divisible.
        local_workers: Number of workers on this machine if several train together; 0 if this process trains alone.
            Workers share the memory. Each one needs only some images, and decodes an image when it is first used.
        splits: Splits to load: `SPLITS` or `TEST_SPLITS`.
        bars: Whether to show progress bars.
        found: The images, by default the result of `find`.

    Raises:
        UserError: Images are missing, cannot be decoded, or do not fit --preprocess or --paired_names.
    """
    found = found or find(data, splits, bars)
    data, files, measured = read_headers(data, multiple, found, bars)
    facts = {split: part.facts for split, part in files.items()}
    stacks = folder_source.describe_stacks(data, found, facts)
    masked = _add_masks(data, files, bars)
    size = final_size(data, files.values())
    pairs, paired = _find_pairs(data, files)
    narrow = find_narrow(data, found.sources, facts)
    in_decay = _uncropped(data, multiple, files)
    all_files = _with_masks(files.values())
    decoded = _decode(data, [*all_files, *_with_masks(in_decay)], local_workers, bars)
    return Domains(
        {part.split: part for part in all_files},
        files.get("trainA"),
        files.get("trainB"),
        files["testA"],
        files["testB"],
        in_decay,
        size,
        (*found.notes, *stacks, *paired, *masked, *measured, *narrow, *decoded),
        {name: getattr(data, name) for name in RANGES.values()},
        pairs,
    )


def check_dataset(data: DataConfig, run: str | os.PathLike[str] = "") -> None:
    """Raise `UserError` if the folder of the images, which --dataset or a run names, or --data_dir cannot be used."""
    if data.is_tfds:
        data.tfds_folder  # noqa: B018  raises the error
    if data.folder and (data.folder / "config.json").is_file() and not (data.folder / "trainA").is_dir():
        raise UserError(
            f"--dataset {data.dataset}: a run, not a folder of images; --output_dir {data.dataset} resumes it"
        )
    if data.folder is not None and not data.folder.is_dir():
        missing = describe_missing(data.folder)
        if run:
            raise UserError(f"{run}: its images, {data.folder}: {missing}; expected --dataset with their folder")
        lazy_tensorflow.load()
        from cyclegan.data import tfds_source

        names, given = tfds_source.cycle_gan_names(), data.folder.name
        hint = f" (do you mean cycle_gan/{given}?)" if given in names else similar_folder(data.folder, "trainA")
        raise UserError(
            f"--dataset {data.dataset}: {missing}{hint}; expected a folder with trainA and trainB, stripes, scenes, or"
            f" cycle_gan/NAME with NAME one of {', '.join(names)}"
        )


def find(data: DataConfig, splits: Sequence[str] = SPLITS, bars: bool = False) -> Found:
    """Find the images of a dataset; prepare it before, if it is one of TensorFlow Datasets and not prepared."""
    with terminal.phase("Finding the images", bars):
        if data.is_embedded:
            test_shape = data.image_shape if data.preprocess == "resize_and_crop" else data.load_shape
            sides = {split: max(data.load_shape if split.startswith("train") else test_shape) for split in splits}
            return _draw_files(data, sides)
        if (folder := data.folder) is None:
            from cyclegan.data import tfds_source  # slow to import

            builder = tfds_source.cycle_gan_builder(data.dataset, data.tfds_folder)
            return Found(*tfds_source.read(builder, splits, data.max_dataset_size, bars))
        check_dataset(data)
        return folder_source.find(folder, data, splits, bars)


def read_headers(
    data: DataConfig, multiple: int, found: Found, bars: bool = False
) -> tuple[DataConfig, dict[str, ImageFiles], Sequence[str]]:
    """Return the settings with measured value ranges, the images, not decoded yet, and remarks for the user.

    Images are uint8. If any image of the dataset has 16 bits, or a domain has a value range, all images are uint16.
    8-bit values without a range are scaled by 257.
    """
    channels = {split: data.channels(split) for split in found.sources}
    ranged = [split for split in channels if (data.value_range_x if split.endswith("A") else data.value_range_y)]
    facts = loading.check_files(found.sources, channels, bars, ranged)
    data, measured = measure_ranges(data, found.sources, bars)
    dtype = np.dtype(np.uint16 if any(part["deep"].any() for part in facts.values()) else np.uint8)
    files = {
        split: ImageFiles(
            split,
            part,
            facts[split],
            geometry.resized_sizes(data, multiple, loading.sizes_of(facts[split]), split.startswith("train")),
            channels[split],
            dtype,
            data.value_range(split),
            found.names[split],
            nodata=data.nodata,
        )
        for split, part in found.sources.items()
    }
    return data, files, measured


def draw(dataset: str, split: str, index: int, size: int) -> np.ndarray:
    """Draw an image of an embedded dataset: uint8 [size, size, 3]."""
    rng = np.random.default_rng([SEEDS[dataset][split], index])
    if dataset == "stripes":
        return stripes.draw(stripes.random_scene(rng), "horse" if split.endswith("A") else "zebra", size)
    return scenes.draw(scenes.random_scene(rng), "labels" if split.endswith("A") else "rendering", size)


def _draw_files(data: DataConfig, sides: Mapping[str, int]) -> Found:
    """Draw the images of an embedded dataset as PNG, with sides in pixels by split."""
    indices = {split: range(SPLIT_SIZES[split])[: data.max_dataset_size] for split in sides}

    def png(split: str, index: int) -> bytes:
        file = io.BytesIO()
        Image.fromarray(draw(data.dataset, split, index, sides[split])).save(file, "png", compress_level=1)
        return file.getvalue()

    with concurrent.futures.ThreadPoolExecutor(loading.available_cores()) as pool:
        files = {split: list(pool.map(png, [split] * len(part), part)) for split, part in indices.items()}
    return Found(files, {s: [f"{data.dataset}/{sides[s]}/{s}[{i}]" for i in part] for s, part in indices.items()})


def final_size(data: DataConfig, parts: Iterable[ImageFiles]) -> tuple[int, int]:
    """Return the (height, width) in pixels of the images that the networks see; see `geometry.final_size`."""
    sizes, resized = (np.concatenate(each) for each in zip(*((loading.sizes_of(p.facts), p.sizes) for p in parts)))
    return geometry.final_size(data, sizes, resized, [name for part in parts for name in part.names])


def _with_masks(parts: Iterable[ImageFiles]) -> list[ImageFiles]:
    return [each for part in parts for each in (part, part.masks) if each]


def _uncropped(data: DataConfig, multiple: int, files: Mapping[str, ImageFiles]) -> tuple[ImageFiles, ...]:
    """Return the training images of --crop_until_decay in the sizes that they have while the learning rates decay."""
    side = {"resize_and_crop": data.image_size, "scale_width_and_crop": data.image_width}.get(data.preprocess)
    if not data.crop_until_decay or side is None:
        return ()
    small = dataclasses.replace(data, load_size=side)
    return tuple(
        part.resized(geometry.resized_sizes(small, multiple, loading.sizes_of(part.facts), training=True))
        for split, part in files.items()
        if split.startswith("train")
    )


def _add_masks(data: DataConfig, files: Mapping[str, ImageFiles], bars: bool) -> Sequence[str]:
    """Give the images of a folder with maskA or maskB their masks; return remarks for the user."""
    notes: list[str] = []
    problems: list[str] = []
    for domain in "AB" * bool(data.folder):
        folder = os.path.join(data.folder or "", f"mask{domain}")
        if not os.path.lexists(folder):
            continue
        if not os.path.isdir(folder):
            raise UserError(f"{folder}: {describe_missing(folder)}; expected a folder of masks, or none")
        if not data.same_channels:
            raise UserError(
                f"{folder}: outside of masks, images stay as they are; expected --channels_x equal to --channels_y"
            )
        parts = [part for split, part in files.items() if split.endswith(domain)]
        names = [name for part in parts for name in part.names]
        masks = dict(zip(names, folder_source.find_masks(folder, names, data)))
        missing = [printable(name) for name in names if not masks[name]]
        if missing:
            more = ", ..." * (len(missing) > loading.MAX_NAMED)
            problems.append(
                f"{folder}: no mask for {len(missing)} of {len(names)} images; expected an image of the same name for"
                f" each of them: {', '.join(missing[: loading.MAX_NAMED])}{more}"
            )
        for part in parts:
            try:
                part.masks = _load_masks(folder, part, [masks[name] for name in part.names], bars)
            except UserError as error:
                problems.append(f"{error}")
        notes.append(f"Masks: {folder} has one for each of {len(names)} images; the networks change nothing outside")
    if problems:
        raise UserError("; ".join(problems))
    return notes


def _load_masks(folder: str, images: ImageFiles, found: Sequence[Name | None], bars: bool) -> ImageFiles:
    """Return the masks of images that have one; raise `UserError` if they cannot be used or have other sizes."""
    title, indices = f"masks of {images.split}", [i for i, mask in enumerate(found) if mask]
    masks: list[Name] = [mask for mask in found if mask]
    facts = loading.check_files({title: masks}, {title: 1}, bars, ranged=[title])[title]
    sizes, expected = loading.sizes_of(facts), loading.sizes_of(images.facts)[indices]
    if wrong := np.flatnonzero((sizes != expected).any(axis=1)).tolist():
        texts = [
            f"{printable(masks[i])} has {geometry.format_size(sizes[i])}; expected {geometry.format_size(expected[i])},"
            f" as its image {printable(images.names[indices[i]])} has"
            for i in wrong[: loading.MAX_NAMED]
        ]
        more = [f"and {len(wrong) - loading.MAX_NAMED} more"] * (len(wrong) > loading.MAX_NAMED)
        raise UserError("; ".join([*texts, *more]))
    names = [folder_source.name_below(folder, mask) for mask in masks]
    return ImageFiles(title, masks, facts, images.sizes, channels=1, names=names, is_mask=True)


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


def _decode(data: DataConfig, parts: Sequence[ImageFiles], local_workers: int, bars: bool) -> Sequence[str]:
    """Decode the images now, or let them be decoded when they are used; return remarks for the user."""
    needed, free, processes = sum(part.nbytes for part in parts), loading.free_bytes(), local_workers or 1
    limit = RAM_FRACTION * free / processes if data.cache_gb is None else data.cache_gb * 1e9
    keep = data.cache == "ram" or (data.cache == "auto" and needed <= limit)
    if keep and needed * processes > free:
        each = f" for each of {processes} workers" if processes > 1 else ""
        raise UserError(
            f"the decoded images need {needed / 1e9:.1f} GB of memory{each}, but only {free / 1e9:.1f} GB are free;"
            " expected images that fit: use --cache none, fewer images (--max_dataset_size) or a smaller --load_size"
        )
    if keep and not local_workers:
        loading.decode_all(parts, bars)
        return ()
    for part in parts:
        part.keep = keep
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
    height, width = data.image_shape
    sizes = [size] if size else [(height, width), (height + multiple, width + 2 * multiple)]
    shown = " and ".join(f"{height} x {width}" for height, width in sizes) + " pixels"
    origin, sources = ("given", files) if files else (f"{data.dataset}, {split}", _held_out(data, split))
    if not sources:
        dataset, bands = data.dataset if data.is_embedded else "stripes", np.arange(data.channels(split)) % 3
        drawn = [(i, *each) for each in sizes for i in range(COMPARED)]
        images = [draw(dataset, split, i, max(h, w))[:h, :w, bands] for i, h, w in drawn]
        return images, f"{COMPARED} drawn images, {shown}"
    repeated = Found({split: [*sources] * len(sizes)}, {split: ()})
    part = read_headers(data, multiple, repeated)[1][split].resized(np.repeat(sizes, len(sources), axis=0))
    part.dtype = np.dtype(np.uint8)
    loading.decode_all([part])
    return [part[i] for i in range(len(part))], f"{counted(len(sources), 'image')} ({printable(origin)}), {shown}"


def _held_out(data: DataConfig, split: str) -> Sequence[Source]:
    """Return the first held-out images of a folder or a prepared dataset; none if it is gone."""
    with contextlib.suppress(UserError):
        if data.folder or (data.is_tfds and any((data.tfds_folder / data.dataset).glob("*/dataset_info.json"))):
            return find(dataclasses.replace(data, max_dataset_size=COMPARED), [split]).sources[split]
    return ()
