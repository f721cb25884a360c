"""Feature extractors: fixed networks whose outputs FID and KID compare."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from cyclegan.errors import UserError
from cyclegan.evaluation import inception
from cyclegan.evaluation.random_network import PROTOCOL, random_features


class FeatureExtractor:
    """A fixed network that is compiled once per shape of the images.

    Args:
        name: Name of the features.
        protocol: Description of the features.
        compute: Function from float32 [N, H, W, C] in [-1, 1] to float32 [N, D].

    Attributes:
        name: Name of the features; scores are comparable if it is the same.
        protocol: Description of the features.
    """

    def __init__(self, name: str, protocol: str, compute: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self.name, self.protocol = name, protocol
        self._compute = tf.function(compute, autograph=False)

    def __call__(self, images: tf.Tensor | np.ndarray) -> np.ndarray:
        """Return the features [N, D] of images, float32 [N, H, W, C] in [-1, 1]."""
        return self._compute(tf.convert_to_tensor(images)).numpy()


def make_extractor(kind: str, channels: Iterable[int] = (3,)) -> FeatureExtractor:
    """Make a feature extractor by name.

    Args:
        kind: "random"; "inception", with weights that Keras downloads once; or the name of a file with these weights.
        channels: Numbers of channels of the images to score.

    Raises:
        UserError: The extractor does not take such images, or its weights are not available.
    """
    if kind == "random":
        return random_extractor()
    if unsupported := sorted(set(channels) - {1, 3}):
        raise UserError(
            f"images of {unsupported[0]} channels: Inception takes RGB, or gray repeated as RGB; expected 1 or 3 channels: use the"
            " features of the random network (random)"
        )
    return inception_extractor(None if kind == "inception" else kind)


def random_extractor() -> FeatureExtractor:
    """Make the extractor of the random network."""
    return FeatureExtractor("random", PROTOCOL, random_features)


def inception_extractor(file: str | None = None) -> FeatureExtractor:
    """Make the extractor of Keras's InceptionV3 (Szegedy et al. 2016).

    The first FIDs used another network (TensorFlow's of 2015), so published values differ.

    Args:
        file: Weights, see `inception.load`; by default Keras downloads them.

    Raises:
        UserError: The weights are not available.
    """
    name, weights = "keras-inception-v3", "ImageNet weights of Keras"
    if file is None:
        network = inception.download()
    else:
        network, other_md5 = inception.load(file)
        if other_md5:
            name, weights = f"{name} {other_md5}", f"weights of {os.path.basename(file)}, not Keras's file"
    protocol = (
        f"keras-inception-v3 ({weights}), 2048 features of the last pooling, images resized to {inception.SIDE} px (bilinear,"
        " antialiased); not the network of published FIDs, so compare with each other only"
    )
    return FeatureExtractor(name, protocol, functools.partial(inception.inception_features, network))
