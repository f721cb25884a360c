import numpy as np

from cyclegan.benchmarking.noise import make_dataset
from cyclegan.benchmarking.settings import Setting


def setting(cache):
    return Setting("default", 16, 2, "float32", "off", 1, 5.0, 3, 2, 0, cache=cache)


def test_an_epoch_has_the_calls_that_are_asked_for():
    pairs = make_dataset(setting("ram"), 4)
    assert pairs.epoch_size == 4 * 3 * 2  # calls, steps of a call, pairs of a step
    x, y, weight = pairs.batches(0, 0, 3)
    assert x.shape == y.shape == (3, 2, 16, 16, 3) and weight.all()
    assert not np.array_equal(x, y) and len(np.unique(x)) > 200
    assert pairs.domains[0].shape[1] > 16  # room for random crops


def test_jpegs_are_as_many_and_as_large_as_the_arrays():
    (arrays, _), (jpegs, _) = (make_dataset(setting(cache), 4).domains for cache in ("ram", "none"))
    assert jpegs.shape == arrays.shape
    first, second, ninth = jpegs[0], jpegs[1], jpegs[8]
    assert first.shape == arrays[0].shape and first.dtype == np.uint8
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(ninth, first)  # there are eight files
