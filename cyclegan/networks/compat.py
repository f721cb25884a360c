"""Differences between the stacks: TensorFlow 2.15 with Keras 2 and Addons, and TensorFlow 2.21 with Keras 3."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from cyclegan.errors import UserError

KERAS_MAJOR = int(getattr(tf.keras, "__version__", "2").split(".")[0])  # tf.keras of TensorFlow 2.15 has no version

_OWN = 2 if tf.__version__.startswith("2.15.") else 3

if KERAS_MAJOR != _OWN or tf.keras.backend.backend() != "tensorflow":
    raise UserError(
        f"tf.keras of TensorFlow {tf.__version__} is Keras {KERAS_MAJOR} with the backend"
        f" {tf.keras.backend.backend()}; expected its own Keras with the backend tensorflow: import cyclegan before"
        " Keras and TensorFlow, or set TF_USE_LEGACY_KERAS=0 and KERAS_BACKEND=tensorflow"
    )

# Namespace whose `pad`, `round` and `cast` take the symbolic tensors of a Keras model under construction.
ops = tf.keras.ops if KERAS_MAJOR > 2 else tf

# Argument of `add_weight` for a variable that mixed precision does not cast when a layer reads it.
WITHOUT_AUTOCAST = {"autocast" if KERAS_MAJOR > 2 else "experimental_autocast": False}


def stack() -> dict[str, Any]:
    """Return the versions that a checkpoint depends on; it fits all stacks with the same major version "keras"."""
    return {"keras": KERAS_MAJOR, "tensorflow": tf.__version__}


@contextlib.contextmanager
def precision_policy(precision: str) -> Iterator[None]:
    """Make layers created in this context compute in float32 ("auto"), bfloat16 or float16; variables are float32.

    Images are N H W C in this context. So Keras's configuration file and settings of the program have no effect.
    """
    backend = tf.keras.backend
    before = tf.keras.mixed_precision.global_policy(), backend.image_data_format(), backend.floatx()
    level = tf.get_logger().level
    tf.get_logger().setLevel("ERROR")  # Keras 2 warns that float16 is slow on a CPU
    policy = "float32" if precision in {"auto", "float32"} else f"mixed_{precision}"
    _configure_keras(policy, "channels_last", "float32")
    try:
        yield
    finally:
        _configure_keras(*before)
        tf.get_logger().setLevel(level)


def _configure_keras(policy: Any, data_format: str, floatx: str) -> None:
    tf.keras.mixed_precision.set_global_policy(policy)
    tf.keras.backend.set_image_data_format(data_format)
    tf.keras.backend.set_floatx(floatx)


def make_model(inputs: tf.Tensor, outputs: tf.Tensor, name: str) -> tf.keras.Model:
    """Return a Keras model in which each layer keeps its own precision."""
    model = tf.keras.Model(inputs, outputs, name=name)
    if KERAS_MAJOR > 2:  # it would round the variables of float32 layers to the precision of the model
        model.dtype_policy = tf.keras.mixed_precision.Policy("float32")
    return model


def instance_normalization_of_addons() -> type[tf.keras.layers.Layer] | None:
    """Return the instance normalization layer of TensorFlow Addons, or `None` on the later stack, which has none."""
    if KERAS_MAJOR > 2:
        return None
    with warnings.catch_warnings():
        # The only message of Addons is that its development has ended; the later stack does not use it.
        warnings.filterwarnings("ignore", category=UserWarning, module="tensorflow_addons")
        import tensorflow_addons as tfa
    return tfa.layers.InstanceNormalization
