"""Settings of the images: where they come from and how they become the networks' input."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any, Literal, Optional

from cyclegan.config.fields import FREE, WARN, Section, flag, refuse
from cyclegan.errors import check_path

PARTS = ("trainA", "trainB", "testA", "testB", "maskA", "maskB")  # of a folder of images
MIN_SIDE = 16  # pixels; smaller images leave the networks nothing to see
# Datasets whose images the program generates, with their defaults. Their held-out images include the true translations.
EMBEDDED = {name: {"image_size": 64, "filters": 16, "lr": 1e-3} for name in ("stripes", "scenes")}
ALIGNED = ("scenes",)  # embedded datasets whose training images are pairs
LOAD_RATIO = 286 / 256  # side before the crop / side after it; generated images differ enough without crops
AUTO = "auto"
ValueRange = tuple[float, float]  # the values of a file that become -1 and 1 in the networks


def parse_range(text: str) -> Optional[ValueRange]:
    """Return (LO, HI) of "LO:HI", or `None` if the text is not two finite numbers with LO < HI."""
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        return None
    return (low, high) if low < high and math.isfinite(high - low) else None


def _default_load_size(settings: Mapping[str, Any]) -> int:
    side = "image_width" if settings["preprocess"].startswith("scale_width") else "image_size"
    return round(settings[side] * (1.0 if settings["dataset"] in EMBEDDED else LOAD_RATIO))


@dataclasses.dataclass(frozen=True)
class DataConfig(Section):
    """Images of the two domains. The help of each flag is its documentation."""

    dataset: str = flag("cycle_gan/horse2zebra", FREE, is_path=True)
    """cycle_gan/NAME of TensorFlow Datasets (horse2zebra, monet2photo, ...); a folder with trainA, trainB and
    optionally testA, testB; or stripes or scenes, the embedded datasets"""
    data_dir: Optional[str] = flag(on_resume=FREE, is_path=True)
    """folder of prepared TensorFlow Datasets; without effect on a folder, stripes and scenes (default: the environment
    variable TFDS_DATA_DIR, else ~/tensorflow_datasets)"""
    image_size: int = flag(256, least=MIN_SIDE, unit="pixels")
    """side of the networks' input in pixels, a multiple of 4; its height if --image_width is given (default: 256;
    stripes, scenes: 64)"""
    image_width: int = flag(256, least=MIN_SIDE, unit="pixels", derive=lambda settings: settings["image_size"])
    """width of the networks' input in pixels (default: --image_size)"""
    load_size: int = flag(286, least=MIN_SIDE, unit="pixels", derive=_default_load_size)
    """side in pixels to which training images are resized before the random crop to --image_size; scale_width and
    scale_width_and_crop: their width (default: 286 for 256, and in proportion; stripes, scenes: --image_size)"""
    crop_until_decay: bool = flag(False, WARN)
    """while the learning rates decay, resize training images to --image_size, so that nothing is cropped; only with
    --preprocess resize_and_crop and scale_width_and_crop"""
    preprocess: Literal["resize_and_crop", "crop", "scale_width", "scale_width_and_crop", "none"] = flag(
        "resize_and_crop"
    )
    """resize_and_crop: resize training images to --load_size, then crop at random to --image_size; crop: only crop;
    scale_width: scale to the width --load_size; scale_width_and_crop: scale, then crop; none: only make the sides a
    multiple of 4. Without a crop, all images must have one size after resizing, and --image_size is only the minimum
    height of scale_width"""
    no_flip: bool = flag(False, WARN)
    """do not flip training images at random"""
    paired_names: bool = flag(False, WARN)
    """use an image of trainA and one of trainB as a pair if their names (with subfolders, without extension) are equal,
    as --lambda_paired needs; a pair has the same crop and flip; scenes: images of the same number are pairs"""
    paired_share: float = flag(1.0, WARN, positive=True)
    """probability that an image of a pair comes with its partner, not with any other image"""
    epoch_size: str = flag("min", metavar="min|max|N")
    """training pairs in an epoch. min or max: the number of images of the smaller or larger domain; or any number.
    Images of a domain come without replacement, pass after pass"""
    max_dataset_size: Optional[int] = flag(least=1, metavar="N")
    """use at most the first N images of each folder (default: all)"""
    stacks: Literal["first", "all"] = flag("first")
    """first: use the first image of a file with several pages, slices or frames; all: use each of them as an image"""
    film_every: int = flag(10, least=1, metavar="N")
    """films: use one in N frames as an image"""
    slice_axis: Optional[Literal[0, 1, 2]] = flag()
    """axis along which the slices of a volume lie, with --stacks all. NIfTI: 0 sagittal, 1 coronal, 2 axial (default:
    2); NumPy: the axis of the array (default: 0, of arrays of four axes)"""
    channels_x: int = flag(3, least=1)
    """channels of the images of domain X: 1 is gray, 3 is RGB, others are used as they are"""
    channels_y: int = flag(3, least=1)
    """channels of the images of domain Y"""
    value_range_x: Optional[str] = flag(metavar="LO:HI", type=str.strip)
    """LO:HI: values of the files of domain X that become -1 and 1 in the networks; values outside are clipped. auto:
    percentiles 0.1 and 99.9 of a sample of the training images, fixed for the run (default: all values of 8 or 16
    bits)"""
    value_range_y: Optional[str] = flag(metavar="LO:HI", type=str.strip)
    """the same for domain Y (default: all values of 8 or 16 bits)"""
    nodata: Optional[float] = flag(metavar="VALUE", least=-math.inf)
    """value of pixels without data in files that name none (TIFF may, as GDAL_NODATA). With a value range, such pixels
    and NaN do not count for auto, and become LO (default: only NaN)"""
    cache: Literal["auto", "ram", "none"] = flag("auto", FREE)
    """where to keep decoded images. ram: in memory, all decoded before training; none: decode each time, on all cores;
    auto: ram for up to --cache_gb, else none"""
    cache_gb: Optional[float] = flag(on_resume=FREE)
    """gigabytes of decoded images (a byte per pixel and channel, or two) up to which --cache auto means ram (default: a
    quarter of the free memory)"""

    @property
    def is_embedded(self) -> bool:
        """Whether the program generates the images of the dataset."""
        return self.dataset in EMBEDDED

    @property
    def is_tfds(self) -> bool:
        """Whether TensorFlow Datasets has to prepare the dataset on disk before it is read."""
        return self.dataset.startswith("cycle_gan/")

    @property
    def folder(self) -> Optional[pathlib.Path]:
        """Folder of the images; `None` if the dataset is embedded or of TensorFlow Datasets."""
        return None if self.is_embedded or self.is_tfds else pathlib.Path(self.dataset)

    def is_inside(self, path: str | os.PathLike[str], parts_only: bool = False) -> bool:
        """Return whether a path is, or lies in, the folder of the images or a folder to which a link in it leads.

        With `parts_only`, only the folders in it count that hold images, such as trainA.
        """
        whole = pathlib.Path(os.path.realpath(path))
        parts = [os.path.join(self.folder, part) for part in PARTS] if self.folder else []
        parts += [os.path.join(at, name) for part in parts for at, names, _ in os.walk(part) for name in names]
        parts += [os.path.join(self.folder, "")] if self.folder and not parts_only else []
        return any(pathlib.Path(os.path.realpath(part)) in (whole, *whole.parents) for part in parts)

    @property
    def tfds_folder(self) -> pathlib.Path:
        """Folder of prepared TensorFlow Datasets.

        Raises:
            UserError: TFDS_DATA_DIR can't be a folder of this machine.
        """
        folder = self.data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
        check_path(folder, "--data_dir" if self.data_dir else "TFDS_DATA_DIR")
        return pathlib.Path(folder).expanduser()

    @property
    def has_pairs(self) -> bool:
        """Whether images of the same name are pairs. Names that are numbers do not make pairs, except in `ALIGNED`."""
        return self.paired_names and not self.is_tfds and (not self.is_embedded or self.dataset in ALIGNED)

    @property
    def image_shape(self) -> tuple[int, int]:
        """(height, width) of the networks' input in pixels."""
        return self.image_size, self.image_width

    @property
    def load_shape(self) -> tuple[int, int]:
        """(height, width) in pixels to which `resize_and_crop` resizes training images before the crop."""
        return self.load_size, round(self.load_size * self.image_width / self.image_size)

    @property
    def same_channels(self) -> bool:
        """Whether an image and its translation have the same number of channels, and so can be compared."""
        return self.channels_x == self.channels_y

    def channels(self, domain: str) -> int:
        """Return the number of channels of a domain, "X" or "Y", or of one of its splits, such as "trainA"."""
        return self.channels_x if domain[-1] in "XA" else self.channels_y

    def value_range(self, domain: str) -> Optional[ValueRange]:
        """Return the value range of a domain, or of one of its splits, or `None` without one.

        Raises:
            UserError: It is "auto" and was never measured.
        """
        name = "value_range_x" if domain[-1] in "XA" else "value_range_y"
        text = getattr(self, name)
        if text == AUTO:
            refuse(name, text, "LO:HI, because no training has measured the values yet")
        return text and parse_range(text)

    @property
    def name(self) -> str:
        """Last part of `dataset`: "horse2zebra" for "cycle_gan/horse2zebra", "photos" for "/data/photos/"."""
        return os.path.basename(os.path.realpath(self.dataset)) or "data"

    def _check(self) -> None:
        if self.epoch_size not in ("min", "max") and not (self.epoch_size.isdecimal() and int(self.epoch_size) >= 1):
            refuse("epoch_size", self.epoch_size, "min, max or a whole number of at least 1")
        if self.slice_axis is not None and self.stacks != "all":
            refuse("slice_axis", self.slice_axis, "--stacks all, too")
        if self.paired_share > 1:
            refuse("paired_share", self.paired_share, "above 0 and at most 1")
        if self.paired_share < 1 and not self.paired_names:
            refuse("paired_share", self.paired_share, "--paired_names, too")
        for name in ("value_range_x", "value_range_y"):
            text = getattr(self, name)
            if text not in (None, AUTO) and not parse_range(text):
                refuse(name, text, "LO:HI, two numbers with LO < HI, or auto")
        crop = {"resize_and_crop": "image_size", "scale_width_and_crop": "image_width"}.get(
            self.preprocess, "load_size"
        )
        if self.load_size < getattr(self, crop):
            refuse("load_size", self.load_size, f"at least {getattr(self, crop)} pixels (--{crop})")
