"""Find the workers that train together: from TF_CONFIG or from Slurm's variables."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import NoReturn

from cyclegan.distribution import slurm
from cyclegan.errors import UserError

ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):([0-9]{1,5})")
TASK_TYPES = ("chief", "worker")  # in the order of their addresses


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Several workers that train together.

    Attributes:
        addresses: "host:port" of each worker; the first worker is the chief.
        index: Index of this worker.
    """

    addresses: tuple[str, ...]
    index: int

    @property
    def count(self) -> int:
        """Number of workers."""
        return len(self.addresses)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts of the workers, each once, in the order of the addresses."""
        return tuple(dict.fromkeys(host_of(address) for address in self.addresses))

    def describe(self, worker: int) -> str:
        """Return the name of a worker for messages."""
        return f"worker {worker} ({self.addresses[worker]})"


def host_of(address: str) -> str:
    """Return the host of an address: "n1" of "n1:2222", "[::1]" of "[::1]:2222"."""
    return address.rpartition(":")[0]


def read_cluster(environment: Mapping[str, str] = os.environ, port: int | None = None) -> Cluster | None:
    """Return the cluster that the environment describes, or `None` if it names at most one worker.

    TF_CONFIG takes precedence. If it is empty or not set, the variables of a Slurm job step are read.

    Args:
        environment: Environment variables.
        port: First port of Slurm's tasks on each node; `None` is 20000 + the last four digits of the job's number.

    Raises:
        UserError: The description is wrong, this worker is not part of it, or `port` has no effect.
    """
    if environment.get("TF_CONFIG"):
        refuse_port(port, "TF_CONFIG has the ports of all workers")
        return _parse_tf_config(environment["TF_CONFIG"])
    if slurm.has_several_tasks(environment):
        return Cluster(*slurm.read_addresses(environment, port))
    refuse_port(port, "this is no Slurm job step of several tasks")
    return None


def refuse_port(port: int | None, reason: str) -> None:
    """Raise `UserError` if `port` was given although it has no effect."""
    if port is not None:
        raise UserError(
            f"--port {port} has no effect: {reason}; expected it with several tasks of a Slurm job step. Drop --port, or start"
            " the tasks with one srun"
        )


def _parse_tf_config(text: str) -> Cluster | None:
    try:
        config = json.loads(text)
    except ValueError as error:
        _refuse(f"not JSON ({error})", 'something like {"cluster": {"worker": ["host:port", ...]}, "task": ...}')
    if not isinstance(config, dict):
        _refuse(text, "an object with the keys cluster and task")
    cluster = config.get("cluster") or {}
    _check_task_types(cluster)
    addresses = [address for kind in TASK_TYPES for address in cluster.get(kind, [])]
    for address in addresses:
        _check_address(address, addresses)
    return Cluster(tuple(addresses), _index_of(config.get("task"), cluster)) if len(addresses) > 1 else None


def _check_task_types(cluster: object) -> None:
    if not isinstance(cluster, dict) or not all(isinstance(row, list) for row in cluster.values()):
        _refuse(f"cluster {json.dumps(cluster)}", 'lists of addresses by type of task: {"worker": ["host:port", ...]}')
    if unknown := [kind for kind in cluster if kind not in TASK_TYPES]:
        _refuse(f"tasks of the type {', '.join(unknown)}", "chief or worker; this program has workers only")
    if len(cluster.get("chief", [])) > 1:
        _refuse(f"{len(cluster['chief'])} chiefs", "at most one; the others are workers")


def _check_address(address: object, addresses: list[object]) -> None:
    match = ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if not match or int(match[2]) not in slurm.PORTS:
        _refuse(f"address {json.dumps(address)}", '"host:port" with a port from 1 to 65535 (IPv6: "[::1]:port")')
    if addresses.count(address) > 1:
        _refuse(f"{address} occurs {addresses.count(address)} times", "another address for each task")


def _index_of(task: object, cluster: dict[str, list[str]]) -> int:
    """Return the index of this worker among all, chief first, from the task of TF_CONFIG."""
    if not isinstance(task, dict) or task.get("type") not in list(cluster):
        example = json.dumps({"type": list(cluster)[-1], "index": 0})
        _refuse(f"task {json.dumps(task)}", f"the type and index of this task in the cluster: {example}")
    index, count = task.get("index"), len(cluster[task["type"]])
    if type(index) is not int or not 0 <= index < count:
        _refuse(
            f"index {json.dumps(index)} of the task", f"a number from 0 to {count - 1}, for {count} of {task['type']}"
        )
    return index + (len(cluster.get("chief", [])) if task["type"] == "worker" else 0)


def _refuse(received: str, expected: str) -> NoReturn:
    raise UserError(f"TF_CONFIG: {received}: expected {expected}")
