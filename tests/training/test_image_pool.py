from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclegan.errors import UserError
from cyclegan.training.image_pool import ImagePool

SHAPE = (2, 3, 1)


def make_image(number):
    return np.full(SHAPE, number, np.float32)


class Oracle:
    """The published procedure, image by image."""

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


def run_steps(pool, batch, steps, rng, weight=None, start=0):
    """Show `steps` batches of numbered images to a pool; return the images that it showed."""
    weight = np.ones(batch, bool) if weight is None else weight
    step = tf.function(pool.query, autograph=False)
    everything = []
    for number in range(start, start + steps):
        fakes = np.stack([make_image(batch * number + i) for i in range(batch)])
        shown, update = step(tf.constant(fakes), tf.constant(weight), tf.constant(rng.random((batch, 2), np.float32)))
        pool.store(update, tf.constant(True))
        everything.append(shown.numpy())
    return np.stack(everything)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(size=st.integers(1, 9), batch=st.integers(1, 4), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_each_slot_follows_the_published_procedure_whatever_is_padding(size, batch, seed, data):
    samples = st.lists(st.booleans(), min_size=batch, max_size=batch)
    steps = data.draw(st.lists(samples, min_size=1, max_size=12), label="which are samples, by step")
    pool, oracles = ImagePool(size, batch, SHAPE), [Oracle(-(-size // batch)) for _ in range(batch)]
    rng = np.random.default_rng(seed)
    for number, is_sample in enumerate(steps):
        fakes = np.stack([make_image(batch * number + i) for i in range(batch)])
        random = rng.random((batch, 2), np.float32)
        shown, update = pool.query(tf.constant(fakes), tf.constant(is_sample), tf.constant(random))
        pool.store(update, tf.constant(True))
        queries = zip(oracles, fakes, random, is_sample)
        expected = [oracle.query(new, numbers) if stored else new for oracle, new, numbers, stored in queries]
        np.testing.assert_array_equal(shown, expected)
    found = pool.read()
    for images, count, oracle in zip(found["images"], found["counts"], oracles):
        assert count == len(oracle.images)
        np.testing.assert_array_equal(images[:count].reshape(-1, *SHAPE), np.reshape(oracle.images, (-1, *SHAPE)))


def test_a_step_reads_only_the_images_that_it_needs():
    """Reading the variable would copy all of it, because it is written in parts."""
    pool = ImagePool(50, 2, SHAPE)

    @tf.function(autograph=False)
    def step(fakes, random):
        shown, update = pool.query(fakes, tf.ones([2], bool), random)
        pool.store(update, tf.constant(True))
        return shown

    graph = step.get_concrete_function(tf.zeros([2, *SHAPE]), tf.zeros([2, 2])).graph
    sources = [node.inputs[0] for node in graph.get_operations() if node.type == "ReadVariableOp"]
    captured = {id(inner): outer for outer, inner in graph.captures}
    assert sources and all(captured[id(source)] is pool.counts.handle for source in sources)


@pytest.mark.parametrize("replicas", [2, 3])
def test_replicas_hold_and_show_their_slots_only(replicas, strategies):
    strategy = strategies[replicas]
    with strategy.scope():
        pool = ImagePool(12, 6, SHAPE)
    assert pool.images.shape[0] == 12 // replicas
    alone, rng = ImagePool(12, 6, SHAPE), np.random.default_rng(0)
    run_steps(alone, 6, 20, rng)
    pool.write(alone.read())
    for name, array in alone.read().items():
        np.testing.assert_array_equal(pool.read()[name], array)
    fakes, random = np.stack([make_image(100 + i) for i in range(6)]), rng.random((6, 2), np.float32)

    def split(array):
        parts = np.split(array, replicas)
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )

    def step(fakes, random):
        shown, update = pool.query(fakes, tf.ones([len(fakes)], bool), random)
        pool.store(update, tf.constant(True))
        return shown

    shown = strategy.gather(strategy.run(tf.function(step), args=(split(fakes), split(random))), axis=0)
    expected, update = alone.query(tf.constant(fakes), tf.ones([6], bool), tf.constant(random))
    alone.store(update, tf.constant(True))
    np.testing.assert_array_equal(shown, expected)
    np.testing.assert_array_equal(pool.read()["images"], alone.read()["images"])


@pytest.mark.parametrize("size, batch", [(6, 2), (6, 3), (12, 2)])
def test_another_global_batch_or_size_empties_the_pool(size, batch):
    pool, other = ImagePool(6, 2, SHAPE), ImagePool(size, batch, SHAPE)
    run_steps(pool, 2, 3, np.random.default_rng(0))
    run_steps(other, batch, 1, np.random.default_rng(0))
    other.write(pool.read())
    assert other.read()["counts"].tolist() == ([3, 3] if (size, batch) == (6, 2) else [0] * batch)


def test_images_that_are_too_large_are_named(monkeypatch):
    error = tf.errors.ResourceExhaustedError(None, None, "")
    monkeypatch.setattr(tf, "zeros", mock.Mock(side_effect=error))
    text = "--pool_size 50: its images of 100000 x 100000 pixels take 6,000 GB .* smaller --image_size or --pool_size"
    with pytest.raises(UserError, match=text):
        ImagePool(50, 1, (100_000, 100_000, 3))


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"images of the pool are \(2, 3, 1\), not \(4, 4, 3\)"):
        ImagePool(6, 2, (4, 4, 3)).write(ImagePool(6, 2, SHAPE).read())
