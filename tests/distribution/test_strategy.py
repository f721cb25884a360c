import pytest
import tensorflow as tf

from cyclegan.distribution.strategy import make_strategy
from cyclegan.errors import UserError


def test_strategies_have_the_requested_replicas(strategies):
    assert {n: strategy.num_replicas_in_sync for n, strategy in strategies.items()} == {1: 1, 2: 2, 3: 3}
    assert all(isinstance(strategy, tf.distribute.MirroredStrategy) for strategy in strategies.values())
    assert make_strategy().num_replicas_in_sync == 1


def test_more_devices_than_started_are_refused():
    with pytest.raises(UserError, match="--devices 9: TensorFlow has started with 8 CPU devices"):
        make_strategy(9)


def test_thousands_of_logical_devices_are_refused():
    with pytest.raises(UserError, match="--devices 100000: without a GPU, expected at most 64 logical CPU devices"):
        make_strategy(100000)


def test_strategy_one_has_one_device():
    strategy = make_strategy(kind="one")
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy) and strategy.num_replicas_in_sync == 1
    assert make_strategy(1, "one").num_replicas_in_sync == 1
    with pytest.raises(UserError, match="--devices 2: expected no such flag, or 1, with --strategy one"):
        make_strategy(2, "one")


def test_missing_tpu_is_reported(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(UserError, match=r"--strategy tpu: no TPU local \(.+\): expected a TensorFlow with libtpu"):
        make_strategy(kind="tpu")
    with pytest.raises(UserError, match="--devices 8: expected no such flag: all cores are used"):
        make_strategy(8, "tpu")
