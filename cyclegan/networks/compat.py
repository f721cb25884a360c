"""The layers that networks are made of; and the one place that knows which stack this is."""

import contextlib

import tensorflow as tf

KERAS = int(getattr(tf.keras, "__version__", "2").split(".")[0])  # TensorFlow 2.15 does not say


ops = (
    tf.keras.ops if KERAS > 2 else tf
)  # of these, `pad`, `round` and `cast` work on what goes through a network in the making


def stack():
    """The versions that a checkpoint depends on. Checkpoints fit where `keras`, the major version, is the same."""
    return {"keras": KERAS, "tensorflow": tf.__version__}


@contextlib.contextmanager
def precision_policy(precision):
    """While it is entered, layers are made that compute in "float32", "bfloat16" or "float16", with float32 variables."""
    before = tf.keras.mixed_precision.global_policy()
    level = tf.get_logger().level
    tf.get_logger().setLevel("ERROR")  # Keras 2 warns that float16 is slow on a CPU, in terms of its own
    tf.keras.mixed_precision.set_global_policy(precision if precision == "float32" else f"mixed_{precision}")
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)
        tf.get_logger().setLevel(level)


def network(inputs, outputs, name):
    """A Keras model whose layers each keep their own precision."""
    model = tf.keras.Model(inputs, outputs, name=name)
    if KERAS > 2:  # it would have the variables of float32 layers rounded to the precision that it was made in
        model.dtype_policy = tf.keras.mixed_precision.Policy("float32")
    return model
