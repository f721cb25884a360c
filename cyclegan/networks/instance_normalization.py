"""Instance normalization, in the form that is fastest on the device."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks import compat
from cyclegan.networks.initializers import normal

EPSILON = 1e-3  # default of TensorFlow Addons
LARGE_SAMPLE = 2**16  # number of values in a sample from which one fused operation per sample is faster on a CPU


def make_instance_normalization(
    epsilon: float = EPSILON, affine: bool = True, second_derivatives: bool = False
) -> tf.keras.layers.Layer:
    """Return an instance normalization layer: on GPUs the layer of TensorFlow Addons if it is installed, else our own.

    The layer computes in float32 under any precision policy, because statistics in bfloat16 are badly wrong for inputs
    with a large mean.

    Args:
        epsilon: Added to the variance.
        affine: Whether the layer learns gamma, initially N(0, 0.02), and beta, initially 0.
        second_derivatives: Whether second derivatives of the layer must be correct.
    """
    if second_derivatives or compat.KERAS_MAJOR > 2 or not hardware.has_accelerator():
        return InstanceNormalization(epsilon, affine, fused=not second_derivatives)
    return compat.addons_instance_normalization(epsilon, affine)


@tf.keras.utils.register_keras_serializable("cyclegan")
class InstanceNormalization(tf.keras.layers.Layer):
    """Normalize each channel of each sample: (x - mean) / sqrt(variance + epsilon) * gamma + beta (Ulyanov et al. 2016).

    [N, H, W, C] -> [N, H, W, C]; mean and variance are over H and W. The layer computes in float32 and returns the type
    of its input.

    Attributes:
        epsilon: Added to the variance.
        affine: Whether there are a gamma and a beta.
        fused: Whether a CPU may normalize each large sample (see `LARGE_SAMPLE`) by one fused operation in training.
            Then only first derivatives are correct; otherwise derivatives of any order are.
        gamma: float32 variable [C], or None.
        beta: float32 variable [C], or None.
    """

    def __init__(self, epsilon: float = EPSILON, affine: bool = True, fused: bool = True, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32", "autocast": False})
        self.epsilon, self.affine, self.fused = epsilon, affine, fused
        self.gamma: tf.Variable | None = None
        self.beta: tf.Variable | None = None

    def build(self, input_shape: tf.TensorShape) -> None:
        """Create the variables for inputs of this shape."""
        channels = (input_shape[-1],)
        if self.affine:
            self.gamma = self.add_weight(name="gamma", shape=channels, initializer=normal())
            self.beta = self.add_weight(name="beta", shape=channels, initializer="zeros")
        self.built = True

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Normalize features [N, H, W, C]."""
        values = x.shape[1:].num_elements() or 0  # 0 if the shape is not known yet
        if self.fused and training and x.shape[0] and values >= LARGE_SAMPLE and not hardware.has_accelerator():
            return self._normalize_fused(x)
        dtype, x = x.dtype, tf.cast(x, tf.float32)
        # Not tf.nn.moments, which stops the gradient of the mean in the variance: correct for first derivatives only.
        mean = tf.reduce_mean(x, axis=[1, 2], keepdims=True)
        variance = tf.reduce_mean(tf.square(x - mean), axis=[1, 2], keepdims=True)
        y = tf.nn.batch_normalization(x, mean, variance, self.beta, self.gamma, self.epsilon)
        return tf.cast(y, dtype)

    def _normalize_fused(self, x: tf.Tensor) -> tf.Tensor:
        """Normalize with the operation for batch normalization on each sample; its statistics are float32 for all types."""
        channels = x.shape[-1:]
        gamma, beta = (self.gamma, self.beta) if self.affine else (tf.ones(channels), tf.zeros(channels))
        gamma, beta = tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta)
        normalized = [
            tf.raw_ops.FusedBatchNormV3(
                x=sample, scale=gamma, offset=beta, mean=[], variance=[], epsilon=self.epsilon
            ).y
            for sample in tf.split(x, x.shape[0])
        ]
        return tf.concat(normalized, axis=0)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make this layer again."""
        return {**super().get_config(), "epsilon": self.epsilon, "affine": self.affine, "fused": self.fused}
