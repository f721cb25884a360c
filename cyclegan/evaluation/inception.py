"""Keras's InceptionV3 as a source of image features."""

from __future__ import annotations

import hashlib
import os
import pathlib

import h5py
import tensorflow as tf

from cyclegan.errors import UserError, first_line

WEIGHTS_URL = (
    "https://storage.googleapis.com/tensorflow/keras-applications/inception_v3/"
    "inception_v3_weights_tf_dim_ordering_tf_kernels_notop.h5"
)
WEIGHTS_MD5 = "bcbd6486424b2319ff4ef7d526e38f63"
SIDE = 299  # pixels of the images that the network was trained on
REASON_LENGTH = 200  # characters of Keras's messages, which may list all layers


def download() -> tf.keras.Model:
    """Return the network with the ImageNet weights that Keras downloads once.

    Raises:
        UserError: The weights cannot be downloaded.
    """
    try:
        return _network("imagenet")
    except Exception as error:  # Keras raises nothing more specific
        raise UserError(
            f"the weights of InceptionV3 could not be downloaded ({first_line(error)[:REASON_LENGTH]}); expected a network"
            f" connection. Download {WEIGHTS_URL} elsewhere and name the file instead of inception (--features FILE), or use the"
            " features of the random network (--features random)"
        ) from error


def load(file: str) -> tuple[tf.keras.Model, str | None]:
    """Return the network with weights from a file.

    Args:
        file: Weights without the top layer, as in `WEIGHTS_URL`.

    Returns:
        (the network, the MD5 of the file if it is not the file of Keras, else `None`).

    Raises:
        UserError: The file does not exist or does not have these weights.
    """
    path = os.path.expanduser(file)
    if not os.path.isfile(path):
        raise UserError(
            f"{file}: no such file; expected random, inception, or a file with its weights, from {WEIGHTS_URL}"
        )
    try:
        if not (path.endswith(".h5") and h5py.is_hdf5(path)):  # Keras 2 would take it for a checkpoint
            raise ValueError("not an HDF5 file with the suffix .h5")
        network = _network(None)
        network.load_weights(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(
            f"{file}: not the weights of Keras's InceptionV3 without its top layer ({first_line(error)[:REASON_LENGTH]}); expected"
            f" the file {WEIGHTS_URL}"
        ) from error
    md5 = hashlib.md5(pathlib.Path(path).read_bytes(), usedforsecurity=False).hexdigest()
    return network, md5 if md5 != WEIGHTS_MD5 else None


def inception_features(network: tf.keras.Model, images: tf.Tensor) -> tf.Tensor:
    """Return the 2048 features of each image before the last layer, averaged over the image.

    Args:
        network: InceptionV3 without its top layer.
        images: float32 [N, H, W, C] in [-1, 1] with 1 or 3 channels.

    Returns:
        float32 [N, 2048].
    """
    images = tf.image.resize(images, (SIDE, SIDE), tf.image.ResizeMethod.BILINEAR, antialias=True)
    if images.shape[-1] == 1:
        images = tf.repeat(images, 3, axis=-1)
    return network(images, training=False)


def _network(weights: str | None) -> tf.keras.Model:
    network = tf.keras.applications.InceptionV3(
        include_top=False, pooling="avg", input_shape=(SIDE, SIDE, 3), weights=weights
    )
    network.trainable = False
    return network
