import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution import collectives


@pytest.mark.parametrize("replicas", [1, 3])
def test_reduce_dict_sums_into_a_new_dict(strategies, replicas):
    strategy = strategies[replicas]
    per_replica = {"a": strategy.run(lambda: tf.distribute.get_replica_context().replica_id_in_sync_group + 1)}
    before = dict(per_replica)
    reduced = collectives.reduce_dict(strategy, per_replica)
    assert int(reduced["a"]) == {1: 1, 3: 6}[replicas]
    assert per_replica == before and reduced is not per_replica


@pytest.mark.parametrize("free", [(0, 1, 2), (2,), (1,), (1, 2), ()], ids=str)
def test_gradients_are_summed_in_the_order_of_replicas(strategies, free):
    """Sum numbers whose float32 sum depends on the order: 1e8 + 3 + 3 is 1e8 from left to right, and 1e8 + 8 from right to left.

    TensorFlow joins several additions into one operation, which starts with the number whose memory can be reused: `free`.
    """
    strategy, values = strategies[3], tf.constant([1e8, 3.0, 3.0])

    @tf.function(autograph=False)
    def total(number):
        def on_replica():
            index = tf.distribute.get_replica_context().replica_id_in_sync_group
            own = number * tf.fill([1000], values[index])
            return collectives.sum_over_replicas([own])[0], own

        sums, own = strategy.run(on_replica)
        own = strategy.experimental_local_results(own)
        return strategy.experimental_local_results(sums), [own[i] for i in range(3) if i not in free]

    for on_replica in total(tf.constant(1.0))[0]:
        np.testing.assert_array_equal(on_replica, np.float32(1e8))


@pytest.mark.parametrize("replicas", [1, 3])
def test_all_gather_returns_rows_in_the_order_of_replicas(strategies, replicas):
    def gathered():
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        rows = 10 * number + tf.range(2.0)
        return collectives.all_gather((tf.reshape(rows, [2, 1, 1]) * tf.ones([2, 3, 1]), rows))

    strategy = strategies[replicas]
    found = strategy.run(tf.function(gathered))
    expected = [10.0 * number + row for number in range(replicas) for row in (0, 1)]
    for images, rows in zip(*map(strategy.experimental_local_results, found)):
        assert rows.numpy().tolist() == expected
        np.testing.assert_array_equal(images[:, :, 0], np.transpose([expected] * 3))


def test_all_gather_keeps_infinite_values_apart(strategies):
    def gathered():
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        return collectives.all_gather((tf.stack([[1.0 / number, number]]),))

    (found,) = strategies[3].run(tf.function(gathered))
    for rows in strategies[3].experimental_local_results(found):
        assert rows.numpy().tolist() == [[np.inf, 0], [1, 1], [0.5, 2]]
