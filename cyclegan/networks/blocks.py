"""Generators and discriminators, of residual blocks (Zhu et al. 2017, appendix) and as U-Nets (Isola et al. 2017, appendix)."""

import tensorflow as tf

from cyclegan.networks import normalization
from cyclegan.networks.convolution import Doubling, convolution, upsampling_convolution
from cyclegan.networks.dropout import Dropout
from cyclegan.networks.padding import ReflectionPadding2D


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
        return convolution(filters, size, stride, padding, use_bias, self.config.init)(x)

    def enlarge(self, x, filters, size, use_bias=None):
        """Twice as high and wide: by a transposed convolution, or by nearest neighbours and a convolution (Odena et al. 2016)."""
        if not self.transposed:
            return self.convolve_mirrored(Doubling()(x), filters, 3, use_bias)
        use_bias = self.use_bias if use_bias is None else use_bias
        # Padding 1 is "same" for an even size. For 3 it is not: PyTorch begins a pixel earlier.
        padding = "valid" if self.paper and size == 3 else "same"
        return upsampling_convolution(filters, size, padding, use_bias, self.config.init)(x)

    def normalize(self, x):
        if self.config.norm == "none":
            return x
        if self.config.norm == "batch":
            return normalization.BatchNormalization()(x)
        epsilon = 1e-5 if self.paper else normalization.EPSILON
        return normalization.instance_normalization(epsilon, self.config.norm_affine == "yes", self.twice)(x)

    def drop(self, x):
        return Dropout(self.config.dropout)(x) if self.config.dropout else x
