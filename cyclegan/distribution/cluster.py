"""Find the workers that train together: in TF_CONFIG or in Slurm's variables."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping

from cyclegan.errors import UserError

ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):([0-9]{1,5})")
EXAMPLE = '{"cluster": {"worker": ["n1:2222", "n2:2222"]}, "task": {"type": "worker", "index": 0}}'
PORTS = range(1, 65536)
TASK_TYPES = ("chief", "worker")  # in the order of their addresses


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Several workers that train together."""

    addresses: tuple[str, ...]  # "host:port" of each worker; the first worker is the chief
    index: int  # of this worker

    @property
    def count(self) -> int:
        """Number of workers."""
        return len(self.addresses)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of each worker: "n1" of "n1:2222", "[::1]" of "[::1]:2222"."""
        return tuple(address.rpartition(":")[0] for address in self.addresses)

    def describe(self, worker: int) -> str:
        """Return the name of a worker for messages."""
        return f"worker {worker} ({self.addresses[worker]})"


def read_cluster(environment: Mapping[str, str] = os.environ, port: int | None = None) -> Cluster | None:
    """Return the cluster that the environment describes, or `None` if it names at most one worker.

    TF_CONFIG takes precedence over the variables of a Slurm job step. `port` is the first port of Slurm's tasks on each
    node, by default 20000 + the last four digits of the job's number.

    Raises:
        UserError: The description is wrong, or this worker is not part of it.
    """
    if text := environment.get("TF_CONFIG"):
        return _parse_tf_config(text)
    if environment.get("SLURM_PROCID") and _number(environment, "SLURM_STEP_NUM_TASKS", "1") > 1:
        return _read_slurm(environment, port)
    return None


def _parse_tf_config(text: str) -> Cluster | None:
    try:
        config = json.loads(text)
        cluster, task = config.get("cluster") or {}, config.get("task") or {}
        rows = {kind: cluster.get(kind, []) for kind in TASK_TYPES}
        addresses = tuple(address for row in rows.values() for address in row)
        own = f"{task.get('type')} {task.get('index')}"
    except (ValueError, TypeError, AttributeError):
        raise UserError(f"TF_CONFIG={text}: expected something like {EXAMPLE}") from None
    if unknown := set(cluster).difference(TASK_TYPES):
        raise UserError(f"TF_CONFIG: tasks of the type {', '.join(unknown)}: expected chief or worker")
    for address in addresses:
        match = ADDRESS.fullmatch(str(address))
        if not match or int(match[2]) not in PORTS:
            raise UserError(
                f"TF_CONFIG: address {json.dumps(address)}: expected"
                ' "host:port" with a port from 1 to 65535 (IPv6: "[::1]:port")'
            )
    if len(addresses) < 2:
        return None
    tasks = [f"{kind} {index}" for kind, row in rows.items() for index in range(len(row))]
    if own not in tasks:
        raise UserError(
            f"TF_CONFIG: task {json.dumps(task)}: expected the type and index of a task of the cluster:"
            f" {', '.join(tasks)}"
        )
    return Cluster(addresses, tasks.index(own))


def _read_slurm(environment: Mapping[str, str], port: int | None) -> Cluster:
    """Return the cluster of the tasks of a Slurm job step.

    TensorFlow's `SlurmClusterResolver` sorts hosts as texts (n10 before n9) and refuses more tasks than GPUs on a node.
    """
    from tensorflow.python.distribute.cluster_resolver import slurm_cluster_resolver as slurm  # not in tf.distribute

    try:
        hosts = slurm.expand_hostlist(environment.get("SLURM_STEP_NODELIST", ""))
        counts = slurm.expand_tasks_per_node(environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    except ValueError as error:
        raise UserError(
            f"Slurm: {error} in SLURM_STEP_NODELIST={environment.get('SLURM_STEP_NODELIST')} or"
            f" SLURM_STEP_TASKS_PER_NODE={environment.get('SLURM_STEP_TASKS_PER_NODE')}: expected lists like"
            " n[1-3],gpu7 and 2(x3),1; or name the workers with TF_CONFIG"
        ) from None
    first = 20000 + _number(environment, "SLURM_JOB_ID", "0") % 10000 if port is None else port
    last = first + max(counts) - 1
    if first not in PORTS or last not in PORTS:
        raise UserError(f"--port {first}: the tasks of a node take the ports {first} to {last}: expected 1 to 65535")
    tasks = [(host, local) for host, count in zip(hosts, counts) for local in range(count)]
    index, count = _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_STEP_NUM_TASKS")
    if len(hosts) != len(counts) or len(tasks) != count or index >= count:
        raise UserError(
            f"Slurm: task {index} of {count}, but {sum(counts)} tasks on {', '.join(hosts)}: expected the variables of"
            " one job step; start all tasks with one srun, or name them with TF_CONFIG"
        )
    host, local = tasks[index]
    for name, expected in (("SLURMD_NODENAME", host), ("SLURM_LOCALID", str(local))):
        if environment.get(name, expected) != expected:
            raise UserError(
                f"Slurm: task {index} has {name}={environment[name]}: expected {expected}, with tasks distributed in"
                " blocks; use srun --distribution=block"
            )
    return Cluster(tuple(f"{host}:{first + local}" for host, local in tasks), index)


def _number(environment: Mapping[str, str], name: str, default: str = "") -> int:
    """Return the value of a variable as a number, 0 or more."""
    text = environment.get(name) or default
    if not text.isdecimal():
        raise UserError(f"{name}={text}: expected a number, as Slurm sets it")
    return int(text)
