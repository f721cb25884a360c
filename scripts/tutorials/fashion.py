"""Fashion MNIST: the pictures, batches of them, and a network. How they are distributed is in `fashion_mnist.py`."""

import socket

import numpy as np
import tensorflow as tf

from cyclegan.data.sampler import sample_at
from cyclegan.errors import UserError

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
WANTED = "x_train and x_test, uint8 [N, 28, 28], and y_train and y_test, whole numbers from 0 to 9, [N]"
CACHE = "~/.keras/datasets/fashion-mnist"  # Keras's
ANSWER_SECONDS = 20  # a network that drops all packets would keep us for minutes
L2 = 1e-5  # weight of the sum of the squared kernels


def load(path=None):
    """(x_train, y_train, x_test, y_test) of Fashion MNIST, or of an .npz file: uint8 [N, 28, 28, 1] and int64 [N].

    Raises:
        UserError: they can't be had, or are something else.
    """
    x_train, y_train, x_test, y_test = _read(path) if path else _fetch()
    for x, y, split in ((x_train, y_train, "train"), (x_test, y_test, "test")):
        if x.dtype != np.uint8 or x.shape[1:] != (28, 28) or not len(x):
            problem = f"x_{split} is {x.dtype} {list(x.shape)}"
        elif y.dtype.kind not in "iu" or y.shape != x.shape[:1]:
            problem = f"y_{split} is {y.dtype} {list(y.shape)} for {len(x)} pictures"
        elif y.min() < 0 or y.max() > 9:
            problem = f"y_{split} has numbers from {y.min()} to {y.max()}"
        else:
            continue
        raise UserError(f"--data {path or CACHE}: {problem}; expected {WANTED}")
    return x_train[..., None], y_train.astype(np.int64), x_test[..., None], y_test.astype(np.int64)


def _read(path):
    try:
        with np.lib.npyio.NpzFile(path, allow_pickle=False) as file:  # unpickling would run what the file says
            return [np.asarray(file[name]) for name in ARRAYS]
    except Exception as error:  # zipfile, zlib and NumPy have a dozen kinds
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(f"--data {path}: {reason}; expected an .npz file with {WANTED}") from error


def _fetch():
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(ANSWER_SECONDS)
    try:
        train, test = tf.keras.datasets.fashion_mnist.load_data()  # looks into its cache first
        return [*train, *test]
    except Exception as error:  # which is what Keras raises without a network; damaged files give a dozen others
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"Fashion MNIST could neither be read from Keras's cache nor downloaded ({reason}): put the four .gz files of"
            f" https://github.com/zalandoresearch/fashion-mnist into {CACHE}, or name a file with --data FILE.npz, with {WANTED}"
        ) from error
    finally:
        socket.setdefaulttimeout(before)


def batches(images, labels, batch_size, seed=None):
    """A `tf.data.Dataset` of (images, labels, weights): each example once, in an order drawn from `seed` or as they are.

    All batches are full, the last one by examples of weight 0: no replica is left with nothing, nothing is traced again.
    """
    count = len(labels)
    order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
    numbers, weights = sample_at(np.arange(-(-count // batch_size) * batch_size), count)
    filled = order[numbers]
    examples = tf.data.Dataset.from_tensor_slices((images[filled], labels[filled], weights))
    return examples.batch(batch_size, drop_remainder=True)


def make_model():
    """[N, 28, 28, 1] in [0, 255] -> logits [N, 10]. It scales its input, so no one who restores it can forget to."""
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
