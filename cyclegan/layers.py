"""Instance normalization, reflection padding, the residual block; and the one place that knows which stack this is.

TensorFlow 2.15 has Keras 2 and TensorFlow Addons; later ones have Keras 3 and no Addons. See `instance_normalization`.
"""

import warnings

import tensorflow as tf

KERAS = int(getattr(tf.keras, "__version__", "2").split(".")[0])  # TensorFlow 2.15 does not say
EPSILON = 1e-3  # added to the variance, as in TensorFlow Addons


def stack():
    """The versions that a checkpoint depends on. Checkpoints fit where `keras`, the major version, is the same."""
    return {"keras": KERAS, "tensorflow": tf.__version__}


def normal():
    """The initial values of all convolution kernels and normalization scales: N(0, 0.02) (Zhu et al. 2017, section 4)."""
    return tf.keras.initializers.RandomNormal(0.0, 0.02)


@tf.keras.utils.register_keras_serializable("cyclegan")
class InstanceNormalization(tf.keras.layers.Layer):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, mean and variance per sample and channel over H and W.

    Ulyanov et al. 2016. [N, H, W, C] -> [N, H, W, C]. Made by `instance_normalization`.
    """

    def __init__(self, epsilon=EPSILON, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        channels = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=channels, initializer=normal())
        self.beta = self.add_weight(name="beta", shape=channels, initializer="zeros")
        self.built = True

    def call(self, x):
        mean, variance = tf.nn.moments(x, axes=[1, 2], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, self.beta, self.gamma, self.epsilon)

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


def instance_normalization():
    """An instance normalization layer with gamma ~ N(0, 0.02) and beta 0, from TensorFlow Addons where that exists.

    Always float32, whatever the precision policy: statistics in bfloat16 are badly wrong for inputs with a large mean.
    """
    if KERAS > 2:
        return InstanceNormalization(dtype="float32")
    with warnings.catch_warnings():
        # Its only message is that Addons has ended, which is why the later stack does without it.
        warnings.filterwarnings("ignore", category=UserWarning, module="tensorflow_addons")
        import tensorflow_addons as tfa
    return tfa.layers.InstanceNormalization(epsilon=EPSILON, gamma_initializer=normal(), dtype="float32")


@tf.keras.utils.register_keras_serializable("cyclegan")
class ReflectionPadding2D(tf.keras.layers.Layer):
    """Mirrors `padding` pixels at each side, the edge itself not repeated. [N, H, W, C] -> [N, H + 2p, W + 2p, C].

    H and W must be greater than `padding`.
    """

    def __init__(self, padding, **kwargs):
        super().__init__(**kwargs)
        self.padding = padding

    def call(self, x):
        p = self.padding
        return tf.pad(x, [[0, 0], [p, p], [p, p], [0, 0]], mode="REFLECT")

    def get_config(self):
        return {**super().get_config(), "padding": self.padding}


@tf.keras.utils.register_keras_serializable("cyclegan")
class LeakyReLU(tf.keras.layers.Layer):
    """x where x > 0, 0.2 x elsewhere (Keras 2 and 3 name the slope of their own layer differently)."""

    def call(self, x):
        return tf.nn.leaky_relu(x, 0.2)


def convolution(filters, size, stride=1, padding="same", use_bias=False):
    """A convolution layer with N(0, 0.02) kernels."""
    return tf.keras.layers.Conv2D(filters, size, stride, padding, use_bias=use_bias, kernel_initializer=normal())


def residual_block(x):
    """x + norm(conv(pad(relu(norm(conv(pad(x))))))), no ReLU after the sum. [N, H, W, C] -> [N, H, W, C]."""
    channels = x.shape[-1]
    y = x
    for half in (1, 2):
        y = ReflectionPadding2D(1)(y)
        y = convolution(channels, 3, padding="valid")(y)
        y = instance_normalization()(y)
        if half == 1:
            y = tf.keras.layers.ReLU()(y)
    return tf.keras.layers.Add()([x, y])
