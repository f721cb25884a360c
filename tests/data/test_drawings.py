import numpy as np
import pytest

from cyclegan.config.data import EMBEDDED
from cyclegan.data import drawings, scenes, stripes


def test_each_embedded_dataset_has_drawings():
    assert set(drawings.DRAW) == set(EMBEDDED)


@pytest.mark.parametrize(
    "dataset, module, names", [("stripes", stripes, ("horse", "zebra")), ("scenes", scenes, ("labels", "rendering"))]
)
def test_both_domains_show_the_scene_of_a_seed(dataset, module, names):
    scene = module.random_scene(np.random.default_rng([3, 7]))
    for domain, name in zip("AB", names):
        drawn = drawings.draw(dataset, domain, [3, 7], 32)
        np.testing.assert_array_equal(drawn, module.draw(scene, name, 32))
        assert not np.array_equal(drawn, drawings.draw(dataset, domain, [3, 8], 32))
