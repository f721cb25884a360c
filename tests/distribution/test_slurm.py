import json
import pathlib
import subprocess
import sys

import pytest

from cyclegan.distribution import slurm
from cyclegan.distribution.cluster import Cluster, read_cluster
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


def test_addresses_of_five_tasks():
    row = ("n9:24567", "n9:24568", "n10:24567", "n10:24568", "gpu7:24567")
    places = [("n9", 0, 0), ("n9", 0, 1), ("n10", 1, 0), ("n10", 1, 1), ("gpu7", 2, 0)]
    for index, (host, node, place) in enumerate(places):
        own = {"SLURM_PROCID": index, "SLURM_NODEID": node, "SLURM_LOCALID": place, "SLURMD_NODENAME": host}
        environment = {**STEP, **{key: str(value) for key, value in own.items()}}
        assert read_cluster(environment) == Cluster(row, index)
        assert read_cluster(environment, port=5000).addresses[3:] == ("n10:5001", "gpu7:5000")
    assert read_cluster({key: STEP[key] for key in STEP if key not in ("SLURM_NODEID", "SLURMD_NODENAME")}).index == 3


def test_leading_zeros_of_hosts_are_kept():
    nodes = {"SLURM_STEP_NODELIST": "n[08-10]", "SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_STEP_NUM_TASKS": "3"}
    read = read_cluster({"SLURM_PROCID": "0", **nodes})
    assert read.addresses == ("n08:20000", "n09:20000", "n10:20000") and read.index == 0


def test_ports_end_at_65535():
    assert read_cluster(STEP, port=65534).addresses[:2] == ("n9:65534", "n9:65535")
    for port in (0, -1, 65535, 65536):
        with pytest.raises(UserError, match=f"--port {port}: the tasks of a node take the ports {port} to {port + 1}"):
            read_cluster(STEP, port=port)


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
            "task 3 of 6, but 5 tasks on n9, n10, gpu7: expected the variables of one job step",
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
def test_mistakes_in_variables_are_named(change, part):
    with pytest.raises(UserError, match=part) as error:
        read_cluster({**STEP, **change})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text, hosts",
    [
        ("gpu7", ["gpu7"]),
        ("n[9-11],gpu7", ["n9", "n10", "n11", "gpu7"]),
        ("n[1,3-4],o[08-10]", ["n1", "n3", "n4", "o08", "o09", "o10"]),
        ("node-a.example[1]", ["node-a.example1"]),
    ],
)
def test_expand_hosts(text, hosts):
    assert list(slurm.expand_hosts(text)) == hosts


@pytest.mark.parametrize("text", ["n1,,n2", "n1,", "n[1-2", "n]", "n[a]", "n[1-2]x", "r[1-2]n[1-2]", "n[1-]"])
def test_malformed_lists_of_hosts_are_refused(text):
    with pytest.raises(ValueError):
        list(slurm.expand_hosts(text))


def test_slurm_is_read_without_tensorflow():
    code = """
import json, sys
from cyclegan.distribution.cluster import read_cluster
read_cluster(json.loads(sys.argv[1]))
sys.exit("tensorflow" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, json.dumps(STEP)], cwd=ROOT, check=True, timeout=60)
