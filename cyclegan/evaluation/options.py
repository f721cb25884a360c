"""Options of the scores of a run, checked before TensorFlow starts."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
from typing import Any

from cyclegan.config import Config
from cyclegan.config.sections import DIRECTIONS
from cyclegan.data import sources
from cyclegan.errors import UserError, describe_missing
from cyclegan.inference.conversions import check_direction
from cyclegan.interop.torch_networks import INSTALL

BATCH_SIZE = 4  # fixed, so that scores during training do not depend on --batch_size of training
FEATURES = ("random", "inception", "fid", "fid-tf1", "fid-clean")
# The graph of published FIDs, read without PyTorch.
GRAPH_URL = "https://storage.googleapis.com/download.tensorflow.org/models/image/imagenet/inception-2015-12-05.tgz"
BOTH = " and ".join(sources.TEST_SPLITS)
SQUARE = {"preprocess": "resize_and_crop", "image_size": 256, "image_width": 256, "load_size": 256}
# Settings of the held-out images by --protocol; all of them are compared, with the features "fid".
PROTOCOLS: dict[str, dict[str, Any]] = {"cut": {**SQUARE, "max_dataset_size": None}}


@dataclasses.dataclass(frozen=True)
class ScoreOptions:
    """Directions, features and images of the scores of a run; the help of `cyclegan-evaluate` explains them.

    Raises:
        UserError: A value cannot work.
    """

    direction: str | None = None  # by default all directions of the run
    protocol: str | None = None
    features: str | None = None
    dataset: str | None = None
    data_dir: str | None = None
    real: str | None = None
    paired: bool = False
    max_images: int | None = None
    batch_size: int = BATCH_SIZE
    seed: int = 0

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions to score."""
        return (self.direction,) if self.direction else tuple(DIRECTIONS)

    @property
    def kind(self) -> str:
        """The features, see `split_features`."""
        return self.features or ("fid" if self.protocol else "inception")

    def __post_init__(self) -> None:
        """Check the values."""
        for name, least in (("max_images", 2), ("batch_size", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= least):
                raise UserError(f"--{name} {value!r}: expected a whole number of at least {least}")
        if self.protocol and self.protocol not in PROTOCOLS:
            raise UserError(f"--protocol {self.protocol}: expected {' or '.join(PROTOCOLS)}")
        if self.protocol and (self.real or self.max_images):
            raise UserError(
                f"--protocol {self.protocol} compares all held-out images; expected neither --real nor --max_images"
            )
        split_features(self.kind)
        if self.real is None:
            return
        folder = pathlib.Path(self.real).expanduser()
        if not folder.is_dir():
            missing = describe_missing(folder)
            raise UserError(f"--real {self.real}: {missing}; expected a folder with {BOTH}, or with images")
        if len(self.directions) > 1 and any(self.real_folder(direction) == folder for direction in self.directions):
            raise UserError(
                f"--real {self.real}: has no {BOTH}, so its images are of one domain; expected --direction x2y if"
                " this is Y, or --direction y2x if it is X"
            )

    def real_folder(self, direction: str) -> pathlib.Path:
        """Return the folder of the real images of a direction's target domain: a split in `real`, or `real` itself."""
        folder = pathlib.Path(self.real or "").expanduser()
        subfolder = folder / dict(zip("XY", sources.TEST_SPLITS))[DIRECTIONS[direction][1]]
        if not subfolder.is_dir() and any((folder / name).is_dir() for name in sources.SPLITS):
            raise UserError(
                f"--real {folder}: has no {subfolder.name}; expected the folder of one domain, such as trainB"
            )
        return subfolder if subfolder.is_dir() else folder

    def apply(self, config: Config, run: pathlib.Path) -> Config:
        """Return the configuration of a run with these images.

        Raises:
            UserError: The run has no generator of the direction, or its dataset is gone.
        """
        if self.direction:
            check_direction(config, self.direction)
        changes = {"dataset": self.dataset, "data_dir": self.data_dir, "max_dataset_size": self.max_images}
        changes = {name: value for name, value in changes.items() if value}
        config = config.replace(cache="none", **changes, **PROTOCOLS.get(self.protocol or "", {}))
        sources.check_dataset(config.data, "" if self.dataset else run)
        return config


def split_features(kind: str) -> tuple[str, str]:
    """Return the name of features, and the file of their weights; "" if the published file is downloaded once.

    Args:
        kind: One of `FEATURES`; or NAME:FILE; or FILE alone, with weights of Keras's InceptionV3.

    Raises:
        UserError: There is no such file, or a package that reads the weights is not installed.
    """
    name, _, file = kind.partition(":")
    if name not in FEATURES:
        name, file = "inception", kind
    if file and not pathlib.Path(file).expanduser().is_file():
        raise UserError(
            f"{file}: no such file; expected one of {', '.join(FEATURES)}, or a file with weights: NAME:FILE"
        )
    if name.startswith("fid") and not file and importlib.util.find_spec("torch") is None:
        raise UserError(
            f"{name}: PyTorch, which reads the weights of pytorch-fid, is not installed: {INSTALL}. Or download"
            f" {GRAPH_URL} and name this file, which needs no PyTorch: {name}:FILE"
        )
    return name, file
