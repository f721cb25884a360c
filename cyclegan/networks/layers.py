"""Convolutions, paddings, activations, upsampling and dropout, and the initial values of weights."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Iterator
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from cyclegan.distribution import hardware

GAIN = 0.02  # scale of the initial values (Zhu et al. 2017, section 4)
FEW_CHANNELS = 8  # output channels up to which `convolve_to_few_channels` is faster on the CPU
NEGATIVE_SLOPE = 0.2
BINOMIAL = np.outer([1, 2, 1], [1, 2, 1]) / 16  # kernel of the blurs

LeakyReLU = functools.partial(tf.keras.layers.LeakyReLU, NEGATIVE_SLOPE)  # Keras 2 and 3 name the slope differently


def normal(mean: float = 0.0) -> tf.keras.initializers.Initializer:
    """Return an initializer with the distribution N(mean, 0.02)."""
    return tf.keras.initializers.RandomNormal(mean, GAIN)


def kernel_initializer(init: str) -> tf.keras.initializers.Initializer:
    """Return an initializer for convolution kernels, the same as in `init_weights` of pytorch-CycleGAN-and-pix2pix.

    "normal" is N(0, 0.02); "xavier" N(0, s) with s^2 = 0.02^2 * 2 / (fan_in + fan_out) (Glorot and Bengio 2010);
    "kaiming" N(0, s) with s^2 = 2 / fan_in (He et al. 2015); "orthogonal" 0.02 times a random orthogonal matrix
    (Saxe et al. 2014). For a transposed convolution, fan_in is kernel area * output channels, as in PyTorch.
    """
    initializers = tf.keras.initializers
    if init == "xavier":
        return initializers.VarianceScaling(GAIN**2, "fan_avg", "untruncated_normal")
    if init == "kaiming":
        return initializers.VarianceScaling(2.0, "fan_in", "untruncated_normal")
    return initializers.Orthogonal(GAIN) if init == "orthogonal" else normal()


class ReflectionPadding2D(tf.keras.layers.Layer):
    """Mirror `padding` pixels, fewer than H and W, at each side of images, without repeating the edge itself."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.padding = padding

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Pad images [N, H, W, C]."""
        sides = [self.padding, self.padding]
        return tf.pad(x, [[0, 0], sides, sides, [0, 0]], mode="REFLECT")


class NearestUpsampling2D(tf.keras.layers.Layer):
    """Repeat each pixel in a block of 2 x 2 pixels: [N, H, W, C] -> [N, 2 H, 2 W, C]."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Enlarge images [N, H, W, C]."""
        return _repeat(x)


class BlurDownsampling2D(tf.keras.layers.Layer):
    """Blur by `BINOMIAL` and take every second pixel (Zhang 2019): [N, H, W, C] -> [N, ceil(H / 2), ceil(W / 2), C]."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Halve features [N, H, W, C]."""
        return _blur(x, 2)


