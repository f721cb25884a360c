import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution import collectives


@pytest.mark.parametrize("replicas", [1, 3])
def test_reduce_dict_sums_into_a_new_dict(strategies, replicas):
    strategy = strategies[replicas]

    def reduced():
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        share = {"a": tf.cast(number, tf.float32) + 1}
        metrics, (rows,) = collectives.reduce_dict(share, (tf.fill([2, 3], share["a"]),))
        assert metrics is not share and set(share) == {"a"}
        return share["a"], metrics["a"], rows

    shares, sums, rows = map(strategy.experimental_local_results, strategy.run(tf.function(reduced)))
    assert [float(share) for share in shares] == [1.0, 2.0, 3.0][:replicas]
    for one, row in zip(sums, rows):
        assert float(one) == {1: 1, 3: 6}[replicas]
        np.testing.assert_array_equal(row, np.full([2, 3], float(one)))


@pytest.mark.parametrize("free", [(0, 1, 2), (2,), (1,), (1, 2), ()], ids=str)
def test_gradients_are_summed_in_the_order_of_replicas(strategies, free):
    """Sum numbers whose float32 sum depends on the order: 1e8 + 3 + 3 is 1e8 from left to right, else 1e8 + 8.

    TensorFlow joins several additions into one operation, which starts with the number whose memory can be reused:
    `free`.
    """
    strategy, values = strategies[3], tf.constant([1e8, 3.0, 3.0])

    @tf.function(autograph=False)
    def total(number):
        def on_replica():
            index = tf.distribute.get_replica_context().replica_id_in_sync_group
            own = number * tf.fill([1000], values[index])
            return collectives.reduce_dict({}, own)[1], own

        sums, own = strategy.run(on_replica)
        own = strategy.experimental_local_results(own)
        return strategy.experimental_local_results(sums), [own[i] for i in range(3) if i not in free]

    for on_replica in total(tf.constant(1.0))[0]:
        np.testing.assert_array_equal(on_replica, np.float32(1e8))
