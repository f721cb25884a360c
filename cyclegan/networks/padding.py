"""The layers that networks are made of; and the one place that knows which stack this is."""

import tensorflow as tf


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
