"""A convolution that is fast on the CPU if it has few output channels, as the last one of a generator."""

from __future__ import annotations

from typing import Callable

import tensorflow as tf


@tf.custom_gradient
def convolve_to_few_channels(
    x: tf.Tensor, kernel: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """Convolve without padding: [N, H, W, C] by [K, L, C, D] -> [N, H - K + 1, W - L + 1, D], fast for a small D.

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
    """Return the kernel for blocks of 2 x 2 pixels that is equivalent to `kernel` for pixels.

    [K, L, C, D] with odd K and L -> [(K + 1) / 2, (L + 1) / 2, 4 C, 4 D], channels in the order of
    `tf.nn.space_to_depth`.
    """
    height, width, channels, filters = kernel.shape
    shifted = [tf.pad(kernel, [[i, 1 - i], [j, 1 - j], [0, 0], [0, 0]]) for i in (0, 1) for j in (0, 1)]
    rows, columns = (height + 1) // 2, (width + 1) // 2
    split = tf.reshape(tf.stack(shifted, axis=3), [rows, 2, columns, 2, channels, 4 * filters])
    return tf.reshape(tf.transpose(split, [0, 2, 1, 3, 4, 5]), [rows, columns, 4 * channels, 4 * filters])
