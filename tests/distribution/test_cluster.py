import json

import pytest

from cyclegan.distribution.cluster import Cluster, read_cluster
from cyclegan.errors import UserError
from tests.distribution.test_slurm import STEP


def tf_config(addresses, task):
    return {"TF_CONFIG": json.dumps({"cluster": addresses, "task": task})}


def worker(index, *addresses):
    return tf_config({"worker": addresses}, {"type": "worker", "index": index})


def test_hosts_are_unique():
    cluster = Cluster(("b:1", "a:1", "b:2", "[::1]:3"), 2)
    assert cluster.count == 4 and cluster.hosts == ("b", "a", "[::1]")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"TF_CONFIG": ""},
        {"TF_CONFIG": "{}"},
        {"TF_CONFIG": '{"task": {"type": "worker", "index": 0}}'},
        worker(0, "a:1"),
        tf_config({"chief": ["a:1"]}, {"type": "chief", "index": 0}),
        {**STEP, "SLURM_PROCID": ""},
        {**STEP, "SLURM_STEP_NUM_TASKS": "1"},
        {key: value for key, value in STEP.items() if key != "SLURM_STEP_NUM_TASKS"},
        {**STEP, **worker(0, "a:1")},
    ],
)
def test_environment_of_one_process_has_no_cluster(environment):
    assert read_cluster(environment) is None


def test_tf_config_is_parsed():
    assert read_cluster(worker(1, "n1:2222", "n2:2222")) == Cluster(("n1:2222", "n2:2222"), 1)
    both = {"worker": ["n2:65535", "[fe80::1]:1"], "chief": ["10.0.0.1:2222"]}
    row = ("10.0.0.1:2222", "n2:65535", "[fe80::1]:1")
    assert read_cluster(tf_config(both, {"type": "chief", "index": 0})) == Cluster(row, 0)
    assert read_cluster(tf_config(both, {"type": "worker", "index": 0})) == Cluster(row, 1)
    assert read_cluster(tf_config(both, {"type": "worker", "index": 1})) == Cluster(row, 2)
    assert read_cluster({**STEP, **worker(0, "a:1", "b:1")}) == Cluster(("a:1", "b:1"), 0)


def test_environment_of_the_process_is_the_default(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", worker(1, "a:1", "b:1")["TF_CONFIG"])
    assert read_cluster() == Cluster(("a:1", "b:1"), 1)


@pytest.mark.parametrize(
    "environment, part",
    [
        ({"TF_CONFIG": "{"}, "not JSON"),
        ({"TF_CONFIG": "[1]"}, r"\[1\]: expected an object"),
        ({"TF_CONFIG": '{"cluster": ["a:1"]}'}, r'cluster \["a:1"\]: expected lists'),
        ({"TF_CONFIG": '{"cluster": {"worker": "a:1"}}'}, "expected lists"),
        (
            tf_config({"worker": ["a:1"], "ps": ["b:1"]}, None),
            "type ps: expected chief or worker; this program has workers only",
        ),
        (tf_config({"evaluator": ["a:1"], "master": []}, None), "type evaluator, master"),
        (tf_config({"chief": ["a:1", "b:1"]}, None), "2 chiefs: expected at most one"),
        (tf_config({"worker": ["a:1", "b:1"]}, None), "task null: expected the type and index"),
        (tf_config({"worker": ["a:1", "b:1"]}, "worker"), 'task "worker"'),
        (
            tf_config({"worker": ["a:1", "b:1"]}, {"type": "chief", "index": 0}),
            "the type and index of this task in the cluster",
        ),
        (
            tf_config({"worker": ["a:1", "b:1"]}, {"type": ["worker"], "index": 0}),
            "the type and index of this task in the cluster",
        ),
        (worker(2, "a:1", "b:1"), "index 2 of the task: expected a number from 0 to 1, for 2 of worker"),
        (worker(-1, "a:1", "b:1"), "index -1"),
        (worker(True, "a:1", "b:1"), "index true"),
        (worker("1", "a:1", "b:1"), 'index "1"'),
        (worker(None, "a:1", "b:1"), "index null"),
        (worker(0, "a", "b:1"), 'address "a": expected "host:port"'),
        (worker(0, "a:1", "b:"), 'address "b:"'),
        (worker(0, ":1", "b:1"), 'address ":1"'),
        (worker(0, "::1:1", "b:1"), 'address "::1:1".*IPv6'),
        (worker(0, "grpc://a:1", "b:1"), 'address "grpc://a:1"'),
        (worker(0, "a:0", "b:1"), 'address "a:0".*from 1 to 65535'),
        (worker(0, "a:65536", "b:1"), 'address "a:65536"'),
        (worker(0, 5, "b:1"), "address 5"),
        (worker(0, "a:1", "b:1", "a:1"), "a:1 occurs 2 times"),
        (tf_config({"chief": ["a:1"], "worker": ["a:1"]}, {"type": "chief", "index": 0}), "a:1 occurs 2 times"),
    ],
)
def test_mistakes_in_tf_config_are_named(environment, part):
    with pytest.raises(UserError, match=f"^TF_CONFIG: .*{part}") as error:
        read_cluster(environment)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "environment, reason",
    [
        ({}, "this is no Slurm job step of several tasks"),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "1"}, "this is no Slurm job step"),
        (worker(0, "a:1", "b:1"), "TF_CONFIG has the ports of all workers"),
        ({**STEP, **worker(0, "a:1")}, "TF_CONFIG has the ports"),
    ],
)
def test_port_without_slurm_is_refused(environment, reason):
    with pytest.raises(UserError, match=f"^--port 5000 has no effect: {reason}.*; expected it with .* Drop --port"):
        read_cluster(environment, port=5000)
