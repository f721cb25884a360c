import itertools
import unittest.mock

import numpy as np
import tensorflow as tf

from cyclegan.methods.randomness import StepRandomness


def test_numbers_depend_on_seed_step_and_purpose():
    found = {}
    for seed, step, purpose in itertools.product((0, 1, 2**32 - 1), (0, 1, 10**6), range(15)):
        random = StepRandomness(seed, tf.constant(step, tf.int64), 2, 2)
        found[random.uniform(purpose, 2).numpy().tobytes()] = (seed, step, purpose)
        again = random.uniform(purpose, 2).numpy().tobytes()
        assert found[again] == (seed, step, purpose)
    assert len(found) == 3 * 3 * 15


def test_subsets_are_a_function_of_the_sample():
    def subsets(batch, start, count, size=40, purpose=9):
        random = StepRandomness(1, tf.constant(3, tf.int64), batch, count)
        rows = random.uniform(purpose, size)[start : start + count]
        with unittest.mock.patch.object(StepRandomness, "shard", lambda self, all_rows: rows):
            return random.subsets(purpose, size, 16).numpy()

    whole = subsets(6, 0, 6)
    assert whole.shape == (6, 16) and all(len(set(row)) == 16 and 0 <= min(row) <= max(row) < 40 for row in whole)
    assert np.array_equal(subsets(6, 2, 2), whole[2:4]) and not np.array_equal(whole[0], whole[1])
    counts = np.bincount(subsets(2000, 0, 2000).ravel(), minlength=40)
    assert abs(counts - 800).max() < 5 * np.sqrt(2000 * 0.4 * 0.6)
    assert sorted(subsets(1, 0, 1, size=9)[0]) == list(range(9))
