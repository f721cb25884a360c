import numpy as np
import pytest
import tensorflow as tf

from cyclegan.errors import UserError
from cyclegan.inference.tiles import OVERLAP, make_spans
from cyclegan.inference.translator import Translator
from tests.inference.arrays import images


class Pointwise(tf.keras.Model):
    """Translate each pixel by itself, so that tiles are invisible."""

    input_shape, output_shape = (None, None, None, 3), (None, None, None, 2)

    def __init__(self):
        super().__init__()
        self.sizes = []

    def call(self, x, training=False):
        tf.py_function(lambda shape: self.sizes.append(tuple(shape.numpy())), [tf.shape(x)], [])
        return tf.stack([x[..., 0] * 0.5, -x[..., 2]], axis=-1)


@pytest.mark.parametrize("size", [(600, 700), (513, 2500), (40, 20000), (1700, 511)], ids=str)
def test_tiles_fade_and_are_bounded(size):
    network = Pointwise()
    translator = Translator(network, 4, tile=512)
    image = images(*size, 3)
    got = translator(image[None])[0]
    assert got.shape == (*size, 2)
    expected = np.stack([(image[..., 0] / 127.5 - 1) * 0.5, 1 - image[..., 2] / 127.5], axis=-1)
    assert np.abs(got - (expected + 1) * 127.5).max() <= 0.5 + 1e-2
    network.sizes = [shape for shape in network.sizes if shape[0] == 1]
    assert len(network.sizes) > 1 and all(max(shape[1:3]) <= 512 for shape in network.sizes)


def test_weights_add_up_to_one():
    for length in (1, 511, 512, 513, 896, 897, 1000, 1024, 1025, 4999):
        total, spans = np.zeros(length), make_spans(length, 512)
        for start, stop, weights in spans:
            assert stop - start <= 512 and len(weights) == stop - start and 0 <= weights.min() and weights.max() <= 1
            total[start:stop] += weights
        np.testing.assert_allclose(total, 1, atol=1e-6)
        assert len(spans) == 1 or all(a[1] - b[0] == OVERLAP for a, b in zip(spans, spans[1:]))


def test_small_images_are_not_tiled():
    network = Pointwise()
    translator = Translator(network, 4, tile=512)
    translator(images(2, 400, 600, 3))  # fewer pixels than a tile, though longer
    assert network.sizes[-1] == (2, 400, 600, 3)
    with pytest.raises(UserError, match="--tile 100: expected at least 512 pixels"):
        Translator(network, 4, tile=100)
