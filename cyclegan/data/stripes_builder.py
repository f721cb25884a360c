"""The embedded dataset as a builder of TensorFlow Datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Optional, Union

import numpy as np
import tensorflow_datasets as tfds

from cyclegan.data import stripes

SPLIT_SIZES = {"trainA": 256, "trainB": 288, "testA": 32, "testB": 32}
ANIMALS: dict[str, stripes.Animal] = {"A": "horse", "B": "zebra"}
SEEDS = {"trainA": 1, "trainB": 2, "testA": 3, "testB": 3}  # one seed for testA and testB: they show the same scenes


class StripesConfig(tfds.core.BuilderConfig):
    """Configuration of the builder.

    Attributes:
        size: Side of the images in pixels.
    """

    def __init__(self, size: int = 64) -> None:
        super().__init__(name=str(size), description=f"{size} x {size} pixels")
        self.size = size


class Stripes(tfds.core.GeneratorBasedBuilder):
    """Drawn horses (A) and zebras (B), with the splits and features of `cycle_gan`; see `builder`."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First release."}
    BUILDER_CONFIGS = [StripesConfig(64)]

    def _info(self) -> tfds.core.DatasetInfo:
        size = self.builder_config.size
        return tfds.core.DatasetInfo(
            builder=self,
            disable_shuffling=True,  # keeps testA and testB in pairs
            description="Drawn brown horses (A) and striped zebras (B), unpaired in training, paired in the test splits.",
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
            scene = stripes.random_scene(np.random.default_rng([SEEDS[split], i]))
            yield i, {"image": stripes.draw(scene, ANIMALS[domain], self.builder_config.size), "label": domain}


def builder(size: int = 64, data_dir: Optional[Union[str, os.PathLike[str]]] = None) -> Stripes:
    """Return the builder of the dataset with images of `size` x `size` pixels."""
    named = {config.size: config.name for config in Stripes.BUILDER_CONFIGS}
    return Stripes(config=named.get(size) or StripesConfig(size), data_dir=data_dir)
