"""Who trains together: the workers that TF_CONFIG or Slurm name."""

import dataclasses
import inspect
import json
import os
import re

from cyclegan.errors import UserError

ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):([0-9]{1,5})")
KINDS = ("chief", "worker")  # of tasks, in the order of their addresses
PORTS = range(1, 65536)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Several workers that train together.

    Attributes:
        addresses: of all workers, a tuple of "host:port"; the first is the chief's.
        index: the place in it of this worker.
    """

    addresses: tuple
    index: int

    @property
    def count(self):
        """How many workers there are."""
        return len(self.addresses)

    @property
    def is_chief(self):
        """Whether this worker is the one that writes the run's folder."""
        return self.index == 0

    @property
    def hosts(self):
        """The hosts of the addresses, each once, in their order."""
        return tuple(dict.fromkeys(host_of(address) for address in self.addresses))


def host_of(address):
    """ "n1" of "n1:2222", "[::1]" of "[::1]:2222"."""
    return address.rpartition(":")[0]


def read(environment=os.environ, port=None):
    """The `Cluster` that the environment describes, or `None` where it names no more than one worker.

    TF_CONFIG is asked first; where it is not set or empty, Slurm's variables of a job step.

    Args:
        environment: names and values of variables, all text.
        port: the first port of Slurm's tasks on each node; `None` is 20000 + the last four digits of the job's id.

    Raises:
        UserError: what is named can't be, or this worker is not in it.
    """
    if environment.get("TF_CONFIG"):
        return _of_tf_config(environment["TF_CONFIG"])
    several = _number(environment, "SLURM_STEP_NUM_TASKS", 1) > 1
    return _of_slurm(environment, port) if several and environment.get("SLURM_PROCID") else None


def _of_tf_config(text):
    def wrong(received, expected):
        return UserError(f"TF_CONFIG: {received}: expected {expected}")

    try:
        config = json.loads(text)
    except ValueError as error:
        raise wrong(
            f"not JSON ({error})", 'something like {"cluster": {"worker": ["host:port", ...]}, "task": ...}'
        ) from None
    if not isinstance(config, dict):
        raise wrong(text, "an object with the keys cluster and task")
    cluster = config.get("cluster") or {}
    if not isinstance(cluster, dict) or not all(isinstance(row, list) for row in cluster.values()):
        raise wrong(
            f"cluster {json.dumps(cluster)}", 'lists of addresses by kind of task: {"worker": ["host:port", ...]}'
        )
    if unknown := [kind for kind in cluster if kind not in KINDS]:
        raise wrong(f"tasks of the kind {', '.join(unknown)}", "chief or worker; this program has workers only")
    if len(cluster.get("chief", [])) > 1:
        raise wrong(f"{len(cluster['chief'])} chiefs", "at most one; the others are workers")
    addresses = [address for kind in KINDS for address in cluster.get(kind, [])]
    for address in addresses:
        match = ADDRESS.fullmatch(address) if isinstance(address, str) else None
        if not match or int(match[2]) not in PORTS:
            raise wrong(
                f"address {json.dumps(address)}", '"host:port" with a port from 1 to 65535 (IPv6: "[::1]:port")'
            )
        if addresses.count(address) > 1:
            raise wrong(f"{address} occurs {addresses.count(address)} times", "another address for each task")
    if len(addresses) < 2:
        return None

    task = config.get("task")
    if not isinstance(task, dict) or task.get("type") not in list(cluster):
        raise wrong(
            f"task {json.dumps(task)}",
            f'which of the cluster\'s this one is: {{"type": "{list(cluster)[-1]}", "index": 0}}',
        )
    index, there = task.get("index"), len(cluster[task["type"]])
    if type(index) is not int or not 0 <= index < there:
        raise wrong(
            f"index {json.dumps(index)} of the task", f"a number from 0 to {there - 1}, for {there} of {task['type']}"
        )
    return Cluster(tuple(addresses), index + (len(cluster.get("chief", [])) if task["type"] == "worker" else 0))


def _of_slurm(environment, port):
    nodes = _slurm_nodes(environment)
    first = 20000 + _number(environment, "SLURM_JOB_ID", 0) % 10000 if port is None else port
    last = first + max(tasks for _, tasks in nodes) - 1
    if first not in PORTS or last not in PORTS:
        raise UserError(f"--port {first}: the tasks of a node take the ports {first} to {last}: expected 1 to 65535")
    places = [(host, place) for host, tasks in nodes for place in range(tasks)]
    index, count = _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_STEP_NUM_TASKS")
    if len(places) != count or index >= count:
        raise UserError(
            f"Slurm: task {index} of {count}, {len(places)} of them on {', '.join(host for host, _ in nodes)}: expected the"
            " variables of one job step: start all with one srun, or name them with TF_CONFIG"
        )
    host, place = places[index]
    node = [name for name, _ in nodes].index(host)
    for name, expected in (("SLURMD_NODENAME", host), ("SLURM_NODEID", str(node)), ("SLURM_LOCALID", str(place))):
        if environment.get(name, expected) != expected:
            raise UserError(
                f"Slurm: task {index} has {name}={environment[name]}: expected {expected}, with the tasks given out in blocks:"
                " use srun --distribution=block"
            )
    return Cluster(tuple(f"{host}:{first + place}" for host, place in places), index)


def _slurm_nodes(environment):
    """[(host, number of tasks)] of the job step, in Slurm's order."""
    import tensorflow as tf  # takes seconds, and most runs have no Slurm

    # Its parsers only: the resolver itself sorts the hosts as texts (n10 before n9), refuses more tasks on a node than GPUs
    # that it is told of, and reads no environment but the process's.
    slurm = inspect.getmodule(tf.distribute.cluster_resolver.SlurmClusterResolver)
    rows = []
    for name, parse, example in (
        ("SLURM_STEP_NODELIST", slurm.expand_hostlist, "n[1-3],gpu7"),
        ("SLURM_STEP_TASKS_PER_NODE", slurm.expand_tasks_per_node, "2(x3),1"),
    ):
        text = environment.get(name, "")
        try:
            rows.append(parse(text))
        except ValueError:
            raise UserError(
                f"{name}={text}: expected a list like {example}; or name the workers with TF_CONFIG"
            ) from None
    hosts, tasks = rows
    if not hosts or len(hosts) != len(tasks):
        raise UserError(
            f"Slurm: {len(hosts)} nodes, tasks on {len(tasks)} (SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE): expected as"
            " many; or name the workers with TF_CONFIG"
        )
    return list(zip(hosts, tasks))


def _number(environment, name, default=None):
    """A variable's value as a number, 0 or more."""
    text = environment.get(name) or default
    if not re.fullmatch("[0-9]+", str(text)):
        raise UserError(f"{name}={text}: expected a number, as Slurm sets it")
    return int(text)
