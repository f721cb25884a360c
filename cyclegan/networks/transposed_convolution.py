"""Transposed convolution layers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cyclegan.networks.initializers import kernel_initializer
from cyclegan.networks.native_precision import add_bias, convolve_in_native_precision


def make_transposed_convolution(
    filters: int,
    size: int,
    padding: str = "same",
    use_bias: bool = False,
    init: str = "normal",
    trains_bias: bool = True,
) -> tf.keras.layers.Layer:
    """Return a transposed convolution layer with stride 2; see `kernel_initializer` for `init`."""
    initializer = kernel_initializer(init)
    return TransposedConvolution(
        filters, size, 2, padding, use_bias=use_bias, trains_bias=trains_bias, kernel_initializer=initializer
    )


@tf.keras.utils.register_keras_serializable("cyclegan")
class TransposedConvolution(tf.keras.layers.Conv2DTranspose):
    """Enlarge features by the stride, in a precision that the device has instructions for: [N, H, W, C] -> [N, 2 H, 2 W, filters].

    With padding "same", it is Keras's `Conv2DTranspose`. With padding "valid" and a kernel wider than the stride by 1, it
    is PyTorch's layer with padding 1 and output padding 1. It computes y[2 i + k - 1] += x[i] kernel[k], where "same"
    has y[2 i + k].

    Attributes:
        trains_bias: False if an instance normalization follows, which cancels the bias: training leaves the bias out then.
    """

    def __init__(self, *args: Any, trains_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trains_bias = trains_bias

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Enlarge features [N, H, W, C]."""
        # Symmetric, because cuDNN pads by itself then; the shape of the output implies PyTorch's output padding.
        padding = [[0, 0], [1, 1], [1, 1], [0, 0]] if self.padding == "valid" else "SAME"

        def convolve(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
            batch, height, width = (known or n for known, n in zip(x.shape[:3], tf.unstack(tf.shape(x)[:3])))
            shape = [batch, height * self.strides[0], width * self.strides[1], self.filters]
            return tf.nn.conv2d_transpose(x, kernel, shape, self.strides, padding)

        y = convolve_in_native_precision(convolve, inputs, self.kernel)
        return add_bias(y, self.bias) if self.use_bias and (self.trains_bias or not training) else y

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make this layer again."""
        return {**super().get_config(), "trains_bias": self.trains_bias}

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """Return the shape of the output for an input shape, both with None for an unknown size."""
        height, width = (n and n * stride for n, stride in zip(input_shape[1:3], self.strides))
        return (input_shape[0], height, width, self.filters)
