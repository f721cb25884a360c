import os
import stat

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.distribution import collectives
from cyclegan.distribution.strategy import make_strategy, unseen_gpus
from cyclegan.errors import UserError


def test_replicas_are_as_many_as_asked_for(strategies):
    assert {n: strategy.num_replicas_in_sync for n, strategy in strategies.items()} == {1: 1, 2: 2, 3: 3}
    assert all(isinstance(strategy, tf.distribute.MirroredStrategy) for strategy in strategies.values())
    assert make_strategy().num_replicas_in_sync == 1


def test_more_devices_than_were_started_are_refused():
    with pytest.raises(UserError, match="--devices 4: TensorFlow has started with 3 CPU devices"):
        make_strategy(4)


def test_thousands_of_logical_devices_are_refused():
    with pytest.raises(UserError, match="--devices 100000: without a GPU, expected at most 64 logical CPU devices"):
        make_strategy(100000)


def test_more_gpus_than_there_are_are_refused(monkeypatch):
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: ["gpu 0", "gpu 1"] if kind == "GPU" else ["cpu"]
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with pytest.raises(UserError, match=r"--devices 3: TensorFlow sees 2 GPUs \(CUDA_VISIBLE_DEVICES=3,5\)"):
        make_strategy(3)


def test_the_first_gpus_are_used(monkeypatch):
    calls = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["gpu 0", "gpu 1", "gpu 2"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda devices, kind: calls.append((devices, kind)))
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, on: calls.append((gpu, on)))
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda devices: devices)
    assert make_strategy(2) == ["GPU:0", "GPU:1"]
    assert calls == [(["gpu 0", "gpu 1"], "GPU"), ("gpu 0", True), ("gpu 1", True)]
    assert make_strategy() == ["GPU:0", "GPU:1", "GPU:2"]


@pytest.mark.parametrize("replicas", [1, 3])
def test_reduce_dict_sums_into_a_new_dict(strategies, replicas):
    strategy = strategies[replicas]
    per_replica = {"a": strategy.run(lambda: tf.distribute.get_replica_context().replica_id_in_sync_group + 1)}
    before = dict(per_replica)
    reduced = collectives.reduce_dict(strategy, per_replica)
    assert int(reduced["a"]) == {1: 1, 3: 6}[replicas]
    assert per_replica == before and reduced is not per_replica


@pytest.mark.parametrize("free", [(0, 1, 2), (2,), (1,), (1, 2), ()], ids=str)
def test_gradients_are_summed_from_the_first_replica_to_the_last(strategies, free):
    """In float32 the order shows: 1e8 + 3 + 3 is 1e8 from left to right, and 1e8 + 8 from right to left.

    TensorFlow makes one operation of several additions, which begins with a number whose memory nothing else wants: `free`.
    """
    strategy, values = strategies[3], tf.constant([1e8, 3.0, 3.0])

    @tf.function(autograph=False)
    def total(number):
        def on_replica():
            index = tf.distribute.get_replica_context().replica_id_in_sync_group
            own = number * tf.fill([1000], values[index])
            return collectives._sum_over_replicas([own])[0], own

        sums, own = strategy.run(on_replica)
        own = strategy.experimental_local_results(own)
        return strategy.experimental_local_results(sums), [own[i] for i in range(3) if i not in free]

    for on_replica in total(tf.constant(1.0))[0]:
        np.testing.assert_array_equal(on_replica, np.float32(1e8))


def test_accumulate_adds_the_sums_over_the_samples_of_good_steps(strategies):
    strategy = strategies[3]

    def step(x):
        return {"a": tf.reduce_sum(x) / 3, "b": 2 * tf.reduce_sum(x) / 3, "c": tf.reduce_sum(x)}, None, ()

    run = collectives.make_train_function(strategy, step, 3)
    numbers = tf.data.Dataset.from_tensor_slices(([[1.0], [2], [3], [4], [5], [6], [7], [8], [float("nan")]],)).batch(3)
    totals = {"a": tf.constant(100.0, tf.float64), "b": tf.zeros([], tf.float64)}
    outcomes = []
    for batch in strategy.experimental_distribute_dataset(numbers):
        totals, good, figures = run(batch, totals, tf.constant(1))
        outcomes.append((bool(good[0]), float(figures["c"][0])))
    assert {key: float(value) for key, value in totals.items()} == {"a": 121.0, "b": 42.0}
    assert outcomes[:2] == [(True, 6.0), (True, 15.0)] and outcomes[2][0] is False
    assert run.experimental_get_tracing_count() == 1


