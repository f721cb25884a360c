"""Instance normalization, reflection padding, the residual block; and the one place that knows which stack this is.

TensorFlow 2.15 has Keras 2 and TensorFlow Addons; later ones have Keras 3 and no Addons. See `instance_normalization`.
"""

import contextlib
import warnings

import tensorflow as tf

from cyclegan import devices

KERAS = int(getattr(tf.keras, "__version__", "2").split(".")[0])  # TensorFlow 2.15 does not say
EPSILON = 1e-3  # added to the variance, as in TensorFlow Addons


def stack():
    """The versions that a checkpoint depends on. Checkpoints fit where `keras`, the major version, is the same."""
    return {"keras": KERAS, "tensorflow": tf.__version__}


@contextlib.contextmanager
def computing_in(precision):
    """While it is entered, layers are made that compute in "float32", "bfloat16" or "float16", with float32 variables."""
    before = tf.keras.mixed_precision.global_policy()
    level = tf.get_logger().level
    tf.get_logger().setLevel("ERROR")  # Keras 2 warns that float16 is slow on a CPU, in terms of its own
    tf.keras.mixed_precision.set_global_policy(precision if precision == "float32" else f"mixed_{precision}")
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)
        tf.get_logger().setLevel(level)


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
    kernels = {"use_bias": use_bias, "kernel_initializer": normal()}
    return Convolution(filters, size, stride, padding, **kernels)


def upsampling_convolution(filters, size):
    """A transposed convolution layer with stride 2 and N(0, 0.02) kernels: [N, H, W, C] -> [N, 2 H, 2 W, filters]."""
    return UpsamplingConvolution(filters, size, 2, "same", use_bias=False, kernel_initializer=normal())


FEW = 8  # output channels up to which a convolution on the CPU is one to few channels, see `convolve_to_few`


@tf.keras.utils.register_keras_serializable("cyclegan")
class Convolution(tf.keras.layers.Conv2D):
    """Keras's layer, the same but for rounding, with faster ways on the CPU.

    To few channels, as a picture's, with stride 1: `convolve_to_few`. In a precision that the CPU has no instructions for, where
    TensorFlow takes fifteen times as long: float32 in between, inputs and outputs rounded as asked. The bias is added in float32
    always, because its gradient is a sum over all pixels: TensorFlow adds bfloat16 on the CPU so that of 65,536 equal numbers 256
    are left.
    """

    def call(self, inputs):
        if not self.use_bias or self.compute_dtype == "float32":
            return super().call(inputs)
        y = self.convolution_op(inputs, self.kernel)
        y = tf.cast(tf.cast(y, tf.float32) + tf.cast(self.bias, tf.float32), y.dtype)
        return y if self.activation is None else self.activation(y)

    def convolution_op(self, inputs, kernel):
        plain = self.strides == self.dilation_rate == (1, 1)
        few = self.filters <= FEW and plain and not devices.on_gpu()
        return _in_native(self._to_few if few else super().convolution_op, inputs, kernel)

    def _to_few(self, inputs, kernel):
        if self.padding == "same":
            before_after = [[(size - 1) // 2, size // 2] for size in self.kernel_size]
            inputs = tf.pad(inputs, [[0, 0], *before_after, [0, 0]])
        return convolve_to_few(inputs, kernel)


@tf.keras.utils.register_keras_serializable("cyclegan")
class UpsamplingConvolution(tf.keras.layers.Conv2DTranspose):
    """Keras's layer without a bias and with padding "same", in a native precision, see `Convolution`."""

    def call(self, inputs):
        def convolve(x, kernel):
            batch, height, width = (given or n for given, n in zip(x.shape[:3], tf.unstack(tf.shape(x)[:3])))
            shape = [batch, height * self.strides[0], width * self.strides[1], self.filters]
            return tf.nn.conv2d_transpose(x, kernel, shape, self.strides, "SAME")

        return _in_native(convolve, inputs, self.kernel)


def _in_native(convolve, x, kernel):
    kernel = tf.convert_to_tensor(kernel)
    if devices.is_native(x.dtype.name if hasattr(x.dtype, "name") else x.dtype):
        return convolve(x, kernel)
    return tf.cast(convolve(tf.cast(x, tf.float32), tf.cast(kernel, tf.float32)), x.dtype)


@tf.custom_gradient
def convolve_to_few(x, kernel):
    """A convolution without padding, [N, H, W, C] by [K, L, C, D] -> [N, H - K + 1, W - L + 1, D], fast for a small D.

    Forward, pixels are taken two by two: an output block is a convolution of blocks with four times as many channels.
    Backward, what comes back, which has few channels, takes the part of the input: both gradients are convolutions of it.
    """
    height, width = kernel.shape[:2]

    def gradients(dy):
        dy = tf.pad(dy, [[0, 0], [height - 1] * 2, [width - 1] * 2, [0, 0]])
        swapped = tf.transpose(kernel[::-1, ::-1], [0, 1, 3, 2])  # [K, L, D, C], turned by 180 degrees
        dkernel = tf.raw_ops.Conv2DBackpropFilter(
            input=dy, filter_sizes=tf.shape(swapped), out_backprop=x, strides=[1, 1, 1, 1], padding="VALID"
        )
        return tf.nn.conv2d(dy, swapped, 1, "VALID"), tf.transpose(dkernel, [0, 1, 3, 2])[::-1, ::-1]

    rows, columns = (None if n is None else n - size + 1 for n, size in zip(x.shape[1:3], (height, width)))
    if rows is None or columns is None or height % 2 == 0 or width % 2 == 0 or rows % 2 or columns % 2:
        return tf.nn.conv2d(x, kernel, 1, "VALID"), gradients
    y = tf.nn.conv2d(tf.nn.space_to_depth(x, 2), _kernel_of_blocks(kernel), 1, "VALID")
    return tf.nn.depth_to_space(y, 2), gradients


def _kernel_of_blocks(kernel):
    """The kernel on blocks of 2 x 2 pixels that does what a kernel does on pixels.

    [K, L, C, D] with odd K and L -> [(K + 1) / 2, (L + 1) / 2, 4 C, 4 D], channels as `tf.nn.space_to_depth` has them.
    """
    height, width, channels, filters = kernel.shape
    moved = [
        tf.pad(kernel, [[i, 1 - i], [j, 1 - j], [0, 0], [0, 0]]) for i in (0, 1) for j in (0, 1)
    ]  # one per output pixel
    split = tf.reshape(tf.stack(moved, axis=3), [(height + 1) // 2, 2, (width + 1) // 2, 2, channels, 4 * filters])
    return tf.reshape(
        tf.transpose(split, [0, 2, 1, 3, 4, 5]), [(height + 1) // 2, (width + 1) // 2, 4 * channels, 4 * filters]
    )


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
