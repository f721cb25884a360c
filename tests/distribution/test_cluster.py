"""Reading the workers from TF_CONFIG and from the variables of a Slurm job step."""

import json

import pytest

from cyclegan.distribution.cluster import Cluster, read_cluster
from cyclegan.errors import UserError

# Task 3 of five: two tasks each on n9 and n10, one on gpu7.
STEP = {
    "SLURM_JOB_ID": "1234567",
    "SLURM_STEP_NODELIST": "n[9-10],gpu7",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURMD_NODENAME": "n10",
}


def tf_config(addresses, task):
    return {"TF_CONFIG": json.dumps({"cluster": addresses, "task": task})}


def worker(index, *addresses):
    return tf_config({"worker": addresses}, {"type": "worker", "index": index})


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"TF_CONFIG": "{}"},
        tf_config({"chief": ["a:1"]}, {"type": "chief", "index": 0}),
        {**STEP, "SLURM_PROCID": ""},
        {**STEP, "SLURM_STEP_NUM_TASKS": "1"},
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
    assert read_cluster(tf_config(both, {"type": "worker", "index": 1})) == Cluster(row, 2)
    assert read_cluster({**STEP, **worker(0, "a:1", "b:1")}) == Cluster(("a:1", "b:1"), 0)


@pytest.mark.parametrize(
    "environment, part",
    [
        ({"TF_CONFIG": "{"}, "expected something like"),
        ({"TF_CONFIG": '{"cluster": {"worker": "a:1"}}'}, 'address "a": expected "host:port"'),
        (tf_config({"worker": ["a:1"], "ps": ["b:1"]}, None), "type ps: expected chief or worker"),
        (tf_config({"worker": ["a:1", "b:1"]}, None), "task {}: expected the type and index .*: worker 0, worker 1"),
        (worker(2, "a:1", "b:1"), '"index": 2}: expected the type and index'),
        (worker(0, "a", "b:1"), 'address "a": expected "host:port"'),
        (worker(0, "::1:1", "b:1"), 'address "::1:1".*IPv6'),
        (worker(0, "a:65536", "b:1"), 'address "a:65536".*from 1 to 65535'),
    ],
)
def test_mistakes_in_tf_config_are_named(environment, part):
    with pytest.raises(UserError, match=f"^TF_CONFIG.*{part}") as error:
        read_cluster(environment)
    assert "\n" not in str(error.value)


def test_addresses_of_five_tasks_of_slurm():
    row = ("n9:24567", "n9:24568", "n10:24567", "n10:24568", "gpu7:24567")
    for index, (host, local) in enumerate([("n9", 0), ("n9", 1), ("n10", 0), ("n10", 1), ("gpu7", 0)]):
        own = {"SLURM_PROCID": str(index), "SLURM_LOCALID": str(local), "SLURMD_NODENAME": host}
        assert read_cluster({**STEP, **own}) == Cluster(row, index)
        assert read_cluster({**STEP, **own}, port=5000).addresses[3:] == ("n10:5001", "gpu7:5000")


def test_leading_zeros_of_hosts_are_kept():
    nodes = {"SLURM_STEP_NODELIST": "n[08-10]", "SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_STEP_NUM_TASKS": "3"}
    assert read_cluster({"SLURM_PROCID": "0", **nodes}).addresses == ("n08:20000", "n09:20000", "n10:20000")


def test_ports_of_slurm_tasks_end_at_65535():
    assert read_cluster(STEP, port=65534).addresses[:2] == ("n9:65534", "n9:65535")
    with pytest.raises(UserError, match="--port 65535: the tasks of a node take the ports 65535 to 65536"):
        read_cluster(STEP, port=65535)


@pytest.mark.parametrize(
    "change, part",
    [
        ({"SLURM_PROCID": "2"}, "task 2 has SLURM_LOCALID=1: expected 0"),
        ({"SLURMD_NODENAME": "n9"}, "task 3 has SLURMD_NODENAME=n9: expected n10.*srun --distribution=block"),
        ({"SLURM_STEP_NUM_TASKS": "four"}, "SLURM_STEP_NUM_TASKS=four: expected a number"),
        ({"SLURM_STEP_NUM_TASKS": "6"}, "task 3 of 6, but 5 tasks on n9, n10, gpu7: expected the variables of one job"),
        ({"SLURM_STEP_NODELIST": "n[9-10"}, r"SLURM_STEP_NODELIST=n\[9-10 or.*: expected lists like .* TF_CONFIG"),
        ({"SLURM_STEP_TASKS_PER_NODE": ""}, "SLURM_STEP_TASKS_PER_NODE=: expected lists like"),
    ],
)
def test_mistakes_in_slurm_variables_are_named(change, part):
    with pytest.raises(UserError, match=part) as error:
        read_cluster({**STEP, **change})
    assert "\n" not in str(error.value)
