"""Features of images that FID and KID compare: of a random network, of Keras's InceptionV3, or of published FIDs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import pathlib
import sys
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from cyclegan.errors import UserError, first_line
from cyclegan.evaluation import fid_network
from cyclegan.evaluation.fid_network import SIDE
from cyclegan.evaluation.options import split_features
from cyclegan.networks import compat

WIDTHS = (48, 64, 96, 128)  # channels of the random convolutions
SEED = 20161  # other weights would be another network, whose scores are not comparable
KERAS = (  # URL, kind of hash, hash
    "https://storage.googleapis.com/tensorflow/keras-applications/inception_v3/"
    "inception_v3_weights_tf_dim_ordering_tf_kernels_notop.h5",
    "md5",
    "bcbd6486424b2319ff4ef7d526e38f63",
)
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
        kind: See `options.split_features`.
        channels: Numbers of channels of the images to score.

    Raises:
        UserError: The extractor does not take such images, or its weights are not available.
    """
    name, file = split_features(kind)
    if name != "random" and (unsupported := sorted(set(channels) - {1, 3})):
        raise UserError(
            f"images of {unsupported[0]} channels: Inception takes RGB, or gray repeated as RGB; expected 1 or 3"
            " channels: use the features of the random network (random)"
        )
    return {"random": _make_random, "inception": _make_inception}.get(name, _make_fid)(name, file)


def _make_random(name: str, file: str) -> FeatureExtractor:
    protocol = (
        f"random: {2 * sum(WIDTHS)} features, means and standard deviations over the image of {len(WIDTHS)}"
        f" convolutions with fixed random weights (seed {SEED}), each halving the image; ranks translations of one"
        " dataset and size, and is not comparable with published FIDs"
    )
    return FeatureExtractor(name, protocol, random_features)


def random_features(images: tf.Tensor) -> tf.Tensor:
    """Return the 672 features of each image: means and standard deviations of four convolutions with random weights.

    Nothing is learned or normalized. Random convolutions distinguish textures and colors (Jarrett et al. 2009), which
    is just enough to rank the translations of one run. The images have any size and number of channels.
    """
    features, x = [], images
    for kernel, bias in random_kernels(images.shape[-1]):
        x = tf.nn.relu(tf.nn.conv2d(x, kernel, 2, "SAME") + bias)
        mean, variance = tf.nn.moments(x, axes=[1, 2])
        features += [mean, tf.sqrt(variance + 1e-6)]
    return tf.concat(features, axis=-1)


def random_kernels(channels: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (kernel [4, 4, in, out], bias [out]) of each convolution, with the variance of He et al. (2015)."""
    rng = np.random.RandomState(SEED)  # not default_rng: NumPy promises that this one never changes
    layers = []
    for inputs, outputs in zip((channels, *WIDTHS), WIDTHS):
        kernel = rng.standard_normal((4, 4, inputs, outputs)) * np.sqrt(2 / (16 * inputs))
        layers.append((kernel.astype(np.float32), rng.uniform(-0.5, 0.5, outputs).astype(np.float32)))
    return layers


def _make_inception(name: str, file: str) -> FeatureExtractor:
    path, digest = _find_weights(name, file, KERAS)
    try:
        with compat.precision_policy("float32"):
            network = tf.keras.applications.InceptionV3(
                include_top=False, pooling="avg", input_shape=(SIDE, SIDE, 3), weights=None
            )
        network.load_weights(path)
    except Exception as error:  # Keras raises nothing more specific
        raise UserError(
            f"{path}: not the weights of Keras's InceptionV3 without its top layer"
            f" ({first_line(error)[:REASON_LENGTH]}); expected the file {KERAS[0]}"
        ) from error
    weights = f"weights of {path.name}, not Keras's file" if digest else "ImageNet weights of Keras"
    protocol = (
        f"keras-inception-v3 ({weights}), 2048 features of the last pooling, images resized to {SIDE} px (bilinear,"
        " antialiased); not the network of published FIDs, so compare with each other only"
    )

    def compute(images: tf.Tensor) -> tf.Tensor:
        resized = tf.image.resize(images, (SIDE, SIDE), tf.image.ResizeMethod.BILINEAR, antialias=True)
        return network(_as_rgb(resized), training=False)

    return FeatureExtractor(f"keras-inception-v3 {digest}".strip(), protocol, compute)


def _make_fid(name: str, file: str) -> FeatureExtractor:
    path, digest = _find_weights(name, file, fid_network.PUBLISHED)
    weights = fid_network.read_weights(path)
    description, resize = fid_network.RESIZES[name]
    origin = f"{path.name}, SHA-256 {digest}, not pytorch-fid's file" if digest else "pytorch-fid"
    protocol = (
        f"{name}: Inception network of published FIDs (weights of {origin}), 2048 features of the last pooling, images"
        f" resized to {SIDE} px ({description})"
    )

    def compute(images: tf.Tensor) -> tf.Tensor:
        return fid_network.inception(weights, resize((_as_rgb(images) + 1) * 127.5))

    return FeatureExtractor(f"{name} {digest}".strip(), protocol, compute)


def _as_rgb(images: tf.Tensor) -> tf.Tensor:
    return images if images.shape[-1] == 3 else tf.repeat(images, 3, axis=-1)


def _find_weights(name: str, file: str, published: tuple[str, str, str]) -> tuple[pathlib.Path, str]:
    """Return the file with the weights of features, and its hash if it is not the published file.

    Args:
        name: Name of the features.
        file: Name of the file; if empty, the published file is downloaded once.
        published: URL of the published file, kind of hash, hash.
    """
    url, algorithm, expected = published
    if not file:
        try:
            with contextlib.redirect_stdout(sys.stdout if sys.stdout.isatty() else io.StringIO()):  # Keras's bar
                file = tf.keras.utils.get_file(
                    url.rpartition("/")[2], url, cache_subdir="models", file_hash=expected, hash_algorithm=algorithm
                )
        except Exception as error:  # Keras raises nothing more specific
            raise UserError(
                f"the weights of the features {name} could not be downloaded"
                f" ({first_line(error).replace(url, 'its server')[:REASON_LENGTH]});"
                f" expected a network connection. Download {url} elsewhere and name the file ({name}:FILE), or use"
                " --features random (in training --evaluate_features random), which downloads nothing"
            ) from error
    path = pathlib.Path(file).expanduser()
    digest = hashlib.new(algorithm, path.read_bytes(), usedforsecurity=False).hexdigest()
    return path, "" if digest == expected else digest
