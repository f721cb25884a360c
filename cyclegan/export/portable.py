"""Copies of generators that consist of Keras's own layers, so that other programs can load and convert them."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from cyclegan.networks import compat, layers, normalization

INPUT, OUTPUT = "picture", "translated"  # names of the input and the output in exported files

keras, ops = tf.keras.layers, compat.ops


@compat.precision_policy("float32")
def make_portable(
    generator: tf.keras.Model, uint8: bool = False, size: tuple[int, int] | None = None
) -> tf.keras.Model:
    """Return a copy of a generator for use without training: [N, H, W, inputs] -> [N, H, W, outputs].

    The generator computes in float32. For `uint8` and `size`, see `ExportOptions`.
    """
    shape = (*(size or (None, None)), generator.input_shape[-1])
    image = tf.keras.Input(shape, 1 if size else None, dtype="uint8" if uint8 else "float32", name=INPUT)
    copies = {id(generator.input): keras.Rescaling(1 / 127.5, -1.0)(image) if uint8 else image}
    for layer in generator.layers[1:]:  # in the order of computation
        inputs = tf.nest.map_structure(lambda tensor: copies[id(tensor)], layer.input)
        copies[id(layer.output)] = _copy(layer, inputs)
    translated = copies[id(generator.output)]
    if uint8:  # no clipping: tanh ends at -1 and 1
        translated = ops.cast(ops.round(keras.Rescaling(127.5, 127.5)(translated)), "uint8")
    return tf.keras.Model(image, translated)


@functools.singledispatch
def _copy(layer: tf.keras.layers.Layer, x: tf.Tensor) -> tf.Tensor:
    """Return the output of a copy of a layer for the input `x`; this is the copy of one of Keras's own layers."""
    return type(layer).from_config(layer.get_config())(x)


@_copy.register(layers.Convolution)
def _(layer: layers.Convolution, x: tf.Tensor) -> tf.Tensor:
    if layer.margin:
        x = keras.ZeroPadding2D(layer.margin)(x)
    copy = keras.Conv2D(layer.filters, layer.kernel_size, layer.strides, layer.padding, use_bias=layer.use_bias)
    return _apply(copy, x, layer.get_weights())


@_copy.register(layers.TransposedConvolution)
def _(layer: layers.TransposedConvolution, x: tf.Tensor) -> tf.Tensor:
    shape = (layer.filters, layer.kernel_size, layer.strides, layer.padding)
    y = _apply(keras.Conv2DTranspose(*shape, use_bias=layer.use_bias), x, layer.get_weights())
    return keras.Cropping2D(((1, 0), (1, 0)))(y) if layer.padding == "valid" else y


@_copy.register(normalization.InstanceNormalization)
def _(layer: normalization.InstanceNormalization, x: tf.Tensor) -> tf.Tensor:
    # Not GroupNormalization: TensorFlow Lite can't infer its shapes.
    y = keras.LayerNormalization(axis=[1, 2], epsilon=layer.epsilon, center=False, scale=False)(x)
    return y if layer.gamma is None else _scale(y, *layer.get_weights())


@_copy.register(normalization.BatchNormalization)
def _(layer: normalization.BatchNormalization, x: tf.Tensor) -> tf.Tensor:
    gamma, beta, mean, variance = (weights.astype(np.float64) for weights in layer.get_weights())
    scale = gamma / np.sqrt(variance + layer.epsilon)
    return _scale(x, scale, beta - mean * scale)


@_copy.register(layers.NearestUpsampling2D)
def _(layer: layers.NearestUpsampling2D, x: tf.Tensor) -> tf.Tensor:
    return _repeat(x)


@_copy.register(layers.BlurDownsampling2D)
def _(layer: layers.BlurDownsampling2D, x: tf.Tensor) -> tf.Tensor:
    return _blur(x, 2)


@_copy.register(layers.BlurUpsampling2D)
def _(layer: layers.BlurUpsampling2D, x: tf.Tensor) -> tf.Tensor:
    return _blur(_repeat(x), 1)


@_copy.register(layers.ReflectionPadding2D)
def _(layer: layers.ReflectionPadding2D, x: tf.Tensor) -> tf.Tensor:
    return _reflect(x, layer.padding)


def _blur(x: tf.Tensor, stride: int) -> tf.Tensor:
    kernel = np.tile(layers.BINOMIAL[:, :, None, None], (1, 1, x.shape[-1], 1))
    return _apply(keras.DepthwiseConv2D(3, stride, use_bias=False), _reflect(x, 1), [kernel])


def _repeat(x: tf.Tensor) -> tf.Tensor:
    # Scaled by 1, because TensorFlow Lite can't infer the number of channels from Keras 3's UpSampling2D alone.
    return _scale(keras.UpSampling2D(2)(x), np.ones(x.shape[-1]), np.zeros(x.shape[-1]))


def _reflect(x: tf.Tensor, padding: int) -> tf.Tensor:
    sides = [padding] * 2
    return ops.pad(x, [[0, 0], sides, sides, [0, 0]], mode="reflect")


@_copy.register(layers.Dropout)
def _(layer: layers.Dropout, x: tf.Tensor) -> tf.Tensor:
    return x


def _scale(x: tf.Tensor, scale: np.ndarray, offset: np.ndarray) -> tf.Tensor:
    """Return x * scale + offset, both per channel: [N, H, W, C] by [C] and [C]."""
    # A batch normalization whose constant statistics have no effect: mean 0, variance 1 - epsilon. Keras 2 would raise
    # an epsilon below 1.001e-5.
    copy = keras.BatchNormalization(trainable=False)
    return _apply(copy, x, [scale, offset, np.zeros_like(scale), np.full_like(scale, 1.0 - copy.epsilon)])


def _apply(layer: tf.keras.layers.Layer, x: tf.Tensor, weights: list[np.ndarray]) -> tf.Tensor:
    y = layer(x)
    layer.set_weights(weights)
    return y
