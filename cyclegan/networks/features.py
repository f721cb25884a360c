"""Networks layer by layer: features on the way to the output, recomputation in the backward pass, and operations."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterator, Sequence

import tensorflow as tf

from cyclegan.networks import compat
from cyclegan.networks.layers import (
    BlurDownsampling2D,
    BlurUpsampling2D,
    Convolution,
    NearestUpsampling2D,
    ReflectionPadding2D,
    kernel_initializer,
)

BLOCKS = (1, 5)  # numbers of the residual blocks whose outputs are features
WIDTH = 256  # of the embedding of a feature


def feature_layers(network: tf.keras.Model) -> list[tf.keras.layers.Layer]:
    """Return the layers of a ResNet generator whose outputs are features, in order.

    These are the padding of the image, the two convolutions that halve it, the first residual block, and the fifth one
    or, in a network of fewer blocks, the last one. With --antialias, these are the layers 0, 4, 8, 12 and 16 of CUT's
    reference.
    """
    convolutions = [layer for layer in network.layers if isinstance(layer, Convolution)]
    sums = [layer for layer in network.layers if isinstance(layer, tf.keras.layers.Add)]
    first, second = BLOCKS
    return [network.layers[1], *convolutions[1:3], *sums[:first], *sums[first:second][-1:]]


def compute_features(
    network: tf.keras.Model, images: tf.Tensor, training: bool, recomputes: bool = False, to_output: bool = False
) -> list[tf.Tensor]:
    """Return the features of images in a ResNet generator, [N, h, w, C] each; with `to_output`, also the output.

    The layers after the last feature run only for the output. With `recomputes`, the backward pass computes the
    residual blocks again.
    """
    wanted, found = feature_layers(network), []
    for layer, output in _call_layers(network, images, training, recomputes):
        if layer in wanted:
            found.append(output)
        if layer is wanted[-1] and not to_output:
            break
    return [*found, output] if to_output else found


def make_heads(network: tf.keras.Model, init: str, name: str, with_image: bool = True) -> tf.keras.Model:
    """Return the heads of the features of a generator, two layers each in float32: [N, P, C] -> [N, P, WIDTH]."""

    def dense(activation: str | None) -> tf.keras.layers.Layer:
        return tf.keras.layers.Dense(WIDTH, activation, kernel_initializer=kernel_initializer(init), dtype="float32")

    layers = feature_layers(network)[0 if with_image else 1 :]
    inputs = [tf.keras.Input((None, layer.output.shape[-1])) for layer in layers]
    return compat.make_model(inputs, [dense(None)(dense("relu")(each)) for each in inputs], name)


def call_with_recomputation(network: tf.keras.Model, x: tf.Tensor) -> tf.Tensor:
    """Return network(x, training=True) with the same gradients, which keeps only the input of each residual block.

    The backward pass computes the blocks again (Chen et al. 2016). Their layers must be chains without random numbers
    and without changes of state. A network without sums is called as it is.
    """
    if not any(isinstance(layer, tf.keras.layers.Add) for layer in network.layers):
        return network(x, training=True)
    for _, output in _call_layers(network, x, training=True, recomputes=True):
        x = output
    return x


def _call_layers(
    network: tf.keras.Model, x: tf.Tensor, training: bool, recomputes: bool
) -> Iterator[tuple[tf.keras.layers.Layer, tf.Tensor]]:
    """Call a ResNet generator, and yield each layer with its output; of a residual block, only the sum."""
    layers = network.layers
    outputs = {id(layer.output): number for number, layer in enumerate(layers)}
    sums = [number for number, layer in enumerate(layers) if isinstance(layer, tf.keras.layers.Add)]
    ends = {outputs[id(layers[end].input[0])] + 1: end for end in sums}  # of each block, by its first layer
    number = 1  # without the input layer
    while number < len(layers):
        part = layers[number : ends.get(number, number) + 1]
        call = functools.partial(_call_part, part, training)
        x = tf.recompute_grad(call)(x) if recomputes and len(part) > 1 else call(x)
        yield part[-1], x
        number += len(part)


def _call_part(layers: Sequence[tf.keras.layers.Layer], training: bool, x: tf.Tensor) -> tf.Tensor:
    """Return the output of one layer, or of a residual block, whose last layer adds the input."""
    y = x
    for layer in layers:
        if isinstance(layer, tf.keras.layers.Add):
            y = layer([x, y])
        else:
            takes_training = "training" in inspect.signature(layer.call).parameters
            y = layer(y, training=training) if takes_training else layer(y)
    return y


def feature_sizes(network: tf.keras.Model, height: int, width: int) -> list[tuple[int, int]]:
    """Return the (height, width) of each feature map of an image in a ResNet generator."""
    sizes = {layer: size for layer, size, _ in _trace(network, height, width)}
    return [sizes[layer] for layer in feature_layers(network)]


def count_macs(network: tf.keras.Model, height: int, width: int, last: tf.keras.layers.Layer | None = None) -> int:
    """Return the multiply-accumulate operations of all convolutions up to the layer `last`, for one image."""
    total = 0
    for layer, _, macs in _trace(network, height, width):
        total += macs
        if layer is last:
            break
    return total


def _trace(
    network: tf.keras.Model, height: int, width: int
) -> Iterator[tuple[tf.keras.layers.Layer, tuple[int, int], int]]:
    """Yield each layer with the (height, width) of its output and the operations of its convolution, for one image."""
    for layer in network.layers:  # in the order of computation; skip connections keep the size
        macs = 0
        if isinstance(layer, ReflectionPadding2D):
            height, width = height + 2 * layer.padding, width + 2 * layer.padding
        elif isinstance(layer, BlurDownsampling2D):
            height, width = math.ceil(height / 2), math.ceil(width / 2)
        elif isinstance(layer, (NearestUpsampling2D, BlurUpsampling2D)):
            height, width = 2 * height, 2 * width
        elif isinstance(layer, tf.keras.layers.Conv2DTranspose):
            macs = height * width * math.prod(layer.kernel.shape)
            height, width = height * layer.strides[0], width * layer.strides[1]
        elif isinstance(layer, tf.keras.layers.Conv2D):
            (kernel_height, kernel_width), (down, right) = layer.kernel_size, layer.strides
            if layer.padding == "valid":
                more = 2 * getattr(layer, "margin", 0) + 1
                height, width = height + more - kernel_height, width + more - kernel_width
            height, width = math.ceil(height / down), math.ceil(width / right)
            macs = height * width * math.prod(layer.kernel.shape)
        yield layer, (height, width), macs
