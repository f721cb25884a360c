import numpy as np
import pytest
import tensorflow as tf

from cyclegan.training.image_pool import ImagePool

SHAPE = (2, 3, 1)


def make_image(number):
    return np.full(SHAPE, number, np.float32)


class Oracle:
    """Follow the published procedure, image by image."""

    def __init__(self, size):
        self.size, self.images = size, []

    def query(self, new, random):
        if len(self.images) < self.size:
            self.images.append(new)
            return new
        if random[0] < 0.5:
            index = int(np.float32(random[1]) * self.size)
            old, self.images[index] = self.images[index], new
            return old
        return new


@pytest.mark.parametrize("size, batch", [(1, 1), (3, 1), (3, 2), (2, 6), (50, 8)])
def test_pool_matches_the_published_procedure(size, batch):
    rng = np.random.default_rng([size, batch])
    pool, oracle = ImagePool(size, SHAPE), Oracle(size)
    step = tf.function(lambda fakes, random: pool.query(fakes, tf.ones([batch], bool), random))
    replaced = 0
    for number in range(0, 40 * batch, batch):
        fakes = np.stack([make_image(number + i) for i in range(batch)])
        random = rng.random((batch, 2), np.float32)
        shown, update = step(tf.constant(fakes), tf.constant(random))
        pool.store(update, tf.constant(True))
        expected = np.stack([oracle.query(fake, draw) for fake, draw in zip(fakes, random)])
        np.testing.assert_array_equal(shown.numpy(), expected)
        replaced += (expected != fakes).any(axis=(1, 2, 3)).sum()
        assert pool.count.numpy() == len(oracle.images)
        np.testing.assert_array_equal(pool.images.numpy()[: len(oracle.images)], np.stack(oracle.images))
    assert replaced > 40 * batch // 5


def test_padding_is_shown_and_not_stored():
    pool = ImagePool(2, SHAPE)
    fakes = tf.constant(np.stack([make_image(n) for n in (1, 2, 3)]))
    shown, update = pool.query(fakes, tf.constant([True, False, True]), tf.zeros([3, 2]))
    pool.store(update, tf.constant(True))
    np.testing.assert_array_equal(shown, fakes)
    np.testing.assert_array_equal(pool.images.numpy(), [make_image(1), make_image(3)])
    shown, update = pool.query(fakes + 10, tf.zeros([3], bool), tf.zeros([3, 2]))
    pool.store(update, tf.constant(True))
    np.testing.assert_array_equal(shown, fakes + 10)
    np.testing.assert_array_equal(pool.images.numpy(), [make_image(1), make_image(3)])


def test_nonfinite_step_stores_nothing():
    pool = ImagePool(2, SHAPE)
    fakes = tf.constant(np.stack([make_image(1), make_image(np.nan)]))
    _, update = pool.query(fakes, tf.ones([2], bool), tf.zeros([2, 2]))
    pool.store(update, tf.constant(False))
    assert pool.count.numpy() == 0 and not pool.images.numpy().any()


def test_a_step_reads_only_the_images_that_it_needs():
    """Check that the pool's variable is not read as a whole, which would copy it."""
    pool = ImagePool(50, SHAPE)

    @tf.function(autograph=False)
    def step(fakes, random):
        shown, update = pool.query(fakes, tf.ones([2], bool), random)
        pool.store(update, tf.constant(True))
        return shown

    graph = step.get_concrete_function(tf.zeros([2, *SHAPE]), tf.zeros([2, 2])).graph
    sources = [node.inputs[0] for node in graph.get_operations() if node.type == "ReadVariableOp"]
    captured = {id(inner): outer for outer, inner in graph.captures}
    assert sources and all(captured[id(source)] is pool.count.handle for source in sources)
