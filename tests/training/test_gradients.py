import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.training.optimizers import pack, unpack, zero_unless


@pytest.mark.parametrize("on_gpu", [False, True])
def test_gradients_are_packed_masked_and_unpacked(on_gpu, monkeypatch):
    monkeypatch.setattr(hardware, "has_accelerator", lambda: on_gpu)
    variables = [tf.Variable(tf.zeros(shape)) for shape in ([2, 3], [4])]
    gradients = [tf.reshape(tf.range(6.0), [2, 3]), tf.constant([1.0, np.inf, np.nan, 2.0])]
    packed = pack(gradients)
    assert len(packed) == (1 if on_gpu else 2)
    for finite in (True, False):
        found = unpack(zero_unless(tf.constant(finite), packed), variables)
        for one, expected in zip(found, gradients):
            np.testing.assert_array_equal(one, expected if finite else tf.zeros_like(expected))
