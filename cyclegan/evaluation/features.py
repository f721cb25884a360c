"""Features of images that FID and KID compare: the outputs of a fixed random network, or of Keras's InceptionV3."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from cyclegan.errors import UserError, first_line

WIDTHS = (48, 64, 96, 128)  # channels of the random convolutions
SEED = 20161  # other weights would be another network, whose scores are not comparable
PROTOCOL = (
    f"random: {2 * sum(WIDTHS)} features, means and standard deviations over the image of {len(WIDTHS)} convolutions with"
    f" fixed random weights (seed {SEED}), each halving the image; ranks translations of one dataset and size, and is not"
    " comparable with published FIDs"
)
WEIGHTS_URL = (
    "https://storage.googleapis.com/tensorflow/keras-applications/inception_v3/"
    "inception_v3_weights_tf_dim_ordering_tf_kernels_notop.h5"
)
WEIGHTS_MD5 = "bcbd6486424b2319ff4ef7d526e38f63"
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
SIDE = 299  # pixels of the images that InceptionV3 was trained on
REASON_LENGTH = 200  # characters of Keras's messages, which may list all layers


class FeatureExtractor:
    """A fixed network that is compiled once per shape of the images.

    Args:
        name: Name of the features; scores are comparable if it is the same.
        protocol: Description of the features.
        compute: Function from float32 [N, H, W, C] in [-1, 1] to float32 [N, D].
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
        return FeatureExtractor("random", PROTOCOL, random_features)
    if unsupported := sorted(set(channels) - {1, 3}):
        raise UserError(
            f"images of {unsupported[0]} channels: Inception takes RGB, or gray repeated as RGB; expected 1 or 3 channels: use the"
            " features of the random network (random)"
        )
    name, weights = "keras-inception-v3", "ImageNet weights of Keras"
    if kind == "inception":
        try:
            network = _make_inception("imagenet")  # Keras downloads the weights once
        except Exception as error:  # Keras raises nothing more specific
            raise UserError(
                f"the weights of InceptionV3 could not be downloaded ({first_line(error)[:REASON_LENGTH]}); expected a network"
                f" connection. Download {WEIGHTS_URL} elsewhere and name the file instead of inception (--features FILE), or use"
                " the features of the random network (--features random)"
            ) from error
    else:
        network, md5 = _load_inception(kind)
        if md5 != WEIGHTS_MD5:
            name, weights = f"{name} {md5}", f"weights of {os.path.basename(kind)}, not Keras's file"
    protocol = (
        f"keras-inception-v3 ({weights}), 2048 features of the last pooling, images resized to {SIDE} px (bilinear,"
        " antialiased); not the network of published FIDs, so compare with each other only"
    )
    return FeatureExtractor(name, protocol, functools.partial(_inception_features, network))


def random_features(images: tf.Tensor) -> tf.Tensor:
    """Return the 672 features of each image: means and standard deviations of four convolutions with random weights.

    Nothing is learned or normalized. Random convolutions distinguish textures and colors (Jarrett et al. 2009), which is just
    enough to rank the translations of one run. The images have any size and number of channels.
    """
    features, x = [], images
    for kernel, bias in random_kernels(images.shape[-1]):
        x = tf.nn.relu(tf.nn.conv2d(x, kernel, 2, "SAME") + bias)
        mean, variance = tf.nn.moments(x, axes=[1, 2])
        features += [mean, tf.sqrt(variance + 1e-6)]
    return tf.concat(features, axis=-1)


def random_kernels(channels: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (kernel [4, 4, inputs, outputs], bias [outputs]) of each convolution, with the variance of He et al. (2015)."""
    rng = np.random.RandomState(SEED)  # not default_rng: NumPy promises that this one never changes
    layers = []
    for inputs, outputs in zip((channels, *WIDTHS), WIDTHS):
        kernel = rng.standard_normal((4, 4, inputs, outputs)) * np.sqrt(2 / (16 * inputs))
        layers.append((kernel.astype(np.float32), rng.uniform(-0.5, 0.5, outputs).astype(np.float32)))
    return layers


def _inception_features(network: tf.keras.Model, images: tf.Tensor) -> tf.Tensor:
    """Return the 2048 features of each image before the last layer, averaged over the image; gray is repeated as RGB."""
    images = tf.image.resize(images, (SIDE, SIDE), tf.image.ResizeMethod.BILINEAR, antialias=True)
    if images.shape[-1] == 1:
        images = tf.repeat(images, 3, axis=-1)
    return network(images, training=False)


def _load_inception(file: str) -> tuple[tf.keras.Model, str]:
    """Return InceptionV3 with the weights of a file like the one at `WEIGHTS_URL`, and the MD5 of the file."""
    path = pathlib.Path(file).expanduser()
    if not path.is_file():
        raise UserError(
            f"{file}: no such file; expected random, inception, or a file with its weights, from {WEIGHTS_URL}"
        )
    try:
        content = path.read_bytes()
        if path.suffix != ".h5" or not content.startswith(HDF5_SIGNATURE):  # Keras 2 would take it for a checkpoint
            raise ValueError("not an HDF5 file with the suffix .h5")
        network = _make_inception(None)
        network.load_weights(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(
            f"{file}: not the weights of Keras's InceptionV3 without its top layer ({first_line(error)[:REASON_LENGTH]}); expected"
            f" the file {WEIGHTS_URL}"
        ) from error
    return network, hashlib.md5(content, usedforsecurity=False).hexdigest()


def _make_inception(weights: str | None) -> tf.keras.Model:
    network = tf.keras.applications.InceptionV3(
        include_top=False, pooling="avg", input_shape=(SIDE, SIDE, 3), weights=weights
    )
    network.trainable = False
    return network
