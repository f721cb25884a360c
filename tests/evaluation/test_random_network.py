"""The fixed random network, whose scores rank the translations of one run."""

import numpy as np
import pytest

from cyclegan.evaluation.feature_distances import fid, kid
from cyclegan.evaluation.features import make_extractor, random_extractor
from cyclegan.evaluation.random_network import random_kernels
from tests.evaluation.drawings import draw

FIRST = (0.10465028, 0.16129495, -0.411885)  # weights of the network


def scaled(images):
    return (images / (np.iinfo(images.dtype).max / 2) - 1).astype(np.float32)


def test_weights_never_change(extractor):
    kernel, bias = random_kernels(3)[0]
    np.testing.assert_allclose(kernel[0, 0, :, 0], FIRST, rtol=1e-6)
    assert kernel.shape == (4, 4, 3, 48) and bias.shape == (48,)
    assert kernel.std() == pytest.approx(np.sqrt(2 / 48), rel=0.05)
    flat = extractor(np.zeros((2, 16, 16, 3), np.float32))
    again = random_extractor()(np.zeros((2, 16, 16, 3), np.float32))
    np.testing.assert_array_equal(flat, again)
    np.testing.assert_allclose(flat[:, :48], np.maximum([bias, bias], 0), atol=1e-6)  # the means of the first layer
    assert flat.shape == (2, 672) and flat.dtype == np.float32


def test_first_convolution_by_hand(extractor):
    image = scaled(draw("zebra", 1, 16, seed=0))
    kernel, bias = random_kernels(3)[0]
    padded = np.pad(image[0], [(1, 1), (1, 1), (0, 0)])
    windows = [padded[i : i + 4, j : j + 4] for i in range(0, 16, 2) for j in range(0, 16, 2)]
    values = np.maximum([np.tensordot(window, kernel, 3) + bias for window in windows], 0)
    found = extractor(image)[0]
    np.testing.assert_allclose(found[:48], values.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[48:96], np.sqrt(values.var(axis=0) + 1e-6), rtol=1e-3, atol=1e-4)


def test_ranks_images_as_a_person_would(extractor):
    """Rank by FID and KID: other zebras < zebras with noise, or half turned into horses < horses < noise."""
    real, other, horses = (draw(animal, 24, 32, seed) for animal, seed in (("zebra", 1), ("zebra", 2), ("horse", 2)))
    rng = np.random.default_rng(0)
    noisy = np.clip(other + rng.normal(0, 20, other.shape), 0, 255).astype(np.uint8)
    half = ((other.astype(int) + horses) // 2).astype(np.uint8)
    noise = rng.integers(0, 256, other.shape).astype(np.uint8)
    found = extractor(scaled(real))
    for score in (fid, lambda x, y: kid(x, y)[0]):
        for spoilt in (noisy, half):
            ranks = [score(extractor(scaled(images)), found) for images in (other, spoilt, horses, noise)]
            assert ranks == sorted(ranks) and ranks[3] > 2 * ranks[2]
    assert abs(kid(extractor(scaled(other)), found)[0]) < 0.1 * kid(extractor(scaled(half)), found)[0]


@pytest.mark.parametrize("channels, size", [(1, (16, 20)), (5, (32, 16))])
def test_features_of_any_channels_and_sizes(channels, size):
    found = make_extractor("random", (channels, 7))(np.zeros((3, *size, channels), np.float32))
    assert found.shape == (3, 672) and np.isfinite(found).all()
