"""Features that a ResNet generator computes on the way to its output, and the heads that embed them."""

from __future__ import annotations

import tensorflow as tf

from cyclegan.networks import compat
from cyclegan.networks.convolution import Convolution
from cyclegan.networks.initializers import kernel_initializer
from cyclegan.networks.recomputation import call_layers

SHRINK = (1, 2, 4, 4, 4)  # side of the image / side of each feature map
BLOCKS = (1, 5)  # numbers of the residual blocks whose outputs are features
WIDTH = 256  # of the embedding of a feature


def feature_layers(network: tf.keras.Model) -> list[tf.keras.layers.Layer]:
    """Return the layers of a ResNet generator whose outputs are features, in order.

    These are the two convolutions that halve the image, the first residual block, and the fifth or, of fewer blocks, the last. With
    the image itself, they stand for the layers 0, 4, 8, 12 and 16 of the reference implementation of CUT.
    """
    halvings = [layer for layer in network.layers if isinstance(layer, Convolution) and layer.strides == (2, 2)]
    sums = [layer for layer in network.layers if isinstance(layer, tf.keras.layers.Add)]
    first, second = BLOCKS
    return [*halvings, *sums[:first], *sums[first:second][-1:]]


def compute_features(
    network: tf.keras.Model,
    images: tf.Tensor,
    training: bool,
    recomputes: bool = False,
    to_output: bool = False,
) -> list[tf.Tensor]:
    """Return the images and their features in a ResNet generator, [N, h, w, C] each.

    Args:
        network: The generator.
        images: float32 [N, H, W, C] in [-1, 1].
        training: Whether the layers run as in training.
        recomputes: Whether the backward pass computes the residual blocks again.
        to_output: Whether to run all layers and append the output; otherwise the layers after the last feature are skipped.
    """
    wanted, found = feature_layers(network), [images]
    for layer, output in call_layers(network, images, training, recomputes):
        if layer in wanted:
            found.append(output)
        if layer is wanted[-1] and not to_output:
            break
    return [*found, output] if to_output else found


def make_heads(network: tf.keras.Model, init: str, name: str) -> tf.keras.Model:
    """Return the heads of the features of a generator: float32 [N, P, C] of each feature map -> [N, P, WIDTH] each.

    Each head is a network of two layers, which computes in float32.

    Args:
        network: The generator.
        init: Initial values of the kernels; see `kernel_initializer`.
        name: Name of the Keras model.
    """

    def dense(activation: str | None) -> tf.keras.layers.Layer:
        return tf.keras.layers.Dense(WIDTH, activation, kernel_initializer=kernel_initializer(init), dtype="float32")

    widths = [network.input_shape[-1], *(layer.output.shape[-1] for layer in feature_layers(network))]
    inputs = [tf.keras.Input((None, width)) for width in widths]
    return compat.make_model(inputs, [dense(None)(dense("relu")(each)) for each in inputs], name)
