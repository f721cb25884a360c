"""Generators and discriminators, of residual blocks (Zhu et al. 2017, appendix) and as U-Nets (Isola et al. 2017, appendix).

In two variants. "keras" is what the Keras example has: no biases beside normalizations, TensorFlow's padding
"same", epsilon 1e-3. "paper" is pytorch-CycleGAN-and-pix2pix: biases before instance normalizations too (they change nothing),
a pixel of zeros on each side, epsilon 1e-5. Its weights can be used in ours.

Fully convolutional: built for any height and width. A ResNet gives back the size it got if that is a multiple of 4; a U-Net
takes multiples of 2 to the power of its halvings only.
"""

import math

import tensorflow as tf

from cyclegan import layers
from cyclegan.layers import Doubling, Dropout, LeakyReLU, ReflectionPadding2D

HALVINGS = {"unet_256": 8, "unet_128": 7}


def generator(config, inputs=3, outputs=3, name="generator"):
    """A picture of one domain to a picture of the other: float32 [N, H, W, inputs] -> [N, H, W, outputs], both in [-1, 1].

    11,383,427 parameters by default, 11,378,179 in the variant "paper".

    Args:
        config: the `Config`: `filters` is the number of channels after the first convolution.
    """
    picture = tf.keras.Input((None, None, inputs))
    build = _unet if config.generator in HALVINGS else _resnet
    x = build(_Parts(config), picture, outputs)
    return layers.network(picture, tf.keras.layers.Activation("tanh", dtype="float32")(x), name)


def discriminator(config, channels=3, name="discriminator"):
    """How real each patch of a picture looks, or each pixel, as logits. float32 [N, H, W, channels] in [-1, 1] -> [N, h, w, 1].

    A PatchGAN of 3 layers sees 70 x 70 pixels for each logit; h and w are ceil(H / 8) and ceil(W / 8), in the variant "paper"
    floor(H / 8) - 2 and so on. 2,765,633 parameters by default, 2,764,737 in the variant "paper".
    """
    picture = tf.keras.Input((None, None, channels))
    build = {"patch": _patches, "pixel": _pixels}[config.discriminator]
    x = build(_Parts(config, config.has_penalty), picture)
    return layers.network(picture, tf.keras.layers.Activation("linear", dtype="float32")(x), name)


