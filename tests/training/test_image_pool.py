import numpy as np
import pytest
import tensorflow as tf

from cyclegan.training.image_pool import ImagePool

SHAPE = (2, 3, 1)


def picture(number):
    return np.full(SHAPE, number, np.float32)


class Oracle:
    """The published procedure, one picture after the other."""

    def __init__(self, size):
        self.size, self.images = size, []

    def query(self, new, draws):
        if len(self.images) < self.size:
            self.images.append(new)
            return new
        if draws[0] < 0.5:
            place = int(np.float32(draws[1]) * self.size)
            old, self.images[place] = self.images[place], new
            return old
        return new


@pytest.mark.parametrize("size, batch", [(1, 1), (3, 1), (3, 2), (2, 6), (50, 8)])
def test_pictures_are_shown_as_one_by_one(size, batch):
    rng = np.random.default_rng([size, batch])
    pool, oracle = ImagePool(size, SHAPE), Oracle(size)
    step = tf.function(lambda fakes, draws: pool.query(fakes, tf.ones([batch], bool), draws))
    replaced = 0
    for number in range(0, 40 * batch, batch):
        fakes = np.stack([picture(number + i) for i in range(batch)])
        draws = rng.random((batch, 2), np.float32)
        shown, kept = step(tf.constant(fakes), tf.constant(draws))
        pool.store(kept, tf.constant(True))
        expected = np.stack([oracle.query(fake, draw) for fake, draw in zip(fakes, draws)])
        np.testing.assert_array_equal(shown.numpy(), expected)
        replaced += (expected != fakes).any(axis=(1, 2, 3)).sum()
        assert pool.count.numpy() == len(oracle.images)
        np.testing.assert_array_equal(pool.images.numpy()[: len(oracle.images)], np.stack(oracle.images))
    assert replaced > 40 * batch // 5


def test_what_only_fills_a_batch_up_is_shown_and_not_stored():
    pool = ImagePool(2, SHAPE)
    fakes = tf.constant(np.stack([picture(n) for n in (1, 2, 3)]))
    shown, kept = pool.query(fakes, tf.constant([True, False, True]), tf.zeros([3, 2]))
    pool.store(kept, tf.constant(True))
    np.testing.assert_array_equal(shown, fakes)
    np.testing.assert_array_equal(pool.images.numpy(), [picture(1), picture(3)])
    shown, kept = pool.query(fakes + 10, tf.zeros([3], bool), tf.zeros([3, 2]))
    pool.store(kept, tf.constant(True))
    np.testing.assert_array_equal(shown, fakes + 10)
    np.testing.assert_array_equal(pool.images.numpy(), [picture(1), picture(3)])


def test_a_bad_step_stores_nothing():
    pool = ImagePool(2, SHAPE)
    fakes = tf.constant(np.stack([picture(1), picture(np.nan)]))
    _, kept = pool.query(fakes, tf.ones([2], bool), tf.zeros([2, 2]))
    pool.store(kept, tf.constant(False))
    assert pool.count.numpy() == 0 and not pool.images.numpy().any()


def test_a_step_reads_only_the_pictures_that_it_needs():
    """Reading the variable would copy all of it: TensorFlow does so once a part of it has been written alone."""
    pool = ImagePool(50, SHAPE)

    @tf.function(autograph=False)
    def step(fakes, draws):
        shown, kept = pool.query(fakes, tf.ones([2], bool), draws)
        pool.store(kept, tf.constant(True))
        return shown

    graph = step.get_concrete_function(tf.zeros([2, *SHAPE]), tf.zeros([2, 2])).graph
    sources = [node.inputs[0] for node in graph.get_operations() if node.type == "ReadVariableOp"]
    captured = {id(inner): outer for outer, inner in graph.captures}
    assert sources and all(captured[id(source)] is pool.count.handle for source in sources)
