import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution.train_function import all_finite, make_train_function, reduce_dict


@pytest.mark.parametrize("replicas", [1, 3])
def test_reduce_dict_sums_into_a_new_dict(strategies, replicas):
    strategy = strategies[replicas]

    def reduced():
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        share = {"a": tf.cast(number, tf.float32) + 1}
        metrics, (rows,) = reduce_dict(share, (tf.fill([2, 3], share["a"]),))
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
            return reduce_dict({}, own)[1], own

        sums, own = strategy.run(on_replica)
        own = strategy.experimental_local_results(own)
        return strategy.experimental_local_results(sums), [own[i] for i in range(3) if i not in free]

    for on_replica in total(tf.constant(1.0))[0]:
        np.testing.assert_array_equal(on_replica, np.float32(1e8))


def reducing(step):
    """Return a step on a replica that sums the metrics of `step` over the replicas."""

    def on_replica(batch, number, rates, requests):
        metrics, _ = reduce_dict({**step(*batch), **requests})
        return metrics, all_finite(metrics)

    return on_replica


def test_totals_add_up_good_steps_only(strategies):
    strategy = strategies[3]

    def step(x):
        return {"a": tf.reduce_sum(x) / 3, "b": 2 * tf.reduce_sum(x) / 3, "c": tf.reduce_sum(x)}

    run = make_train_function(strategy, reducing(step), 3)
    numbers = tf.data.Dataset.from_tensor_slices(([[1.0], [2], [3], [4], [5], [6], [7], [8], [float("nan")]],)).batch(3)
    totals = {"a": tf.constant(100.0, tf.float64), "b": tf.zeros([], tf.float64)}
    outcomes = []
    for batch in strategy.experimental_distribute_dataset(numbers):
        totals, good, metrics = run(batch, totals, tf.constant(1))
        outcomes.append((bool(good[0]), float(metrics["c"][0])))
    assert {key: float(value) for key, value in totals.items()} == {"a": 121.0, "b": 42.0}
    assert outcomes[:2] == [(True, 6.0), (True, 15.0)] and outcomes[2][0] is False
    assert run.experimental_get_tracing_count() == 1


def test_totals_are_exact_after_many_steps(strategies):
    metrics = {"a": tf.constant(7.1), "large": tf.constant(3e38)}
    run = make_train_function(strategies[1], reducing(lambda x: metrics), 1)
    steps = 1000
    # As after 94,000 steps, where float32 would have lost three digits.
    totals = {name: 94_000 * tf.cast(value, tf.float64) for name, value in metrics.items()}
    after, good, _ = run((tf.zeros([steps, 1]),), totals, tf.constant(steps))
    assert good.numpy().all()
    for name, value in metrics.items():
        assert float(after[name] - totals[name]) / steps == pytest.approx(float(value), rel=1e-6)


def test_requests_are_returned_with_the_metrics(strategies):
    run = make_train_function(strategies[3], reducing(lambda x: {"loss": tf.reduce_sum(x)}), 3)
    batch = strategies[3].experimental_distribute_values_from_function(lambda context: tf.ones([1, 1]))
    _, _, metrics = run(
        (batch,), {"loss": tf.constant(0.0, tf.float64)}, tf.constant(1), requests={"stop": tf.constant(1.0)}
    )
    assert metrics["stop"].numpy() > 0 and metrics["loss"].numpy() == 3


def traced(strategy, update, steps=2):
    """Return the nodes of the loop body of a train function with a variable on each replica."""
    with strategy.scope():
        weight = tf.Variable(tf.ones([3]))

    def on_replica(batch, number, rates, requests):
        loss = tf.reduce_sum(batch[0] * tf.convert_to_tensor(weight))
        metrics, gradients = reduce_dict({"loss": loss, "other": loss}, ([loss * weight], [loss]))
        finite = all_finite(metrics)
        if update:
            tf.raw_ops.AssignSubVariableOp(resource=weight.handle, value=tf.where(finite, gradients[0][0], 0.0))
        return metrics, finite

    run = make_train_function(strategy, on_replica, 1)
    batch = strategy.experimental_distribute_values_from_function(lambda _: tf.ones([steps, 3]))
    totals, rates = {"loss": tf.zeros([], tf.float64)}, tf.ones([steps, 2])
    function = run.get_concrete_function((batch,), totals, tf.constant(steps), tf.constant(0), rates)
    functions = {part.signature.name: part for part in function.graph.as_graph_def().library.function}
    loops = [node for node in function.graph.as_graph_def().node if node.op == "While"]
    assert len(loops) == 1
    return functions[loops[0].attr["body"].func.name].node_def


@pytest.mark.parametrize("update", [True, False])
def test_nothing_of_the_loop_is_placed_on_another_device(strategies, update):
    assert len(strategies) == 3  # there are further logical devices
    nodes = traced(tf.distribute.MirroredStrategy(["CPU:1"]), update)
    assert {node.device.rpartition("/")[2] for node in nodes if node.device} == {"device:CPU:1"}


@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_step_has_one_collective_per_replica(replicas, update):
    # With the collectives of GPUs, which are only traced here.
    nodes = traced(tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)]), update)
    assert [node.op for node in nodes].count("CollectiveReduceV2") == (replicas if replicas > 1 else 0)