class _Parts:
    """What networks are put together from, as the configuration wants it. Each function takes a tensor and gives one.

    `twice`: second derivatives are needed.
    """

    def __init__(self, config, twice=False):
        self.config, self.twice = config, twice
        self.paper = config.variant == "paper"
        # Normalizations take away what is added to all pixels, so biases before them are for the paper's sake only.
        self.use_bias = config.norm == "none" or (config.norm == "instance" and self.paper)
        self.transposed = config.upsample == "transpose"

    def convolve(self, x, filters, size, stride=1, use_bias=None):
        """With padding 1 in the variant "paper", with "same" in "keras"; for these they are what the reference has."""
        if self.paper:
            x = tf.keras.layers.ZeroPadding2D(1)(x)
        return self.convolve_inside(x, filters, size, stride, "valid" if self.paper else "same", use_bias)

    def convolve_mirrored(self, x, filters, size, use_bias=None):
        """With reflection padding, so that the size stays."""
        return self.convolve_inside(ReflectionPadding2D(size // 2)(x), filters, size, use_bias=use_bias)

    def convolve_inside(self, x, filters, size, stride=1, padding="valid", use_bias=None):
        """Without padding, or with the layer's own."""
        use_bias = self.use_bias if use_bias is None else use_bias
        return layers.convolution(filters, size, stride, padding, use_bias, self.config.init)(x)

    def enlarge(self, x, filters, size, use_bias=None):
        """Twice as high and wide: by a transposed convolution, or by nearest neighbours and a convolution (Odena et al. 2016)."""
        if not self.transposed:
            return self.convolve_mirrored(Doubling()(x), filters, 3, use_bias)
        use_bias = self.use_bias if use_bias is None else use_bias
        # Padding 1 is "same" for an even size. For 3 it is not: PyTorch begins a pixel earlier.
        padding = "valid" if self.paper and size == 3 else "same"
        return layers.upsampling_convolution(filters, size, padding, use_bias, self.config.init)(x)

    def normalize(self, x):
        if self.config.norm == "none":
            return x
        if self.config.norm == "batch":
            return layers.BatchNormalization()(x)
        epsilon = 1e-5 if self.paper else layers.EPSILON
        return layers.instance_normalization(epsilon, self.config.norm_affine == "yes", self.twice)(x)

    def drop(self, x):
        return Dropout(self.config.dropout)(x) if self.config.dropout else x


def _resnet(parts, x, outputs):
    """Down to a quarter of the size, the residual blocks, and up again. [N, H, W, C] -> [N, H, W, outputs]."""
    relu, filters = tf.keras.layers.ReLU, parts.config.filters
    x = relu()(parts.normalize(parts.convolve_mirrored(x, filters, 7)))
    for width in (2 * filters, 4 * filters):
        x = relu()(parts.normalize(parts.convolve(x, width, 3, 2)))
    for _ in range(parts.config.residual_blocks):
        x = _residual_block(parts, x)
    for width in (2 * filters, filters):
        x = relu()(parts.normalize(parts.enlarge(x, width, 3)))
    return parts.convolve_mirrored(x, outputs, 7, use_bias=True)


def _residual_block(parts, x):
    """x + norm(conv(pad(drop(relu(norm(conv(pad(x)))))))), no ReLU after the sum. [N, H, W, C] -> [N, H, W, C]."""
    channels = x.shape[-1]
    y = tf.keras.layers.ReLU()(parts.normalize(parts.convolve_mirrored(x, channels, 3)))
    y = parts.normalize(parts.convolve_mirrored(parts.drop(y), channels, 3))
    return tf.keras.layers.Add()([x, y])


def _unet(parts, x, outputs):
    """Halves the size again and again, and doubles it as often, with what there was at each size beside what comes back.

    [N, H, W, C] -> [N, H, W, outputs], H and W multiples of 2 to the power of the halvings. Neither the outermost nor the
    innermost halving is normalized. Dropout follows the enlargements between halvings of full width.
    """
    relu, filters, halvings = tf.keras.layers.ReLU, parts.config.filters, HALVINGS[parts.config.generator]
    widths = [filters * min(2**depth, 8) for depth in range(halvings)]
    x = parts.convolve(x, widths[0], 4, 2)
    skips = []
    for depth in range(1, halvings):
        skips.append(x)
        x = parts.convolve(LeakyReLU()(x), widths[depth], 4, 2)
        if depth < halvings - 1:
            x = parts.normalize(x)
    for depth in reversed(range(halvings - 1)):
        x = parts.normalize(parts.enlarge(relu()(x), widths[depth], 4))
        if 4 <= depth + 1 < halvings - 1:
            x = parts.drop(x)
        x = tf.keras.layers.Concatenate()([skips[depth], x])
    return parts.enlarge(relu()(x), outputs, 4, use_bias=True)


def _patches(parts, x):
    """A PatchGAN (Isola et al. 2017): convolutions of 4 x 4, of which the last two do not halve the size."""
    filters, count = parts.config.filters, parts.config.discriminator_layers
    x = LeakyReLU()(parts.convolve(x, filters, 4, 2, use_bias=True))
    for layer in range(1, count + 1):
        x = parts.convolve(x, filters * min(2**layer, 8), 4, 2 if layer < count else 1)
        x = LeakyReLU()(parts.normalize(x))
    return parts.convolve(x, 1, 4, use_bias=True)


def _pixels(parts, x):
    """Convolutions of 1 x 1. [N, H, W, C] -> [N, H, W, 1]."""
    filters = parts.config.filters
    x = LeakyReLU()(parts.convolve_inside(x, filters, 1, use_bias=True))
    x = LeakyReLU()(parts.normalize(parts.convolve_inside(x, 2 * filters, 1)))
    return parts.convolve_inside(x, 1, 1, use_bias=True)


def multiplications(network, height, width):
    """How many multiplications, each with an addition, the convolutions of a network need for one picture of a size in pixels."""
    keras, total = tf.keras.layers, 0
    for layer in network.layers:  # in the order they are computed in; what leads around others keeps the size
        if isinstance(layer, ReflectionPadding2D):
            height, width = height + 2 * layer.padding, width + 2 * layer.padding
        elif isinstance(layer, keras.ZeroPadding2D):
            height, width = height + sum(layer.padding[0]), width + sum(layer.padding[1])
        elif isinstance(layer, Doubling):
            height, width = 2 * height, 2 * width
        elif isinstance(layer, keras.Conv2DTranspose):
            total += height * width * math.prod(layer.kernel.shape)
            height, width = height * layer.strides[0], width * layer.strides[1]
        elif isinstance(layer, keras.Conv2D):
            (tall, wide), (down, right) = layer.kernel_size, layer.strides
            if layer.padding == "valid":
                height, width = height - tall + 1, width - wide + 1
            height, width = math.ceil(height / down), math.ceil(width / right)
            total += height * width * math.prod(layer.kernel.shape)
    return total
