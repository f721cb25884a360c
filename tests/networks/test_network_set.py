import numpy as np

from cyclegan.config import Config
from cyclegan.images.value_range import to_float
from cyclegan.training.gan import GAN
from tests.training.helpers import as_trained


def test_two_inputs_as_one_batch_give_the_same_outputs(make_images):
    gan = as_trained(GAN(2, Config.from_settings(filters=8, residual_blocks=2, image_size=32)))
    x, y = (to_float(make_images(2, seed=seed)) for seed in (1, 2))
    for network in (gan.networks["G"], gan.networks["D_X"]):
        alone = network(x).numpy(), network(y).numpy()
        size = np.abs(alone[0] - alone[1]).max()
        assert size > 1e-2
        for one, other in zip(gan.networks.apply_to_two(network, x, y, True), alone):
            np.testing.assert_allclose(one, other, atol=1e-4 * size)
