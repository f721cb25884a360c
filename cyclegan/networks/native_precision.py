"""Convolutions in a precision that the device may have no instructions for."""

from __future__ import annotations

from typing import Callable

import tensorflow as tf

from cyclegan.distribution import hardware


def convolve_in_native_precision(
    convolve: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], x: tf.Tensor, kernel: tf.Tensor
) -> tf.Tensor:
    """Return `convolve(x, kernel)`, computed in float32 if the device has no instructions for the type of `x`.

    TensorFlow takes fifteen times as long without such instructions. The result has the type of `x`.
    """
    kernel = tf.convert_to_tensor(kernel)
    if hardware.has_instructions_for(x.dtype.name if hasattr(x.dtype, "name") else x.dtype):
        return convolve(x, kernel)
    return tf.cast(convolve(tf.cast(x, tf.float32), tf.cast(kernel, tf.float32)), x.dtype)


def add_bias(y: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Return the sum of `y` [N, H, W, C] and `bias` [C], computed in float32, in the type of `y`.

    The gradient of a bias is a sum over all pixels. In bfloat16 on the CPU, TensorFlow's sum of 65,536 equal numbers is
    only 256 times the number.
    """
    return tf.cast(tf.cast(y, tf.float32) + tf.cast(bias, tf.float32), y.dtype)
