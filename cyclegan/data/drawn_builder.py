"""The embedded datasets as builders of TensorFlow Datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import tensorflow_datasets as tfds

from cyclegan.data import drawings

SPLIT_SIZES = {"trainA": 256, "trainB": 288, "testA": 32, "testB": 32}


class DrawnConfig(tfds.core.BuilderConfig):
    """Configuration of a builder.

    Attributes:
        size: Side of the images in pixels.
    """

    def __init__(self, size: int = 64) -> None:
        super().__init__(name=str(size), description=f"{size} x {size} pixels")
        self.size = size


class Drawn(tfds.core.GeneratorBasedBuilder):
    """Base of the embedded datasets, with the splits and features of `cycle_gan`; see `builder`.

    Attributes:
        SEEDS: Seed of each split. Images of splits with one seed and of the same number show the same.
        DESCRIPTION: Description of the dataset.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First release."}
    SEEDS: ClassVar[Mapping[str, int]]
    DESCRIPTION: ClassVar[str]

    def _info(self) -> tfds.core.DatasetInfo:
        size = self.builder_config.size
        return tfds.core.DatasetInfo(
            builder=self,
            disable_shuffling=True,  # keeps testA and testB in pairs
            description=self.DESCRIPTION,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(size, size, 3), encoding_format="png"),
                    "label": tfds.features.ClassLabel(names=["A", "B"]),
                }
            ),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        return {split: self._generate_examples(split) for split in SPLIT_SIZES}

    def _generate_examples(self, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        domain = split[-1]
        for i in range(SPLIT_SIZES[split]):
            image = drawings.draw(self.name, domain, [self.SEEDS[split], i], self.builder_config.size)
            yield i, {"image": image, "label": domain}


class Stripes(Drawn):
    """Horses (A) and zebras (B)."""

    BUILDER_CONFIGS = [DrawnConfig(64)]
    SEEDS = {"trainA": 1, "trainB": 2, "testA": 3, "testB": 3}
    DESCRIPTION = "Drawn brown horses (A) and striped zebras (B), unpaired in training, paired in the test splits."


class Scenes(Drawn):
    """Label maps (A) and street scenes (B)."""

    BUILDER_CONFIGS = [DrawnConfig(64), DrawnConfig(128)]
    SEEDS = {"trainA": 1, "trainB": 1, "testA": 3, "testB": 3}
    DESCRIPTION = "Label maps (A) of drawn street scenes (B); image i of A and of B show the same in all splits."


BUILDERS: dict[str, type[Drawn]] = {"stripes": Stripes, "scenes": Scenes}


def builder(dataset: str, size: int = 64, data_dir: str | os.PathLike[str] | None = None) -> Drawn:
    """Return the builder of an embedded dataset with images of `size` x `size` pixels."""
    cls = BUILDERS[dataset]
    named = {config.size: config.name for config in cls.BUILDER_CONFIGS}
    return cls(config=named.get(size) or DrawnConfig(size), data_dir=data_dir)
