import numpy as np
import pytest

from cyclegan.inference.model import Model
from cyclegan.inference.translator import Translator
from tests.inference.arrays import images
from tests.inference.runs import UNET, make_run


def by_hand(network, image):
    """Return the output of a network for an image [h, w, C] of a size that it takes: float32 [h, w, outputs]."""
    return network(image[None], training=False).numpy()[0]


@pytest.mark.parametrize("size", [(32, 48), (17, 23), (1, 1), (5, 64), (33, 2)], ids=str)
def test_any_size_is_mirrored_and_cropped(models, size):
    model, _ = models
    image = images(*size, 3)
    top, left = ((max(16, -(-side // 4) * 4) - side) for side in size)
    padded = np.pad(image, ((top // 2, top - top // 2), (left // 2, left - left // 2), (0, 0)), "reflect")
    expected = by_hand(model._restored.G, padded.astype(np.float32) / 127.5 - 1)
    expected = expected[top // 2 : top // 2 + size[0], left // 2 : left // 2 + size[1]]
    got = model.x2y(image)
    assert got.shape == (*size, 1) and got.dtype == np.uint8
    assert np.abs(got - (expected + 1) * 127.5).max() <= 0.5 + 1e-3
    as_float = model.x2y(image.astype(np.float32) / np.float32(127.5) - 1)
    np.testing.assert_allclose(as_float, expected, atol=1e-5)


@pytest.mark.slow
def test_images_are_mirrored_to_the_sides_of_a_unet(tmp_path, strategies):
    make_run(tmp_path / "run", strategies[1], **UNET)
    model = Model(tmp_path / "run")
    image = images(130, 20, 3)
    padded = np.pad(image, ((63, 63), (54, 54), (0, 0)), "reflect")
    expected = by_hand(model._restored.G, padded.astype(np.float32) / 127.5 - 1)[63:-63, 54:-54]
    assert np.abs(model.x2y(image) - (expected + 1) * 127.5).max() <= 0.5 + 1e-3


def test_16_bit_images_keep_their_depth(models):
    model, _ = models
    deep = images(20, 24, 3, dtype=np.uint16)
    expected = model.x2y(deep.astype(np.float32) / np.float32(32767.5) - 1)
    got = model.x2y(deep)
    assert got.dtype == np.uint16 and (got % 257 > 0).any()
    assert np.abs(got - (expected + 1.0) * 32767.5).max() <= 1


def test_no_trace_for_another_size(models):
    model, _ = models
    translator = Translator(model._restored.G, 4)
    for side in (16, 20, 24, 33):
        translator(images(1, side, 16, 3))
    assert len(translator._functions) == 1
