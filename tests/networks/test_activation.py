import tensorflow as tf

from cyclegan.networks.activation import LeakyReLU


def test_leaky_relu_by_hand():
    assert LeakyReLU()(tf.constant([-5.0, 0.0, 2.0])).numpy().tolist() == [-1.0, 0.0, 2.0]
