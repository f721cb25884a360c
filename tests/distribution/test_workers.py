"""Workers as processes of their own on 127.0.0.1, with a tiny step (see worker.py): how they meet, agree and miss each other."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from cyclegan.config import Config
from cyclegan.distribution import cluster, workers
from cyclegan.errors import UserError
from tests.distribution.worker import first_moments

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 240  # no test waits longer; the machine may be busy


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def start(what, index, ports, **environment):
    """Starts a worker of those on some ports."""
    tf_config = {
        "cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]},
        "task": {"type": "worker", "index": index},
    }
    return subprocess.Popen(
        [sys.executable, HERE / "worker.py", what],
        env={**os.environ, "TF_CONFIG": json.dumps(tf_config), "PYTHONPATH": str(HERE.parents[1]), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcomes(processes):
    """(exit code, what it printed, what it complained of) of each; none is left."""
    try:
        deadline = time.monotonic() + SECONDS
        found = [(*each.communicate(timeout=deadline - time.monotonic()), each.returncode) for each in processes]
        return [(code, out, complaints) for out, complaints, code in found]
    finally:
        for each in processes:
            if each.poll() is None:
                each.kill()
                each.communicate()


def together(what, count, **environment):
    ports = free_ports(count)
    return outcomes([start(what, index, ports, **environment) for index in range(count)]), ports


def test_they_share_the_pictures_and_have_the_same_sums():
    found, _ = together("steps", 2)
    assert [code for code, *_ in found] == [0, 0], found
    first, second = (json.loads(out) for _, out, _ in found)
    values = np.arange(12 * 16 * 16 * 3).reshape(12, 16, 16, 3) % 251
    for each in (first, second):
        assert each["replicas"] == 2
        np.testing.assert_allclose(each["totals"]["mean"], 12 * values.mean(), rtol=1e-6)
        np.testing.assert_allclose(each["totals"]["samples"], 12.0)
        np.testing.assert_allclose(each["weight"], values.mean(), rtol=1e-6)  # it began at the chief's 0
        np.testing.assert_allclose(
            each["pool"], values[:4].mean(axis=(1, 2, 3)), rtol=1e-6
        )  # in the order of the batch
        assert each["stop"] == [0, 1, 0]  # what one worker wishes for is seen by both, at the same step
        assert each["exchanged"] == [[0, 10**15], [1, 10**15 + 1]]
        assert each["agreed"] == [True, False, 7]
    # Pairs 0, 1, 4, 5, 8, 9 are one worker's, and what comes after the end is the beginning of the next epoch.
    assert {0, 1, 4, 5, 8, 9} <= set(first["read"]) and {2, 3, 6, 7, 10, 11} <= set(second["read"])
    assert not set(first["read"]) & set(second["read"])


def test_they_compare_what_they_were_given():
    found, ports = together("differ", 2)
    assert [code for code, *_ in found] == [2, 2], found
    for index, ((_, _, complaints), lr) in enumerate(zip(found, ("0.1", "0.2"))):
        differs = f"worker 1 (127.0.0.1:{ports[1]}) differs from the chief in lr ({lr} at worker {index})"
        assert complaints.startswith(
            f"worker {index}: {differs}: expected"
        )  # and no warning of a function that is traced again


@pytest.mark.slow
def test_the_gradients_of_three_workers_are_those_of_three_devices(strategies):
    found, _ = together("gradients", 3)
    assert [code for code, *_ in found] == [0, 0, 0], found
    expected = first_moments(strategies[3])
    for _, out, _ in found:
        np.testing.assert_allclose(json.loads(out), expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("how", "who", "count"),
    [("SIGKILL", 2, 3), ("SIGKILL", 0, 2), ("SIGSTOP", 1, 2), ("error", 1, 2)],
)
def test_one_that_is_gone_is_noticed_by_the_others(how, who, count):
    ports = free_ports(count)
    processes = [start("lose", index, ports, HOW=how, WHO=str(who)) for index in range(count)]
    gone = processes[who]
    others = [each for each in processes if each is not gone]
    try:
        assert gone.stdout.readline() == "gone\n", gone.communicate()
        began = time.monotonic()
        found = outcomes(others)
        assert time.monotonic() - began < 120  # TensorFlow misses a silent one after 10 s; the machine may be busy
        for code, _, complaints in found:
            assert code == 1, complaints
            assert "does not answer any more, so this one stops" in complaints
            assert "they resume from the last checkpoint" in complaints
        assert any(f"worker {who} (127.0.0.1:{ports[who]}) does not answer" in complaints for *_, complaints in found)
        if how == "error":
            assert gone.wait(SECONDS) == 2
            assert "worker 1: this worker has a problem of its own" in gone.stderr.read()
    finally:
        gone.kill()
        gone.communicate()


def test_one_that_never_comes_is_named_with_the_time_waited():
    ports = free_ports(2)
    ((code, _, complaints),) = outcomes([start("steps", 0, ports, START_TIMEOUT="1")])
    assert code == 2
    assert f"worker 0 (127.0.0.1:{ports[0]}) waited for 1 s (--start_timeout) and could not reach" in complaints
    assert f"could not reach 127.0.0.1:{ports[1]}: expected a worker" in complaints


@pytest.mark.parametrize("who", [0, 1])
def test_one_that_goes_away_while_tensorflow_starts_does_not_hold_the_others_for_ever(who):
    ports = free_ports(2)
    gone, other = (start("vanish", index, ports, WHO=str(who), START_TIMEOUT="20") for index in (who, 1 - who))
    (_, _, _), (code, _, complaints) = outcomes([gone, other])
    assert code == 1, complaints
    assert f"worker {1 - who} (127.0.0.1:{ports[1 - who]}) has met the others, but TensorFlow's start" in complaints
    assert "took more than 20 s (--start_timeout)" in complaints


def test_a_worker_without_a_gpu_is_one_replica(monkeypatch):
    addresses = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(addresses))
    with pytest.raises(UserError, match="--devices 2: a worker without a GPU is one replica; expected 1"):
        workers.start(Config.from_settings(devices=2))


def test_workers_have_to_be_named(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(UserError, match="--strategy multiworker: neither TF_CONFIG nor Slurm's variables name more"):
        workers.start(Config.from_settings(strategy="multiworker"))
    monkeypatch.setenv("TF_CONFIG", "nonsense")  # which a strategy of one machine has no use for
    team = workers.start(Config.from_settings(strategy="mirrored"))
    assert (team.count, team.index, team.is_chief, team.shares()) == (1, 0, True, 1)


def test_a_single_process_agrees_with_itself():
    alone = workers.Workers()
    assert alone.exchange([3, 4]).tolist() == [[3, 4]]
    assert alone.all(True) and not alone.all(0) and alone.of_chief(5) == 5
    alone.compare({"lr": 0.1})
    with alone.chief_first():
        pass


def test_speed_is_shared_by_the_workers_of_one_machine():
    addresses = ("a:1", "a:2", "b:1")
    assert workers.Workers(None, cluster.Cluster(addresses, 1)).shares() == 2
