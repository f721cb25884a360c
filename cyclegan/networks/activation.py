"""Activation functions."""

from __future__ import annotations

import tensorflow as tf

NEGATIVE_SLOPE = 0.2


@tf.keras.utils.register_keras_serializable("cyclegan")
class LeakyReLU(tf.keras.layers.Layer):
    """Return x where x > 0 and 0.2 x elsewhere.

    Keras has this layer, but Keras 2 and 3 name its slope differently.
    """

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Apply the activation to a tensor of any shape."""
        return tf.nn.leaky_relu(x, NEGATIVE_SLOPE)
