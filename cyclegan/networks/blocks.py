"""Building blocks that the architectures share, according to the network settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from cyclegan.networks import normalization
from cyclegan.networks.layers import (
    BlurDownsampling2D,
    BlurUpsampling2D,
    Convolution,
    Dropout,
    NearestUpsampling2D,
    ReflectionPadding2D,
    TransposedConvolution,
    kernel_initializer,
)

if TYPE_CHECKING:
    from cyclegan.config.sections import NetworkConfig


class BlockBuilder:
    """Append layers to a Keras model under construction.

    Each method takes a symbolic tensor and returns one. `use_bias` is whether a convolution has a bias; `None` means
    the default of convolutions before a normalization, `has_biases`. To halve the sides, append a convolution of stride
    `halving`, a normalization and an activation, and then `blur`. With --antialias, `halving` is 1 and the blur halves.
    """

    def __init__(self, config: NetworkConfig, second_derivatives: bool = False, spectral: bool = False) -> None:
        """Initialize the builder; with `spectral`, kernels are normalized instead of features."""
        self.config = config
        self._second_derivatives = second_derivatives
        self._norm = "none" if spectral else config.norm
        self._kind = normalization.SpectralConvolution if spectral else Convolution
        self._paper = config.variant == "paper"
        self.halving = 1 if config.antialias else 2
        # A normalization cancels a bias before it, but the paper's networks have such biases.
        cancelled = self._norm == "instance" and self._paper
        self.has_biases = self._norm == "none" or cancelled
        self._bias = {"use_bias": self.has_biases, "trains_bias": not cancelled}

    def convolve(
        self, x: tf.Tensor, filters: int, size: int, stride: int = 1, use_bias: bool | None = None
    ) -> tf.Tensor:
        """Convolve with zero padding of 1 pixel (variant "paper") or "same" padding (variant "keras")."""
        padding: dict[str, Any] = {"margin": 1} if self._paper else {"padding": "same"}
        return self._convolve(x, filters, size, use_bias, strides=stride, **padding)

    def convolve_reflected(self, x: tf.Tensor, filters: int, size: int, use_bias: bool | None = None) -> tf.Tensor:
        """Convolve with reflection padding, which keeps the height and width."""
        return self._convolve(ReflectionPadding2D(size // 2)(x), filters, size, use_bias)

    def convolve_pixels(self, x: tf.Tensor, filters: int, use_bias: bool | None = None) -> tf.Tensor:
        """Convolve each pixel by itself, with a kernel of 1 x 1."""
        return self._convolve(x, filters, 1, use_bias)

    def blur(self, x: tf.Tensor) -> tf.Tensor:
        """Blur and halve the sides, with --antialias."""
        return BlurDownsampling2D()(x) if self.config.antialias else x

    def upsample(self, x: tf.Tensor, filters: int, size: int, use_bias: bool | None = None) -> tf.Tensor:
        """Double the sides by a transposed convolution, or by repeated pixels and a convolution (Odena et al. 2016)."""
        if self.config.upsample == "resize":
            return self.convolve_reflected(NearestUpsampling2D()(x), filters, 3, use_bias)
        if self.config.antialias:
            return self.convolve(BlurUpsampling2D()(x), filters, 3, use_bias=use_bias)
        # PyTorch's padding of 1 is "same" for an even kernel size. For size 3, its output begins one pixel earlier.
        padding = "valid" if self._paper and size == 3 else "same"
        return TransposedConvolution(filters, size, 2, padding, **self._weights(use_bias))(x)

    def normalize(self, x: tf.Tensor) -> tf.Tensor:
        """Normalize, if there is a normalization."""
        if self._norm == "none":
            return x
        if self._norm == "batch":
            return normalization.BatchNormalization()(x)
        epsilon = normalization.PYTORCH_EPSILON if self._paper else normalization.EPSILON
        affine = self.config.norm_affine == "yes"
        return normalization.make_instance_normalization(epsilon, affine, self._second_derivatives)(x)

    def dropout(self, x: tf.Tensor) -> tf.Tensor:
        """Drop values in training, if there is dropout."""
        return Dropout(self.config.dropout)(x) if self.config.dropout else x

    def _convolve(self, x: tf.Tensor, filters: int, size: int, use_bias: bool | None, **how: Any) -> tf.Tensor:
        return self._kind(filters, size, **how, **self._weights(use_bias))(x)

    def _weights(self, use_bias: bool | None) -> dict[str, Any]:
        bias = self._bias if use_bias is None else {"use_bias": use_bias}
        return {**bias, "kernel_initializer": kernel_initializer(self.config.init)}
