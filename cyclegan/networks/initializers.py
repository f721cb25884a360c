"""The layers that networks are made of; and the one place that knows which stack this is."""

import tensorflow as tf

GAIN = 0.02  # the scale of initial values


def normal(mean=0.0):
    """Initial values N(mean, 0.02) (Zhu et al. 2017, section 4)."""
    return tf.keras.initializers.RandomNormal(mean, GAIN)


def kernels(init):
    """The initial values of a convolution's kernel, as `init_weights` of pytorch-CycleGAN-and-pix2pix has them.

    "normal": N(0, 0.02). The others are N(0, s) with s^2 = 0.02^2 * 2 / (fan_in + fan_out) for "xavier" (Glorot and Bengio 2010,
    eq. 16) and 2 / fan_in for "kaiming" (He et al. 2015, eq. 10), or 0.02 times a random "orthogonal" matrix (Saxe et al. 2014).
    The fan_in of a transposed convolution is what PyTorch takes for it, kernel area * output channels.
    """
    initializers = tf.keras.initializers
    if init == "xavier":
        return initializers.VarianceScaling(GAIN**2, "fan_avg", "untruncated_normal")
    if init == "kaiming":
        return initializers.VarianceScaling(2.0, "fan_in", "untruncated_normal")
    return initializers.Orthogonal(GAIN) if init == "orthogonal" else normal()
