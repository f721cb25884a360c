"""The layers that networks are made of; and the one place that knows which stack this is."""

import tensorflow as tf


@tf.keras.utils.register_keras_serializable("cyclegan")
class LeakyReLU(tf.keras.layers.Layer):
    """x where x > 0, 0.2 x elsewhere (Keras 2 and 3 name the slope of their own layer differently)."""

    def call(self, x):
        return tf.nn.leaky_relu(x, 0.2)