class BlurUpsampling2D(tf.keras.layers.Layer):
    """Repeat each pixel in a block of 2 x 2 pixels and blur by `BINOMIAL`: [N, H, W, C] -> [N, 2 H, 2 W, C].

    This equals bilinear interpolation, and a transposed convolution of stride 2 with 4 times the kernel
    [1, 3, 3, 1] x [1, 3, 3, 1] / 64.
    """

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Enlarge features [N, H, W, C]."""
        return _blur(_repeat(x), 1)


def _repeat(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.depth_to_space(tf.tile(x, [1, 1, 1, 4]), 2)


def _blur(x: tf.Tensor, stride: int) -> tf.Tensor:
    """Convolve each channel with `BINOMIAL`, after a padding of 1 pixel by reflection."""
    padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
    kernel = tf.constant(np.tile(BINOMIAL[:, :, None, None], (1, 1, x.shape[-1], 1)), x.dtype)
    convolve = functools.partial(tf.nn.depthwise_conv2d, strides=[1, stride, stride, 1], padding="VALID")
    return _convolve_in_native_precision(convolve, padded, kernel)


_active = threading.local()  # each replica is traced in a thread of its own


@contextlib.contextmanager
def random_stream(seed: tf.Tensor, global_batch_size: int, start: tf.Tensor | int, count: int) -> Iterator[None]:
    """Make `Dropout` layers use this random stream while this context is active in this thread.

    The random numbers of a sample are a function of the seed, the position of the sample in the global batch, and the
    number of earlier calls of dropout layers in this context. So they differ between layers and between calls of a
    network, and are the same on any number of replicas and in a resumed run.

    Args:
        seed: int32 or int64 tensor [2], different in each step.
        global_batch_size: Samples in the global batch.
        start: Position of the first sample of this replica in the global batch.
        count: Samples on this replica. A batch has this number, or a multiple if it joins several inputs.
    """
    calls = itertools.count()

    def uniform(shape: tf.TensorShape) -> tf.Tensor:
        """Return float32 numbers in [0, 1): the share of this replica in numbers for the global batch."""
        inputs, rest = shape[0] // count, shape[1:]
        # int64, because TensorFlow computes int32 on the host, and the device would wait for the host.
        folded = tf.random.fold_in(seed, tf.constant(next(calls), tf.int64), alg="philox")
        rows = tf.random.stateless_uniform([inputs, global_batch_size, *rest], folded, alg="philox")
        own = tf.slice(rows, [0, start, *(0 for _ in rest)], [inputs, count, *rest])
        return tf.reshape(own, shape)

    before = getattr(_active, "uniform", None)
    _active.uniform = uniform
    try:
        yield
    finally:
        _active.uniform = before


class Dropout(tf.keras.layers.Layer):
    """Set each value to 0 with probability `rate` and divide the others by 1 - rate (Srivastava et al. 2014).

    Training needs an active `random_stream` and inputs of known shape; without `training` the layer is the identity.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Drop values of a tensor [N, ...] in training."""
        if not training:
            return x
        uniform = getattr(_active, "uniform", None)
        if uniform is None:
            raise RuntimeError("Dropout with training=True outside of random_stream; call it inside of this context")
        return tf.where(uniform(x.shape) >= self.rate, x / tf.cast(1.0 - self.rate, x.dtype), tf.zeros_like(x))


class Convolution(tf.keras.layers.Conv2D):
    """Compute what Keras's `Conv2D` does, faster on the CPU; the results are equal except for rounding.

    With few output channels and stride 1, the layer uses `convolve_to_few_channels`. In a precision that the CPU has no
    instructions for, it computes in float32 and rounds the result. The bias is always added in float32. Without
    `trains_bias`, training leaves it out, because an instance normalization that follows would cancel it. With padding
    "valid", `margin` zeros are added at each side of the input; on a GPU by the operation itself, without a copy.
    """

    def __init__(self, *args: Any, trains_bias: bool = True, margin: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trains_bias, self.margin = trains_bias, margin
        self._margins = [[0, 0], [margin, margin], [margin, margin], [0, 0]]

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Convolve features [N, H, W, C]."""
        if training and not self.trains_bias:
            return self.convolution_op(inputs, self.kernel)
        if not self.use_bias or self.compute_dtype == "float32":
            return super().call(inputs)
        return _add_bias(self.convolution_op(inputs, self.kernel), self.bias)

    def convolution_op(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Convolve features [N, H, W, C] without the bias; Keras calls this."""
        convolve, on_cpu = super().convolution_op, not hardware.has_accelerator()
        if self.filters <= FEW_CHANNELS and self.strides == (1, 1) and on_cpu:
            convolve = self._convolve_to_few
        elif self.margin and on_cpu:  # oneDNN has no gradients of convolutions that pad by themselves
            inputs = tf.pad(inputs, self._margins)
        elif self.margin:
            convolve = functools.partial(tf.nn.conv2d, strides=self.strides, padding=self._margins)
        return _convolve_in_native_precision(convolve, inputs, kernel)

    def _convolve_to_few(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if self.padding == "same":
            before_after = [[(size - 1) // 2, size // 2] for size in self.kernel_size]
            inputs = tf.pad(inputs, [[0, 0], *before_after, [0, 0]])
        elif self.margin:
            inputs = tf.pad(inputs, self._margins)
        return convolve_to_few_channels(inputs, kernel)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """Return the shape of the output, with None for an unknown size."""
        batch, *size, channels = input_shape
        return super().compute_output_shape((batch, *(n and n + 2 * self.margin for n in size), channels))


class TransposedConvolution(tf.keras.layers.Conv2DTranspose):
    """Enlarge features by the stride, in a precision that the device has: [N, H, W, C] -> [N, 2 H, 2 W, filters].

    With padding "same", it is Keras's `Conv2DTranspose`. With padding "valid" and a kernel wider than the stride by 1,
    it is PyTorch's layer with padding 1 and output padding 1. It computes y[2 i + k - 1] += x[i] kernel[k], and
    with "same" y[2 i + k]. `trains_bias` is the same as in `Convolution`.
    """

    def __init__(self, *args: Any, trains_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.trains_bias = trains_bias

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Enlarge features [N, H, W, C]."""
        # Symmetric, because cuDNN pads by itself then; the shape of the output implies PyTorch's output padding.
        padding = [[0, 0], [1, 1], [1, 1], [0, 0]] if self.padding == "valid" else "SAME"
        if crops := self.padding == "valid" and not hardware.has_accelerator():
            padding = "VALID"  # oneDNN has only "VALID" and "SAME" here

        def convolve(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
            batch, height, width = (known or n for known, n in zip(x.shape[:3], tf.unstack(tf.shape(x)[:3])))
            shape = [batch, height * self.strides[0] + crops, width * self.strides[1] + crops, self.filters]
            y = tf.nn.conv2d_transpose(x, kernel, shape, self.strides, padding)
            return y[:, 1:, 1:] if crops else y

        y = _convolve_in_native_precision(convolve, inputs, self.kernel)
        return _add_bias(y, self.bias) if self.use_bias and (self.trains_bias or not training) else y

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """Return the shape of the output, with None for an unknown size."""
        height, width = (n and n * stride for n, stride in zip(input_shape[1:3], self.strides))
        return (input_shape[0], height, width, self.filters)


def _convolve_in_native_precision(
    convolve: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], x: tf.Tensor, kernel: tf.Tensor
) -> tf.Tensor:
    """Return `convolve(x, kernel)` in the type of `x`, computed in float32 if the device has only that."""
    kernel = tf.convert_to_tensor(kernel)
    if hardware.has_instructions_for(tf.as_dtype(x.dtype).name):
        return convolve(x, kernel)
    return tf.cast(convolve(tf.cast(x, tf.float32), tf.cast(kernel, tf.float32)), x.dtype)


def _add_bias(y: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Return the sum of `y` [N, H, W, C] and `bias` [C], computed in float32, in the type of `y`.

    The gradient of a bias is a sum over all pixels. In bfloat16 on the CPU, TensorFlow's sum of 65,536 equal numbers is
    only 256 times the number.
    """
    return tf.cast(tf.cast(y, tf.float32) + tf.cast(bias, tf.float32), y.dtype)


@tf.custom_gradient
def convolve_to_few_channels(
    x: tf.Tensor, kernel: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """Convolve without padding: [N, H, W, C] by [K, L, C, D] -> [N, H - K + 1, W - L + 1, D]; for a CPU and a small D.

    The forward pass works on blocks of 2 x 2 pixels with four times as many channels. In the backward pass, both
    gradients are convolutions of the output gradient, which has few channels.
    """
    height, width = kernel.shape[:2]

    def gradients(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        dy = tf.pad(dy, [[0, 0], [height - 1] * 2, [width - 1] * 2, [0, 0]])
        swapped = tf.transpose(kernel[::-1, ::-1], [0, 1, 3, 2])  # [K, L, D, C], turned by 180 degrees
        dkernel = tf.raw_ops.Conv2DBackpropFilter(
            input=dy, filter_sizes=tf.shape(swapped), out_backprop=x, strides=[1, 1, 1, 1], padding="VALID"
        )
        return tf.nn.conv2d(dy, swapped, 1, "VALID"), tf.transpose(dkernel, [0, 1, 3, 2])[::-1, ::-1]

    rows, columns = (None if n is None else n - size + 1 for n, size in zip(x.shape[1:3], (height, width)))
    if rows is None or columns is None or height % 2 == 0 or width % 2 == 0 or rows % 2 or columns % 2:
        return tf.nn.conv2d(x, kernel, 1, "VALID"), gradients
    y = tf.nn.conv2d(tf.nn.space_to_depth(x, 2), _block_kernel(kernel), 1, "VALID")
    return tf.nn.depth_to_space(y, 2), gradients


def _block_kernel(kernel: tf.Tensor) -> tf.Tensor:
    """Return the equivalent kernel for blocks of 2 x 2 pixels, channels in the order of `tf.nn.space_to_depth`.

    [K, L, C, D] with odd K and L -> [(K + 1) / 2, (L + 1) / 2, 4 C, 4 D].
    """
    height, width, channels, filters = kernel.shape
    shifted = [tf.pad(kernel, [[i, 1 - i], [j, 1 - j], [0, 0], [0, 0]]) for i in (0, 1) for j in (0, 1)]
    rows, columns = (height + 1) // 2, (width + 1) // 2
    split = tf.reshape(tf.stack(shifted, axis=3), [rows, 2, columns, 2, channels, 4 * filters])
    return tf.reshape(tf.transpose(split, [0, 2, 1, 3, 4, 5]), [rows, columns, 4 * channels, 4 * filters])
