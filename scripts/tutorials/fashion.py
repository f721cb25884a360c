"""Fashion MNIST: images, batches of them, and a network. `fashion_mnist.py` distributes them."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from cyclegan.errors import UserError, first_line

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
WANTED = "x_train and x_test, uint8 [N, 28, 28], and y_train and y_test, whole numbers from 0 to 9, [N]"
CACHE = "~/.keras/datasets/fashion-mnist"  # of Keras
ANSWER_SECONDS = 20  # a network that drops all packets would block for minutes
L2 = 1e-5  # weight of the sum of the squared kernels


def load(path: str | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (x_train, y_train, x_test, y_test) of Fashion MNIST or of an .npz file.

    The images are uint8 [N, 28, 28, 1], the classes int64 [N].

    Raises:
        UserError: The data is not available, or has another form.
    """
    x_train, y_train, x_test, y_test = _read(path) if path else _fetch()
    for x, y, split in ((x_train, y_train, "train"), (x_test, y_test, "test")):
        is_image = x.dtype == np.uint8 and x.shape[1:] == (28, 28) and len(x)
        if not is_image or y.dtype.kind not in "iu" or y.shape != x.shape[:1] or y.min() < 0 or y.max() > 9:
            forms = f"x_{split} is {x.dtype} {list(x.shape)} and y_{split} is {y.dtype} {list(y.shape)}"
            raise UserError(f"--data {path or CACHE}: {forms}; expected {WANTED}")
    return x_train[..., None], y_train.astype(np.int64), x_test[..., None], y_test.astype(np.int64)


def _read(path: str) -> list[np.ndarray]:
    """Return the arrays of an .npz file."""
    try:
        with np.lib.npyio.NpzFile(path, allow_pickle=False) as file:  # unpickling would run code from the file
            return [np.asarray(file[name]) for name in ARRAYS]
    except Exception as error:  # zipfile, zlib and NumPy have a dozen kinds
        raise UserError(f"--data {path}: {first_line(error)}; expected an .npz file with {WANTED}") from error


def _fetch() -> list[np.ndarray]:
    """Return the arrays from the cache of Keras, or download them."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(ANSWER_SECONDS)
    try:
        train, test = tf.keras.datasets.fashion_mnist.load_data()  # looks into its cache first
        return [*train, *test]
    except Exception as error:  # Keras raises it without a network; damaged files raise a dozen others
        raise UserError(
            f"Fashion MNIST could neither be read from Keras's cache nor downloaded ({first_line(error)}): put the four"
            f" .gz files of https://github.com/zalandoresearch/fashion-mnist into {CACHE}, or name a file with"
            f" --data FILE.npz, with {WANTED}"
        ) from error
    finally:
        socket.setdefaulttimeout(before)


def batches(
    images: np.ndarray, labels: np.ndarray, batch_size: int, seed: int | Sequence[int] | None = None
) -> tf.data.Dataset:
    """Return batches of (images, labels, weights) with each example once, shuffled with `seed` or in their order.

    All batches are full: examples of weight 0 fill the last one, so that every replica has examples and nothing is
    traced again.
    """
    count = len(labels)
    order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
    positions = np.arange(-(-count // batch_size) * batch_size)
    filled, weights = order[positions % count], (positions < count).astype(np.float32)
    examples = tf.data.Dataset.from_tensor_slices((images[filled], labels[filled], weights))
    return examples.batch(batch_size, drop_remainder=True)


def make_model() -> tf.keras.Model:
    """Return a network from images [N, 28, 28, 1] in [0, 255] to logits [N, 10]; it scales its input itself."""
    layers, l2 = tf.keras.layers, tf.keras.regularizers.L2(L2)
    return tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, activation="relu", kernel_regularizer=l2),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu", kernel_regularizer=l2),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu", kernel_regularizer=l2),
            layers.Dense(10, kernel_regularizer=l2),
        ]
    )
