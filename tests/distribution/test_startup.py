"""Start of several workers, and the errors about missing workers."""

import json

import pytest

from cyclegan.config.sections import DistributionConfig
from cyclegan.distribution import rendezvous
from cyclegan.distribution.startup import start_workers
from cyclegan.errors import UserError
from tests.distribution.local_workers import free_ports, outcomes, start


def test_worker_that_never_comes_is_reported():
    ports = free_ports(2)
    ((code, _, errors),) = outcomes([start("steps", 0, ports, START_TIMEOUT="1")])
    assert code == 2
    assert f"worker 0 (127.0.0.1:{ports[0]}) waited for 1 s (--start_timeout) and could not reach" in errors
    assert f"could not reach 127.0.0.1:{ports[1]}: expected a worker" in errors


@pytest.mark.slow
def test_worker_lost_while_tensorflow_starts():
    waiting = []
    for who in (0, 1):
        ports = free_ports(2)
        gone, other = (start("vanish", index, ports, WHO=str(who), START_TIMEOUT="20") for index in (who, 1 - who))
        waiting.append((1 - who, ports, gone, other))
    for left, ports, gone, other in waiting:
        (_, _, _), (code, _, errors) = outcomes([gone, other])
        assert code == 1, errors
        assert f"worker {left} (127.0.0.1:{ports[left]}) has met the others, but TensorFlow's start" in errors
        assert "took more than 20 s (--start_timeout)" in errors


def test_worker_without_gpu_refuses_several_devices(monkeypatch):
    addresses = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(addresses))
    with pytest.raises(UserError, match="--devices 2: a worker without a GPU is one replica; expected 1"):
        start_workers(DistributionConfig(devices=2))


def test_multiworker_needs_several_workers(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(UserError, match="--strategy multiworker: neither TF_CONFIG nor Slurm's variables name several"):
        start_workers(DistributionConfig(strategy="multiworker"))
    monkeypatch.setenv("TF_CONFIG", "nonsense")  # a strategy of one machine ignores it
    workers = start_workers(DistributionConfig(strategy="mirrored"))
    assert (workers.count, workers.index, workers.is_chief, workers.speedup()) == (1, 0, True, 1)


def test_secret_of_the_file_reaches_the_rendezvous(monkeypatch, tmp_path):
    class Met(Exception):
        pass

    def meet(cluster, timeout, configuration, secret):
        raise Met(secret)

    monkeypatch.setattr(rendezvous, "meet", meet)
    addresses = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(addresses))
    (tmp_path / "secret").write_text("0123456789abcdef")
    for given, secret in ((str(tmp_path / "secret"), b"0123456789abcdef"), (None, b"")):
        with pytest.raises(Met) as met:
            start_workers(DistributionConfig(rendezvous_secret_file=given))
        assert met.value.args == (secret,)


@pytest.mark.parametrize("strategy", ["auto", "mirrored", "one"])
@pytest.mark.parametrize(
    "settings, text",
    [
        ({"port": 5000}, "--port 5000 has no effect: .*; expected it with several tasks of .* Drop --port"),
        ({"start_timeout": 60}, "--start_timeout 60: has no effect here, because it needs several workers"),
        ({"rendezvous_secret_file": "s"}, "--rendezvous_secret_file s: has no effect here, because it needs several"),
    ],
)
def test_flags_of_several_workers_are_refused_without_them(settings, text, strategy, monkeypatch):
    for name in ("TF_CONFIG", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    if strategy != "auto":  # which would use it
        monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"index": 0}}')
    with pytest.raises(UserError, match=text):
        start_workers(DistributionConfig(**settings, strategy=strategy))
