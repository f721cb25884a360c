"""A network with fixed random weights, whose features rank the translations of one run."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

WIDTHS = (48, 64, 96, 128)  # channels of the convolutions
SEED = 20161  # other weights would be another network, whose scores are not comparable
PROTOCOL = (
    f"random: {2 * sum(WIDTHS)} features, means and standard deviations over the image of {len(WIDTHS)} convolutions with"
    f" fixed random weights (seed {SEED}), each halving the image; ranks translations of one dataset and size, and is not"
    " comparable with published FIDs"
)


def random_features(images: tf.Tensor) -> tf.Tensor:
    """Return the 672 features of each image: means and standard deviations of four convolutions with random weights.

    Nothing is learned or normalized. Random convolutions distinguish textures and colors (Jarrett et al. 2009), which is just
    enough to rank the translations of one run.

    Args:
        images: float32 [N, H, W, C], of any size and number of channels.

    Returns:
        float32 [N, 672].
    """
    features, x = [], images
    for kernel, bias in random_kernels(images.shape[-1]):
        x = tf.nn.relu(tf.nn.conv2d(x, kernel, 2, "SAME") + bias)
        mean, variance = tf.nn.moments(x, axes=[1, 2])
        features += [mean, tf.sqrt(variance + 1e-6)]
    return tf.concat(features, axis=-1)


def random_kernels(channels: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (kernel [4, 4, inputs, outputs], bias [outputs]) of each convolution, with the variance of He et al. (2015)."""
    rng = np.random.RandomState(SEED)  # not default_rng: NumPy promises that this one never changes
    layers = []
    for inputs, outputs in zip((channels, *WIDTHS), WIDTHS):
        kernel = rng.standard_normal((4, 4, inputs, outputs)) * np.sqrt(2 / (16 * inputs))
        layers.append((kernel.astype(np.float32), rng.uniform(-0.5, 0.5, outputs).astype(np.float32)))
    return layers
