import numpy as np
import pytest
import tensorflow as tf

from cyclegan.training.optimizers import Adam, LossScale

SHAPES = [(3, 4), (5,), ()]
RATES = [(1e-3, 0.5, 0.999, 1e-7), (0.2, 0.9, 0.99, 1e-3)]  # learning rate, betas, epsilon
RATE = RATES[0][0]
FINITE, NOT_FINITE = tf.constant(True), tf.constant(False)


def numbers(seed, size=1.0):
    """Return float32 arrays of `SHAPES`."""
    rng = np.random.default_rng(seed)
    return [np.asarray(size * rng.normal(size=shape), np.float32) for shape in SHAPES]


def several_gradients():
    """Return the gradients of six steps, of sizes from 1e-4 to 10."""
    return [numbers(seed, 10.0 ** (seed - 5)) for seed in range(1, 7)]


def made(rates=RATES[0], seed=0):
    """Return an Adam and its variables."""
    variables = [tf.Variable(value) for value in numbers(seed)]
    return Adam(variables, *rates[1:]), variables


def copies(strategy, *variables):
    """Return the values of each variable on each replica, [replica][variable]."""
    return list(zip(*([copy.numpy() for copy in strategy.experimental_local_results(v)] for v in variables)))


def on_each_replica(strategy, call):
    """Return the compiled function that runs `call` with the same arguments on every replica."""
    return tf.function(lambda *arguments: strategy.run(call, arguments), autograph=False)


@pytest.mark.parametrize("rates", RATES)
def test_adam_matches_keras(rates):
    adam, variables = made(rates)
    kerases = [tf.Variable(v) for v in variables]
    other = tf.keras.optimizers.Adam(*rates)
    for gradients in several_gradients():
        adam.apply([tf.constant(g) for g in gradients], variables, rates[0], FINITE)
        other.apply_gradients(zip(map(tf.constant, gradients), kerases))
        for one, same in zip(variables, kerases):
            np.testing.assert_allclose(one.numpy(), same.numpy(), rtol=1e-6, atol=1e-5 * rates[0])


def test_first_update_is_pytorchs_with_a_smaller_epsilon():
    """PyTorch corrects both means for bias before it adds epsilon, so they are g and g^2 in the first update."""
    learning_rate, beta_1, beta_2, epsilon = RATES[1]
    adam, variables = made((learning_rate, beta_1, beta_2, epsilon * (1 - beta_2) ** 0.5))
    gradients = numbers(1, epsilon)
    adam.apply([tf.constant(g) for g in gradients], variables, learning_rate, FINITE)
    for variable, before, g in zip(variables, numbers(0), gradients):
        expected = before - learning_rate * g / (np.abs(g) + epsilon)
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6, atol=2e-4 * learning_rate)


@pytest.mark.parametrize("before", [0, 2], ids=["as the first step", "after two good ones"])
@pytest.mark.parametrize("value", [1.0, np.nan, np.inf, -np.inf, 3e38])
def test_nonfinite_step_changes_nothing(before, value):
    adam, variables = made()
    kept = [*variables, *adam.state.variables]
    for gradients in several_gradients()[:before]:
        adam.apply([tf.constant(g) for g in gradients], variables, RATE, FINITE)
    was = [v.numpy().tobytes() for v in kept]
    adam.apply([tf.fill(shape, np.float32(value)) for shape in SHAPES], variables, RATE, NOT_FINITE)
    assert [v.numpy().tobytes() for v in kept] == was


@pytest.mark.parametrize("replicas", [2, 3])
def test_replicas_match_one_process(strategies, replicas):
    strategy = strategies[replicas]
    alone, variables = made()
    with strategy.scope():
        adam, mirrored = made()
    step = on_each_replica(strategy, lambda *arguments: adam.apply(arguments[1:], mirrored, RATE, arguments[0]))
    for number, gradients in enumerate(several_gradients()):
        good = tf.constant(number != 2)
        alone.apply([tf.constant(g) for g in gradients], variables, RATE, good)
        step(good, *map(tf.constant, gradients))
    expected = [v.numpy() for v in (*variables, *alone.state.variables)]
    values = copies(strategy, *mirrored, *adam.state.variables)
    assert len(values) == replicas and int(adam.iterations.numpy()) == 5
    for replica in values:
        for value, first, same in zip(replica, values[0], expected):
            np.testing.assert_array_equal(value, first)
            np.testing.assert_allclose(value, same, rtol=1e-6)


def test_loss_scale_halves_and_doubles_within_its_limits(strategies):
    strategy = strategies[3]
    with strategy.scope():
        loss_scale = LossScale(initial=4.0, patience=3)
    update = on_each_replica(strategy, loss_scale.update)
    scales, finite_in_a_row = [4, 4, 8, 8, 8, 4, 4, 2, 1, 1, 1, 1, 2], [1, 2, 0, 1, 2, 0, 1, 0, 0, 0, 1, 2, 0]
    for step, (scale, in_a_row) in enumerate(zip(scales, finite_in_a_row)):
        update(tf.constant(step not in (5, 7, 8, 9)))
        assert copies(strategy, loss_scale.scale, loss_scale.good_steps) == [(scale, in_a_row)] * 3
    assert update.experimental_get_tracing_count() == 1
    loss_scale = LossScale(initial=2.0**23, patience=1)
    for _ in range(3):
        loss_scale.update(FINITE)
    assert float(loss_scale.scale.numpy()) == 2.0**24
    loss_scale.update(NOT_FINITE)
    assert float(loss_scale.scale.numpy()) == 2.0**23