def test_totals_are_exact_in_an_epoch_of_many_steps(strategies):
    figures = {"a": tf.constant(7.1), "large": tf.constant(3e38)}
    run = collectives.make_train_function(strategies[1], lambda x: (figures, None, ()), 1)
    steps = 1000
    # After as many steps that float32 would have lost three digits.
    totals = {name: 94_000 * tf.cast(value, tf.float64) for name, value in figures.items()}
    after, good, _ = run((tf.zeros([steps, 1]),), totals, tf.constant(steps))
    assert good.numpy().all()
    for name, value in figures.items():
        assert float(after[name] - totals[name]) / steps == pytest.approx(float(value), rel=1e-6)


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A function that puts an nvidia-smi with this answer first on the PATH."""

    def install(script):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    return install


def test_gpus_that_tensorflow_cannot_see_are_told_with_the_command_that_mends_it(nvidia_smi):
    nvidia_smi('echo "GPU 0: NVIDIA A100 (UUID: GPU-1)"; echo "GPU 1: NVIDIA A100 (UUID: GPU-2)"')
    text = unseen_gpus("requirements-gpu.txt")
    assert "2 GPU(s) (NVIDIA A100)" in text and "-m pip install -r requirements-gpu.txt" in text


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_gpus_that_were_hidden_on_purpose_are_no_news(nvidia_smi, monkeypatch, hidden):
    nvidia_smi('echo "GPU 0: NVIDIA A100 (UUID: GPU-1)"')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert unseen_gpus("requirements-gpu.txt") is None


@pytest.mark.parametrize("script", ["echo 'No devices were found'", "echo 'GPU 0: half'; exit 9"])
def test_an_nvidia_smi_without_gpus_is_no_news(nvidia_smi, script):
    nvidia_smi(script)
    assert unseen_gpus("requirements-gpu.txt") is None


def test_one_device_is_a_strategy_of_its_own():
    strategy = make_strategy(kind="one")
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy) and strategy.num_replicas_in_sync == 1
    assert make_strategy(1, "one").num_replicas_in_sync == 1
    with pytest.raises(UserError, match="--devices 2: expected no such flag, or 1, with --strategy one"):
        make_strategy(2, "one")


def test_a_tpu_that_is_not_there_is_said(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(UserError, match=r"--strategy tpu: no TPU local \(.+\): expected a TensorFlow with libtpu"):
        make_strategy(kind="tpu")
    with pytest.raises(UserError, match="--devices 8: expected no such flag: all cores are used"):
        make_strategy(8, "tpu")


@pytest.mark.parametrize("replicas", [1, 3])
def test_gather_gives_the_rows_of_all_replicas_in_their_order(strategies, replicas):
    def gathered():
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        rows = 10 * number + tf.range(2.0)
        return collectives.gather((tf.reshape(rows, [2, 1, 1]) * tf.ones([2, 3, 1]), rows))

    strategy = strategies[replicas]
    found = strategy.run(tf.function(gathered))
    expected = [10.0 * number + row for number in range(replicas) for row in (0, 1)]
    for pictures, rows in zip(*map(strategy.experimental_local_results, found)):
        assert rows.numpy().tolist() == expected
        np.testing.assert_array_equal(pictures[:, :, 0], np.transpose([expected] * 3))


def test_gather_leaves_what_is_not_finite_in_its_place(strategies):
    def gathered():
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        return collectives.gather((tf.stack([[1.0 / number, number]]),))

    (found,) = strategies[3].run(tf.function(gathered))
    for rows in strategies[3].experimental_local_results(found):
        assert rows.numpy().tolist() == [[np.inf, 0], [1, 1], [0.5, 2]]


def test_wishes_come_back_with_the_figures(strategies):
    run = collectives.make_train_function(strategies[3], lambda x: ({"loss": tf.reduce_sum(x)}, None, ()), 3)
    batch = strategies[3].experimental_distribute_values_from_function(lambda context: tf.ones([1, 1]))
    _, _, figures = run(
        (batch,), {"loss": tf.constant(0.0, tf.float64)}, tf.constant(1), wishes={"stop": tf.constant(1.0)}
    )
    assert figures["stop"].numpy() > 0 and figures["loss"].numpy() == 3
