"""Forward passes layer by layer, which can keep less memory for the backward pass (Chen et al. 2016)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

Layers = Sequence[tf.keras.layers.Layer]


def call_with_recomputation(network: tf.keras.Model, x: tf.Tensor) -> tf.Tensor:
    """Return network(x, training=True) with the same gradients, which keeps only the input of each residual block.

    The backward pass computes the blocks again. Their layers must be chains without random numbers and without changes of state.

    Args:
        network: A ResNet generator, or a network without sums, which is called as it is.
        x: Its input, [N, H, W, C].
    """
    if not any(isinstance(layer, tf.keras.layers.Add) for layer in network.layers):
        return network(x, training=True)
    for _, output in call_layers(network, x, training=True, recomputes=True):
        x = output
    return x


def call_layers(
    network: tf.keras.Model, x: tf.Tensor, training: bool, recomputes: bool = False
) -> Iterator[tuple[tf.keras.layers.Layer, tf.Tensor]]:
    """Call a ResNet generator layer by layer, and yield each layer with its output; of a residual block, only the sum.

    Args:
        network: The generator.
        x: Its input, [N, H, W, C].
        training: Whether the layers run as in training.
        recomputes: Whether the backward pass computes the blocks again; see `call_with_recomputation`.
    """
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


def _residual_block(layers: Layers, add: tf.keras.layers.Layer, training: bool) -> Callable[[tf.Tensor], tf.Tensor]:
    def block(x: tf.Tensor) -> tf.Tensor:
        y = x
        for layer in layers:
            y = _call(layer, y, training)
        return add([x, y])

    return block


def _call(layer: tf.keras.layers.Layer, x: tf.Tensor, training: bool) -> tf.Tensor:
    takes_training = "training" in inspect.signature(layer.call).parameters
    return layer(x, training=training) if takes_training else layer(x)
