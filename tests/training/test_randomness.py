import itertools

import tensorflow as tf

from cyclegan.training.randomness import StepRandomness


def test_numbers_depend_on_seed_step_and_purpose():
    found = {}
    for seed, step, purpose in itertools.product((0, 1, 2**32 - 1), (0, 1, 10**6), range(9)):
        random = StepRandomness(seed, tf.constant(step, tf.int64), 2, 2)
        found[random.uniform(purpose, 2).numpy().tobytes()] = (seed, step, purpose)
        again = random.uniform(purpose, 2).numpy().tobytes()
        assert found[again] == (seed, step, purpose)
    assert len(found) == 3 * 3 * 9
