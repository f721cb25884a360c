"""Padding layers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


@tf.keras.utils.register_keras_serializable("cyclegan")
class ReflectionPadding2D(tf.keras.layers.Layer):
    """Mirror the pixels at each side of an image without repeating the edge itself.

    [N, H, W, C] -> [N, H + 2p, W + 2p, C] for `padding` p; H and W must be greater than p.

    Attributes:
        padding: Number of pixels that each side gets.
    """

    def __init__(self, padding: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.padding = padding

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Pad images [N, H, W, C]."""
        p = self.padding
        return tf.pad(x, [[0, 0], [p, p], [p, p], [0, 0]], mode="REFLECT")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make this layer again."""
        return {**super().get_config(), "padding": self.padding}
