"""Forward passes that keep less memory for the backward pass (Chen et al. 2016)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import tensorflow as tf

Layers = Sequence[tf.keras.layers.Layer]


def call_with_recomputation(network: tf.keras.Model, x: tf.Tensor) -> tf.Tensor:
    """Return network(x, training=True) with the same gradients, which keeps only the input of each residual block.

    The backward pass computes the blocks again. Their layers must be chains without random numbers and without changes of state.

    Args:
        network: A ResNet generator, or a network without sums, which is called as it is.
        x: Its input, [N, H, W, C].
    """
    layers, done = network.layers, 1  # without the input layer
    sums = [number for number, layer in enumerate(layers) if isinstance(layer, tf.keras.layers.Add)]
    if not sums:
        return network(x, training=True)
    outputs = {id(layer.output): number for number, layer in enumerate(layers)}
    for end in sums:
        start = outputs[id(layers[end].input[0])] + 1
        x = tf.recompute_grad(_residual_block(layers[start:end], layers[end]))(_call_in_turn(layers[done:start], x))
        done = end + 1
    return _call_in_turn(layers[done:], x)


def _residual_block(layers: Layers, add: tf.keras.layers.Layer) -> Callable[[tf.Tensor], tf.Tensor]:
    def block(x: tf.Tensor) -> tf.Tensor:
        return add([x, _call_in_turn(layers, x)])

    return block


def _call_in_turn(layers: Layers, x: tf.Tensor) -> tf.Tensor:
    for layer in layers:
        takes_training = "training" in inspect.signature(layer.call).parameters
        x = layer(x, training=True) if takes_training else layer(x)
    return x
