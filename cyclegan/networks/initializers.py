"""Initial values of weights."""

from __future__ import annotations

import tensorflow as tf

GAIN = 0.02  # scale of the initial values (Zhu et al. 2017, section 4)


def normal(mean: float = 0.0) -> tf.keras.initializers.Initializer:
    """Return an initializer with the distribution N(mean, 0.02)."""
    return tf.keras.initializers.RandomNormal(mean, GAIN)


def kernel_initializer(init: str) -> tf.keras.initializers.Initializer:
    """Return an initializer for convolution kernels, the same as in `init_weights` of pytorch-CycleGAN-and-pix2pix.

    For a transposed convolution, fan_in is kernel area * output channels, as in PyTorch.

    Args:
        init: "normal": N(0, 0.02). "xavier": N(0, s) with s^2 = 0.02^2 * 2 / (fan_in + fan_out) (Glorot and Bengio
            2010, eq. 16). "kaiming": the same with s^2 = 2 / fan_in (He et al. 2015, eq. 10). "orthogonal": 0.02 times
            a random orthogonal matrix (Saxe et al. 2014).
    """
    initializers = tf.keras.initializers
    if init == "xavier":
        return initializers.VarianceScaling(GAIN**2, "fan_avg", "untruncated_normal")
    if init == "kaiming":
        return initializers.VarianceScaling(2.0, "fan_in", "untruncated_normal")
    return initializers.Orthogonal(GAIN) if init == "orthogonal" else normal()
