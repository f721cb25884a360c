"""A few images to try a generator on: given ones, held-out images of the run's dataset, or drawn ones."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np

from cyclegan.config.data import EMBEDDED, DataConfig, ValueRange
from cyclegan.data import embedded, folder_source, loading
from cyclegan.errors import printable
from cyclegan.images.reader import Source

COUNT = 2  # images at each size


def comparison_images(
    data: DataConfig,
    direction: str,
    multiple: int,
    files: Sequence[str] = (),
    size: tuple[int, int] | None = None,
) -> tuple[list[np.ndarray], str]:
    """Return images of the source domain, uint8 [H, W, C], and a description of them.

    Without `files`, they are the first held-out images of the dataset, or drawn images if the dataset is gone.

    Args:
        data: Dataset of the run.
        direction: "x2y" or "y2x".
        multiple: Pixels by which the sides of the generators' input must be divisible.
        files: Paths of images.
        size: (height, width) in pixels; by default, each image is used at the size of the training and at a larger one.

    Raises:
        UserError: A file is not an image with the generator's number of channels.
    """
    domain, channels = ("A", data.channels_x) if direction == "x2y" else ("B", data.channels_y)
    height, width = data.image_shape
    sizes = [size] if size else [(height, width), (height + multiple, width + 2 * multiple)]
    shown = " and ".join(f"{height} x {width}" for height, width in sizes) + " pixels"
    origin, sources = ("given", list(files)) if files else _held_out_images(data, domain)
    if not sources:
        return _draw(data.dataset, domain, channels, sizes), f"{COUNT} drawn images, {shown}"
    images = _decode(sources, channels, sizes, data.value_range(direction[0]))
    return images, f"{len(sources)} images ({printable(origin)}), {shown}"


def _held_out_images(data: DataConfig, domain: str) -> tuple[str, Sequence[Source]]:
    """Return the origin of the first held-out images of the dataset and their files; no files if the dataset is gone."""
    folders = [pathlib.Path(data.dataset).expanduser() / f"{split}{domain}" for split in ("test", "train")]
    for folder in filter(pathlib.Path.is_dir, folders):
        return str(folder), [str(folder / name) for name in folder_source.find_images(folder)[:COUNT]]
    prepared_in = pathlib.Path(data.data_dir or "~/tensorflow_datasets").expanduser() / data.dataset
    if data.dataset.startswith("cycle_gan/") and any(prepared_in.glob("*/dataset_info.json")):
        from cyclegan.data import tfds_source  # not at import: TensorFlow Datasets takes seconds

        split = f"test{domain}"
        builder = tfds_source.cycle_gan_builder(data.dataset, data.data_dir)
        return f"{data.dataset}, {split}", tfds_source.read(builder, [split], COUNT)[0][split]
    return "", ()


def _decode(
    files: Sequence[Source], channels: int, sizes: Sequence[tuple[int, int]], value_range: ValueRange | None
) -> list[np.ndarray]:
    sources = [file for _ in sizes for file in files]
    resized = np.array([size for size in sizes for _ in files])
    facts = loading.check_files({"": sources}, {"": channels}, ranged=[""] if value_range else [])[""]
    described = loading.ImageFiles("", sources, facts, resized, channels, value_range=value_range)
    images = loading.decode_all({"": described})[""]
    return [images[index] for index in range(len(sources))]


def _draw(dataset: str, domain: str, channels: int, sizes: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    drawn = dataset if dataset in EMBEDDED else "stripes"
    bands = np.arange(channels) % 3
    return [
        embedded.draw(drawn, f"test{domain}", i, max(height, width))[:height, :width, bands]
        for height, width in sizes
        for i in range(COUNT)
    ]
