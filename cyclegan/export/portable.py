"""A generator made again of layers that Keras itself has, so that it can be loaded and converted without this package."""

import numpy as np
import tensorflow as tf

from cyclegan.networks import compat

keras, ops = tf.keras.layers, compat.ops


def network(generator, uint8=False, size=None):
    """What a generator does without training, with the same weights, in Keras's own layers.

    Args:
        generator: of `models.generator`, computing in float32.
        uint8: pictures are uint8 in [0, 255], as in files, on both sides; else float32 in [-1, 1].
        size: (height, width) in pixels: one picture of this size at a time; by default any number of any size.

    Returns:
        A Keras model, [N, H, W, inputs] -> [N, H, W, outputs], H and W as the generator wants them.
    """
    shape = (*(size or (None, None)), generator.input_shape[-1])
    picture = tf.keras.Input(shape, 1 if size else None, dtype="uint8" if uint8 else "float32", name="picture")
    made = {id(generator.input): keras.Rescaling(1 / 127.5, -1.0)(picture) if uint8 else picture}
    for layer in generator.layers[1:]:  # in the order they are computed in
        made[id(layer.output)] = _same(layer, tf.nest.map_structure(lambda tensor: made[id(tensor)], layer.input))
    translated = made[id(generator.output)]
    if uint8:  # nothing to clip: tanh ends at -1 and 1
        translated = ops.cast(ops.round(keras.Rescaling(127.5, 127.5)(translated)), "uint8")
    return tf.keras.Model(picture, translated)


def _same(layer, x):
    if isinstance(layer, (keras.ReLU, keras.Add, keras.Concatenate, keras.ZeroPadding2D, keras.Activation)):
        return type(layer).from_config(layer.get_config())(x)
    return _IN_KERAS[type(layer).__name__](layer, x)  # by name, because there are two kinds of instance normalization


def _convolution(layer, x):
    made = keras.Conv2D(layer.filters, layer.kernel_size, layer.strides, layer.padding, use_bias=layer.use_bias)
    return _with(made, x, layer.get_weights())


def _upsampling_convolution(layer, x):
    made = keras.Conv2DTranspose(
        layer.filters, layer.kernel_size, layer.strides, layer.padding, use_bias=layer.use_bias
    )
    y = _with(made, x, layer.get_weights())
    return keras.Cropping2D(((1, 0), (1, 0)))(y) if layer.padding == "valid" else y


def _instance_normalization(layer, x):
    # Not GroupNormalization, whose shapes TensorFlow Lite can't follow.
    y = keras.LayerNormalization(axis=[1, 2], epsilon=layer.epsilon, center=False, scale=False)(x)
    return y if layer.gamma is None else _scaled(y, *layer.get_weights())


def _batch_normalization(layer, x):
    gamma, beta, mean, variance = (weights.astype(np.float64) for weights in layer.get_weights())
    scale = gamma / np.sqrt(variance + layer.epsilon)
    return _scaled(x, scale, beta - mean * scale)


def _scaled(x, scale, offset):
    """x * scale + offset, both per channel. [N, H, W, C] by [C] and [C]."""
    # With statistics that do nothing, and epsilon where Keras 2 leaves it as it is (it raises what is below 1.001e-5); not
    # trainable, so that they stay.
    made = keras.BatchNormalization(trainable=False)
    return _with(made, x, [scale, offset, np.zeros_like(scale), np.full_like(scale, 1.0 - made.epsilon)])


def _with(layer, x, weights):
    y = layer(x)
    layer.set_weights(weights)
    return y


def _doubled(layer, x):
    # By 1 and 0 per channel: from Keras 3's UpSampling2D alone TensorFlow Lite does not see how many channels there are.
    return _scaled(keras.UpSampling2D(2)(x), np.ones(x.shape[-1]), np.zeros(x.shape[-1]))


def _mirrored(layer, x):
    sides = [layer.padding] * 2
    return ops.pad(x, [[0, 0], sides, sides, [0, 0]], mode="reflect")


_IN_KERAS = {
    "Convolution": _convolution,
    "TransposedConvolution": _upsampling_convolution,
    "InstanceNormalization": _instance_normalization,
    "BatchNormalization": _batch_normalization,
    "ReflectionPadding2D": _mirrored,
    "NearestUpsampling2D": _doubled,
    "LeakyReLU": lambda layer, x: keras.LeakyReLU(0.2)(x),
    "Dropout": lambda layer, x: x,
}
