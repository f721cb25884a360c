"""Instance normalization: (x - mean) / sqrt(variance + epsilon) * gamma + beta (Ulyanov et al. 2016).

Both layers map [N, H, W, C] -> [N, H, W, C]; mean and variance are over H and W. They compute in float32 and return the type of
their input: statistics in bfloat16 are badly wrong for inputs with a large mean.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks import compat
from cyclegan.networks.initializers import normal

EPSILON = 1e-3  # default of TensorFlow Addons
LARGE_SAMPLE = 2**16  # values of a sample from which a CPU is faster with one fused operation per sample


def make_instance_normalization(
    epsilon: float = EPSILON, affine: bool = True, second_derivatives: bool = False
) -> tf.keras.layers.Layer:
    """Return an instance normalization layer.

    Args:
        epsilon: Added to the variance.
        affine: Whether the layer learns gamma, initially N(0, 0.02), and beta, initially 0.
        second_derivatives: Whether second derivatives of the layer have to be right.
    """
    kind = PlainInstanceNormalization if second_derivatives else InstanceNormalization
    return kind(epsilon=epsilon, center=affine, scale=affine, gamma_initializer=normal())


@tf.keras.utils.register_keras_serializable("cyclegan")
class PlainInstanceNormalization(tf.keras.layers.Layer):
    """Instance normalization whose derivatives of any order are right; it takes the arguments of Addons' layer.

    Attributes:
        epsilon: Added to the variance.
        gamma: float32 variable [C], or None.
        beta: float32 variable [C], or None.
    """

    def __init__(
        self,
        epsilon: float = EPSILON,
        center: bool = True,
        scale: bool = True,
        gamma_initializer: Any = "ones",
        **kwargs: Any,
    ) -> None:
        super().__init__(**{**kwargs, "dtype": "float32", "autocast": False})
        self.epsilon, self.center, self.scale = epsilon, center, scale
        self.gamma_initializer = tf.keras.initializers.get(gamma_initializer)
        self.gamma: tf.Variable | None = None
        self.beta: tf.Variable | None = None

    def build(self, input_shape: tf.TensorShape) -> None:
        """Create the variables for inputs of this shape."""
        channels = (input_shape[-1],)
        if self.scale:
            self.gamma = self.add_weight(name="gamma", shape=channels, initializer=self.gamma_initializer)
        if self.center:
            self.beta = self.add_weight(name="beta", shape=channels, initializer="zeros")
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Normalize features [N, H, W, C]."""
        dtype, x = x.dtype, tf.cast(x, tf.float32)
        # Not tf.nn.moments, which stops the gradient of the mean in the variance: right for first derivatives only.
        mean = tf.reduce_mean(x, axis=[1, 2], keepdims=True)
        variance = tf.reduce_mean(tf.square(x - mean), axis=[1, 2], keepdims=True)
        y = tf.nn.batch_normalization(x, mean, variance, self.beta, self.gamma, self.epsilon)
        return tf.cast(y, dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make this layer again."""
        initializer = tf.keras.initializers.serialize(self.gamma_initializer)
        arguments = {
            "epsilon": self.epsilon,
            "center": self.center,
            "scale": self.scale,
            "gamma_initializer": initializer,
        }
        return {**super().get_config(), **arguments}


_Base: Any = compat.instance_normalization_of_addons() or PlainInstanceNormalization


@tf.keras.utils.register_keras_serializable("cyclegan")
class InstanceNormalization(_Base):
    """The layer of TensorFlow Addons where it is installed, with few operations in training; first derivatives are right.

    Training takes one operation per sample, and for samples below `LARGE_SAMPLE` on a CPU the plain form, which is faster there.
    """

    def __init__(self, **kwargs: Any) -> None:
        kwargs.pop("groups", None)  # the base sets it to the number of channels
        super().__init__(**{**kwargs, "dtype": "float32", "autocast": False})

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Normalize features [N, H, W, C]."""
        values = x.shape[1:].num_elements() or 0  # 0 if the shape is not known yet
        if training and x.shape[0] and values:
            is_fused = values >= LARGE_SAMPLE or hardware.has_accelerator()
            return self._normalize_fused(x) if is_fused else self._normalize_plain(x)
        return tf.cast(super().call(tf.cast(x, tf.float32)), x.dtype)

    def _normalize_plain(self, x: tf.Tensor) -> tf.Tensor:
        """Normalize with the statistics of all samples."""
        dtype, x = x.dtype, tf.cast(x, tf.float32)
        mean, variance = tf.nn.moments(x, axes=[1, 2], keepdims=True)
        return tf.cast(tf.nn.batch_normalization(x, mean, variance, self.beta, self.gamma, self.epsilon), dtype)

    def _normalize_fused(self, x: tf.Tensor) -> tf.Tensor:
        """Normalize with the operation for batch normalization on each sample; its statistics are float32 for all types."""
        channels = x.shape[-1:]
        gamma = tf.ones(channels) if self.gamma is None else tf.convert_to_tensor(self.gamma)
        beta = tf.zeros(channels) if self.beta is None else tf.convert_to_tensor(self.beta)
        normalized = [
            tf.raw_ops.FusedBatchNormV3(
                x=sample, scale=gamma, offset=beta, mean=[], variance=[], epsilon=self.epsilon
            ).y
            for sample in tf.split(x, x.shape[0])
        ]
        return tf.concat(normalized, axis=0)
