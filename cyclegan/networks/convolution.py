"""Convolution layers."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks.few_channels import convolve_to_few_channels
from cyclegan.networks.initializers import kernel_initializer
from cyclegan.networks.native_precision import add_bias, convolve_in_native_precision

FEW_CHANNELS = 8  # output channels up to which `convolve_to_few_channels` is faster on the CPU


@tf.keras.utils.register_keras_serializable("cyclegan")
class Convolution(tf.keras.layers.Conv2D):
    """Compute what Keras's `Conv2D` does, faster on the CPU; the results are equal except for rounding.

    With few output channels and stride 1, the layer uses `convolve_to_few_channels`. In a precision that the CPU has no
    instructions for, it computes in float32 and rounds the result. The bias is always added in float32.

    Attributes:
        trains_bias: False if an instance normalization follows, which cancels the bias: training leaves the bias out then.
        margin: Number of zeros that each side of the input gets, with padding "valid". The operation itself adds them; a
            `ZeroPadding2D` would copy the input.
    """

    def __init__(self, *args: Any, trains_bias: bool = True, margin: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trains_bias = trains_bias
        self.margin = margin

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Convolve features [N, H, W, C]."""
        if training and not self.trains_bias:
            return self.convolution_op(inputs, self.kernel)
        if not self.use_bias or self.compute_dtype == "float32":
            return super().call(inputs)
        y = add_bias(self.convolution_op(inputs, self.kernel), self.bias)
        return y if self.activation is None else self.activation(y)

    def convolution_op(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Convolve features [N, H, W, C] without the bias; Keras calls this."""
        dense = self.strides == self.dilation_rate == (1, 1)
        few = self.filters <= FEW_CHANNELS and dense and not hardware.has_accelerator()
        convolve = super().convolution_op
        if few:
            convolve = self._convolve_to_few
        elif self.margin:
            convolve = functools.partial(
                tf.nn.conv2d, strides=self.strides, padding=self._margins, dilations=self.dilation_rate
            )
        return convolve_in_native_precision(convolve, inputs, kernel)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """Return the shape of the output for an input shape, both with None for an unknown size."""
        batch, *size, channels = input_shape
        return super().compute_output_shape((batch, *(n and n + 2 * self.margin for n in size), channels))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make this layer again."""
        return {**super().get_config(), "trains_bias": self.trains_bias, "margin": self.margin}

    def _convolve_to_few(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if self.padding == "same":
            before_after = [[(size - 1) // 2, size // 2] for size in self.kernel_size]
            inputs = tf.pad(inputs, [[0, 0], *before_after, [0, 0]])
        elif self.margin:
            inputs = tf.pad(inputs, self._margins)
        return convolve_to_few_channels(inputs, kernel)

    @property
    def _margins(self) -> list[list[int]]:
        return [[0, 0], [self.margin] * 2, [self.margin] * 2, [0, 0]]


def make_convolution(
    filters: int,
    size: int,
    stride: int = 1,
    padding: str = "same",
    use_bias: bool = False,
    init: str = "normal",
    kind: type[Convolution] = Convolution,
    **options: Any,
) -> Convolution:
    """Return a convolution layer of a kind with further options of it; see `kernel_initializer` for `init`."""
    initializer = kernel_initializer(init)
    return kind(filters, size, stride, padding, use_bias=use_bias, kernel_initializer=initializer, **options)
