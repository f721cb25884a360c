"""Generators called layer by layer: for features on the way to the output, and to save memory in the backward pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from cyclegan.networks import compat
from cyclegan.networks.layers import Convolution, kernel_initializer

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
    for layer, output in _call_layers(network, images, training, recomputes):
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


def call_with_recomputation(network: tf.keras.Model, x: tf.Tensor) -> tf.Tensor:
    """Return network(x, training=True) with the same gradients, which keeps only the input of each residual block.

    The backward pass computes the blocks again (Chen et al. 2016). Their layers must be chains without random numbers and without
    changes of state.

    Args:
        network: A ResNet generator, or a network without sums, which is called as it is.
        x: Its input, [N, H, W, C].
    """
    if not any(isinstance(layer, tf.keras.layers.Add) for layer in network.layers):
        return network(x, training=True)
    for _, output in _call_layers(network, x, training=True, recomputes=True):
        x = output
    return x


def _call_layers(
    network: tf.keras.Model, x: tf.Tensor, training: bool, recomputes: bool
) -> Iterator[tuple[tf.keras.layers.Layer, tf.Tensor]]:
    """Call a ResNet generator layer by layer, and yield each layer with its output; of a residual block, only the sum."""
    layers = network.layers
    outputs = {id(layer.output): number for number, layer in enumerate(layers)}
    sums = [number for number, layer in enumerate(layers) if isinstance(layer, tf.keras.layers.Add)]
    ends = {outputs[id(layers[end].input[0])] + 1: end for end in sums}  # of each block, by its first layer
    number = 1  # without the input layer
    while number < len(layers):
        end = ends.get(number, number)
        if end > number:
            block = _residual_block(layers[number:end], layers[end], training)
            x = tf.recompute_grad(block)(x) if recomputes else block(x)
        else:
            x = _call(layers[number], x, training)
        yield layers[end], x
        number = end + 1


def _residual_block(
    layers: Sequence[tf.keras.layers.Layer], add: tf.keras.layers.Layer, training: bool
) -> Callable[[tf.Tensor], tf.Tensor]:
    def block(x: tf.Tensor) -> tf.Tensor:
        y = x
        for layer in layers:
            y = _call(layer, y, training)
        return add([x, y])

    return block


def _call(layer: tf.keras.layers.Layer, x: tf.Tensor, training: bool) -> tf.Tensor:
    takes_training = "training" in inspect.signature(layer.call).parameters
    return layer(x, training=training) if takes_training else layer(x)
