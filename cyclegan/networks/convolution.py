"""The layers that networks are made of; and the one place that knows which stack this is."""

import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks.initializers import kernels


@tf.keras.utils.register_keras_serializable("cyclegan")
class Doubling(tf.keras.layers.Layer):
    """Every pixel becomes 2 x 2 of them, as the nearest neighbour says. [N, H, W, C] -> [N, 2 H, 2 W, C]."""

    def call(self, x):
        return tf.nn.depth_to_space(tf.tile(x, [1, 1, 1, 4]), 2)


def convolution(filters, size, stride=1, padding="same", use_bias=False, init="normal"):
    """A convolution layer; see `kernels` for `init`."""
    return Convolution(filters, size, stride, padding, use_bias=use_bias, kernel_initializer=kernels(init))


def upsampling_convolution(filters, size, padding="same", use_bias=False, init="normal"):
    """A transposed convolution layer with stride 2: [N, H, W, C] -> [N, 2 H, 2 W, filters]; see `UpsamplingConvolution`."""
    return UpsamplingConvolution(filters, size, 2, padding, use_bias=use_bias, kernel_initializer=kernels(init))


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
        y = _with_bias(self.convolution_op(inputs, self.kernel), self.bias)
        return y if self.activation is None else self.activation(y)

    def convolution_op(self, inputs, kernel):
        plain = self.strides == self.dilation_rate == (1, 1)
        few = self.filters <= FEW and plain and not hardware.accelerated()
        return _in_native(self._to_few if few else super().convolution_op, inputs, kernel)

    def _to_few(self, inputs, kernel):
        if self.padding == "same":
            before_after = [[(size - 1) // 2, size // 2] for size in self.kernel_size]
            inputs = tf.pad(inputs, [[0, 0], *before_after, [0, 0]])
        return convolve_to_few(inputs, kernel)


@tf.keras.utils.register_keras_serializable("cyclegan")
class UpsamplingConvolution(tf.keras.layers.Conv2DTranspose):
    """A transposed convolution in a native precision, see `Convolution`. [N, H, W, C] -> [N, 2 H, 2 W, filters] with stride 2.

    With padding "same" it is Keras's layer. With "valid", and a kernel that is wider than the stride by 1, it is PyTorch's with
    padding 1 and output padding 1: y[2 i + k - 1] += x[i] kernel[k], where "same" has y[2 i + k].
    """

    def call(self, inputs):
        cut = int(self.padding == "valid")

        def convolve(x, kernel):
            batch, height, width = (given or n for given, n in zip(x.shape[:3], tf.unstack(tf.shape(x)[:3])))
            shape = [batch, height * self.strides[0] + cut, width * self.strides[1] + cut, self.filters]
            y = tf.nn.conv2d_transpose(x, kernel, shape, self.strides, self.padding.upper())
            return y[:, 1:, 1:] if cut else y

        y = _in_native(convolve, inputs, self.kernel)
        return _with_bias(y, self.bias) if self.use_bias else y

    def compute_output_shape(self, input_shape):
        height, width = (n and n * stride for n, stride in zip(input_shape[1:3], self.strides))
        return (input_shape[0], height, width, self.filters)


def _with_bias(y, bias):
    """The sum in float32, in the type of y."""
    return tf.cast(tf.cast(y, tf.float32) + tf.cast(bias, tf.float32), y.dtype)


def _in_native(convolve, x, kernel):
    kernel = tf.convert_to_tensor(kernel)
    if hardware.is_native(x.dtype.name if hasattr(x.dtype, "name") else x.dtype):
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
