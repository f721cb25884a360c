import json
import pathlib
import subprocess
import sys

import pytest

from cyclegan.distribution import cluster
from cyclegan.distribution.cluster import Cluster
from cyclegan.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Task 3 of five: two tasks each on n9 and n10, one on gpu7.
STEP = {
    "SLURM_JOB_ID": "1234567",
    "SLURM_STEP_NODELIST": "n[9-10],gpu7",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURMD_NODENAME": "n10",
}


def tf_config(addresses, task):
    return {"TF_CONFIG": json.dumps({"cluster": addresses, "task": task})}


def worker(index, *addresses):
    return tf_config({"worker": addresses}, {"type": "worker", "index": index})


def test_a_cluster_knows_its_chief_and_its_hosts():
    chief, other = (Cluster(("b:1", "a:1", "b:2", "[::1]:3"), index) for index in (0, 2))
    assert chief.is_chief and not other.is_chief
    assert chief.count == 4 and chief.hosts == ("b", "a", "[::1]")


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
def test_nothing_names_more_than_one_worker(environment):
    assert cluster.read(environment) is None


def test_tf_config_by_hand():
    assert cluster.read(worker(1, "n1:2222", "n2:2222")) == Cluster(("n1:2222", "n2:2222"), 1)
    both = {"worker": ["n2:65535", "[fe80::1]:1"], "chief": ["10.0.0.1:2222"]}
    row = ("10.0.0.1:2222", "n2:65535", "[fe80::1]:1")
    assert cluster.read(tf_config(both, {"type": "chief", "index": 0})) == Cluster(row, 0)
    assert cluster.read(tf_config(both, {"type": "worker", "index": 0})) == Cluster(row, 1)
    assert cluster.read(tf_config(both, {"type": "worker", "index": 1})) == Cluster(row, 2)
    assert cluster.read({**STEP, **worker(0, "a:1", "b:1")}) == Cluster(("a:1", "b:1"), 0)


def test_the_environment_is_the_process_s_own_by_default(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", worker(1, "a:1", "b:1")["TF_CONFIG"])
    assert cluster.read() == Cluster(("a:1", "b:1"), 1)


@pytest.mark.parametrize(
    "environment, part",
    [
        ({"TF_CONFIG": "{"}, "not JSON"),
        ({"TF_CONFIG": "[1]"}, r"\[1\]: expected an object"),
        ({"TF_CONFIG": '{"cluster": ["a:1"]}'}, r'cluster \["a:1"\]: expected lists'),
        ({"TF_CONFIG": '{"cluster": {"worker": "a:1"}}'}, "expected lists"),
        (
            tf_config({"worker": ["a:1"], "ps": ["b:1"]}, None),
            "kind ps: expected chief or worker; this program has workers only",
        ),
        (tf_config({"evaluator": ["a:1"], "master": []}, None), "kind evaluator, master"),
        (tf_config({"chief": ["a:1", "b:1"]}, None), "2 chiefs: expected at most one"),
        (tf_config({"worker": ["a:1", "b:1"]}, None), "task null: expected which"),
        (tf_config({"worker": ["a:1", "b:1"]}, "worker"), 'task "worker"'),
        (tf_config({"worker": ["a:1", "b:1"]}, {"type": "chief", "index": 0}), "which of the cluster's"),
        (tf_config({"worker": ["a:1", "b:1"]}, {"type": ["worker"], "index": 0}), "which of the cluster's"),
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
def test_what_is_wrong_in_tf_config_is_named(environment, part):
    with pytest.raises(UserError, match=f"^TF_CONFIG: .*{part}") as error:
        cluster.read(environment)
    assert "\n" not in str(error.value)


def test_slurm_by_hand():
    row = ("n9:24567", "n9:24568", "n10:24567", "n10:24568", "gpu7:24567")
    places = [("n9", 0, 0), ("n9", 0, 1), ("n10", 1, 0), ("n10", 1, 1), ("gpu7", 2, 0)]
    for index, (host, node, place) in enumerate(places):
        own = {"SLURM_PROCID": index, "SLURM_NODEID": node, "SLURM_LOCALID": place, "SLURMD_NODENAME": host}
        environment = {**STEP, **{key: str(value) for key, value in own.items()}}
        assert cluster.read(environment) == Cluster(row, index)
        assert cluster.read(environment, port=5000).addresses[3:] == ("n10:5001", "gpu7:5000")
    assert cluster.read({key: STEP[key] for key in STEP if key not in ("SLURM_NODEID", "SLURMD_NODENAME")}).index == 3


def test_slurm_keeps_leading_zeros_of_names():
    nodes = {"SLURM_STEP_NODELIST": "n[08-10]", "SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_STEP_NUM_TASKS": "3"}
    read = cluster.read({"SLURM_PROCID": "0", **nodes})
    assert read.addresses == ("n08:20000", "n09:20000", "n10:20000") and read.is_chief


def test_the_ports_of_a_node_end_at_the_last_there_is():
    assert cluster.read(STEP, port=65534).addresses[:2] == ("n9:65534", "n9:65535")
    for port in (0, -1, 65535, 65536):
        with pytest.raises(UserError, match=f"--port {port}: the tasks of a node take the ports {port} to {port + 1}"):
            cluster.read(STEP, port=port)


@pytest.mark.parametrize(
    "change, part",
    [
        ({"SLURM_PROCID": "2"}, "task 2 has SLURM_LOCALID=1: expected 0"),
        ({"SLURMD_NODENAME": "n9"}, "task 3 has SLURMD_NODENAME=n9: expected n10.*srun --distribution=block"),
        (
            {"SLURM_NODEID": "0", "SLURMD_NODENAME": "n10"},
            "task 3 has SLURM_NODEID=0: expected 1.*--distribution=block",
        ),
        ({"SLURM_PROCID": "5"}, "task 5 of 5"),
        ({"SLURM_PROCID": "x"}, "SLURM_PROCID=x: expected a number"),
        ({"SLURM_STEP_NUM_TASKS": "four"}, "SLURM_STEP_NUM_TASKS=four: expected a number"),
        (
            {"SLURM_STEP_NUM_TASKS": "6"},
            "task 3 of 6, 5 of them on n9, n10, gpu7: expected the variables of one job step",
        ),
        ({"SLURM_JOB_ID": "-3"}, "SLURM_JOB_ID=-3"),
        (
            {"SLURM_STEP_NODELIST": "r[1-2]n[1-2]"},
            r"SLURM_STEP_NODELIST=r\[1-2\]n\[1-2\]: expected a list like .* TF_CONFIG",
        ),
        ({"SLURM_STEP_NODELIST": ""}, "0 nodes"),
        ({"SLURM_STEP_NODELIST": "n[9-10]"}, "2 nodes, tasks on 3"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2x2,1"}, "SLURM_STEP_TASKS_PER_NODE=2x2,1: expected a list like"),
        ({"SLURM_STEP_TASKS_PER_NODE": ""}, "SLURM_STEP_TASKS_PER_NODE="),
    ],
)
def test_what_is_wrong_in_slurm_s_variables_is_named(change, part):
    with pytest.raises(UserError, match=part) as error:
        cluster.read({**STEP, **change})
    assert "\n" not in str(error.value)


def test_tensorflow_is_imported_for_slurm_only():
    code = (
        "import sys, cyclegan.cluster as c; c.read({'TF_CONFIG': sys.argv[1]}); sys.exit('tensorflow' in sys.modules)"
    )
    config = worker(0, "a:1", "b:1")["TF_CONFIG"]
    subprocess.run([sys.executable, "-c", code, config], cwd=ROOT, check=True, timeout=60)
