"""What FID and KID compare pictures by: numbers that a fixed network makes of each."""

import functools
import hashlib
import os
import pathlib

import h5py
import numpy as np
import tensorflow as tf

from cyclegan.errors import UserError

INCEPTION_URL = (
    "https://storage.googleapis.com/tensorflow/keras-applications/inception_v3/"
    "inception_v3_weights_tf_dim_ordering_tf_kernels_notop.h5"
)
INCEPTION_MD5 = "bcbd6486424b2319ff4ef7d526e38f63"
INCEPTION_SIDE = 299  # pixels, what it was trained on
WIDTHS = (48, 64, 96, 128)  # channels of the random network's convolutions
SEED = 20161  # of its weights: another one would be another network, whose scores compare with no others


class FeatureExtractor:
    """A fixed network, compiled once per shape of the pictures.

    Calling it takes float32 [N, H, W, C] in [-1, 1] and gives float32 [N, D].

    Attributes:
        name: "random" or "keras-inception-v3", with the MD5 of the weights where these are not those of Keras: scores compare
            where it is the same.
        protocol: what is computed, in words.
    """

    def __init__(self, name, protocol, compute):
        self.name, self.protocol = name, protocol
        self._compute = tf.function(compute, autograph=False)

    def __call__(self, pictures):
        return self._compute(tf.convert_to_tensor(pictures)).numpy()


def extractor(kind, channels=(3,)):
    """The extractor that a command line asks for.

    Args:
        kind: "random"; "inception", the weights that Keras downloads, once; or the name of a file of these.
        channels: of the pictures that will be scored.

    Raises:
        UserError: pictures of these channels can't be scored by it, its weights can't be fetched, or the file does not hold them.
    """
    if kind == "random":
        return random()
    if unfit := sorted(set(channels) - {1, 3}):
        raise UserError(
            f"pictures of {unfit[0]} channels: Inception takes RGB, or gray that is repeated; expected 1 or 3 channels: use the"
            " features of the random network (random)"
        )
    return inception(None if kind == "inception" else kind)


def inception(file=None):
    """The 2048 features of Keras's InceptionV3 (Szegedy et al. 2016) before its last layer, averaged over the picture.

    This is not the network of the first FIDs (TensorFlow's of 2015), so published figures differ.

    Args:
        file: its ImageNet weights without the top, as in `INCEPTION_URL`; by default Keras downloads them, once.

    Raises:
        UserError: they can't be fetched, or the file does not hold them.
    """
    shape = (INCEPTION_SIDE, INCEPTION_SIDE, 3)
    build = functools.partial(tf.keras.applications.InceptionV3, include_top=False, pooling="avg", input_shape=shape)
    name, weights = "keras-inception-v3", "ImageNet weights of Keras"
    if file is None:
        try:
            network = build(weights="imagenet")
        except Exception as error:  # Keras raises a bare one
            raise UserError(
                f"the weights of InceptionV3 could not be fetched ({_first_line(error)}): expected a network. Or download"
                f" {INCEPTION_URL} elsewhere and name the file in place of inception; or use the features of the random network"
                " (random)"
            ) from error
    else:
        path = os.path.expanduser(file)
        if not os.path.isfile(path):
            raise UserError(
                f"{file}: no such file; expected random, inception, or a file of its weights, from {INCEPTION_URL}"
            )
        try:
            if not (path.endswith(".h5") and h5py.is_hdf5(path)):  # Keras 2 would take it for a checkpoint
                raise ValueError("no HDF5 file whose name ends in .h5")
            network = build(weights=None)
            network.load_weights(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise UserError(
                f"{file}: not the weights of Keras's InceptionV3 without its top ({_first_line(error)}); expected the file from"
                f" {INCEPTION_URL}"
            ) from error
        found = hashlib.md5(pathlib.Path(path).read_bytes(), usedforsecurity=False).hexdigest()
        if found != INCEPTION_MD5:
            name, weights = f"{name} {found}", f"weights of {os.path.basename(path)}, which are not those of Keras"
    network.trainable = False

    def compute(pictures):
        pictures = tf.image.resize(pictures, shape[:2], tf.image.ResizeMethod.BILINEAR, antialias=True)
        if pictures.shape[-1] == 1:
            pictures = tf.repeat(pictures, 3, axis=-1)
        return network(pictures, training=False)

    text = (
        f"keras-inception-v3 ({weights}), 2048 numbers of the last pooling, pictures resized to {INCEPTION_SIDE} px (bilinear,"
        " antialiased); not the network of published FIDs, which compare with each other only"
    )
    return FeatureExtractor(name, text, compute)


def random():
    """Means and standard deviations of what four convolutions with fixed random weights make of a picture, 672 numbers.

    Nothing is learned or normalized. Random convolutions tell textures and colours apart (Jarrett et al. 2009), which is enough to
    rank the translations of one run, and no more than that. For pictures of any size and number of channels.
    """

    def compute(pictures):
        found, x = [], pictures
        for kernel, bias in _random_kernels(pictures.shape[-1]):
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 2, "SAME") + bias)
            mean, variance = tf.nn.moments(x, axes=[1, 2])
            found += [mean, tf.sqrt(variance + 1e-6)]
        return tf.concat(found, axis=-1)

    text = (
        f"random: {2 * sum(WIDTHS)} numbers, means and standard deviations over the picture of {len(WIDTHS)} convolutions with"
        f" fixed random weights (seed {SEED}), each halving it; ranks translations of one data set and size, and is not comparable"
        " with published FIDs"
    )
    return FeatureExtractor("random", text, compute)


def _random_kernels(channels):
    """[(float32 kernel [4, 4, inputs, outputs], bias [outputs])] of the random network, of He et al.'s variance (2015)."""
    rng = np.random.RandomState(SEED)  # not default_rng: NumPy promises that this one never changes
    layers = []
    for inputs, outputs in zip((channels, *WIDTHS), WIDTHS):
        kernel = rng.standard_normal((4, 4, inputs, outputs)) * np.sqrt(2 / (16 * inputs))
        layers.append((kernel.astype(np.float32), rng.uniform(-0.5, 0.5, outputs).astype(np.float32)))
    return layers


def _first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
