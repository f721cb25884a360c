"""Read the addresses of the tasks of a Slurm job step from its environment variables.

TensorFlow's `SlurmClusterResolver` is not used: it sorts hosts as texts (n10 before n9), refuses more tasks than GPUs on a node,
and reads only the environment of the process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from cyclegan.errors import UserError

Item = TypeVar("Item")
PORTS = range(1, 65536)
OUTER_COMMA = re.compile(r",(?![^\[]*\])")  # not inside brackets
HOSTS = re.compile(r"(?=.)([^,\[\]]*)(?:\[([0-9,-]+)\])?")  # n[1-3,5] or gpu7
RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
TASKS = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


def has_several_tasks(environment: Mapping[str, str]) -> bool:
    """Return whether the variables describe this process as one of several tasks of a job step."""
    return _number(environment, "SLURM_STEP_NUM_TASKS", "1") > 1 and bool(environment.get("SLURM_PROCID"))


def read_addresses(environment: Mapping[str, str], port: int | None = None) -> tuple[tuple[str, ...], int]:
    """Return the addresses "host:port" of all tasks, and the index of this task.

    Args:
        environment: The variables of a job step of several tasks.
        port: First port of the tasks on each node; `None` is 20000 + the last four digits of the job's number.

    Raises:
        UserError: A variable is wrong, or the variables do not agree.
    """
    nodes = _nodes(environment)
    first = 20000 + _number(environment, "SLURM_JOB_ID", "0") % 10000 if port is None else port
    last = first + max(tasks for _, tasks in nodes) - 1
    if first not in PORTS or last not in PORTS:
        raise UserError(f"--port {first}: the tasks of a node take the ports {first} to {last}: expected 1 to 65535")
    tasks = [(host, local) for host, number in nodes for local in range(number)]
    index, count = _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_STEP_NUM_TASKS")
    if len(tasks) != count or index >= count:
        raise UserError(
            f"Slurm: task {index} of {count}, but {len(tasks)} tasks on {', '.join(host for host, _ in nodes)}: expected the"
            " variables of one job step; start all tasks with one srun, or name them with TF_CONFIG"
        )
    host, local = tasks[index]
    node = [name for name, _ in nodes].index(host)
    for name, expected in (("SLURMD_NODENAME", host), ("SLURM_NODEID", str(node)), ("SLURM_LOCALID", str(local))):
        if environment.get(name, expected) != expected:
            raise UserError(
                f"Slurm: task {index} has {name}={environment[name]}: expected {expected}, with tasks distributed in blocks;"
                " use srun --distribution=block"
            )
    return tuple(f"{host}:{first + local}" for host, local in tasks), index


def _nodes(environment: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return (host, number of tasks) of each node of the job step, in Slurm's order."""
    hosts = _expand(environment, "SLURM_STEP_NODELIST", expand_hosts, "n[1-3],gpu7")
    tasks = _expand(environment, "SLURM_STEP_TASKS_PER_NODE", expand_tasks, "2(x3),1")
    if not hosts or len(hosts) != len(tasks):
        raise UserError(
            f"Slurm: {len(hosts)} nodes, tasks on {len(tasks)} (SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE): expected equal"
            " numbers; or name the workers with TF_CONFIG"
        )
    return list(zip(hosts, tasks))


def _expand(
    environment: Mapping[str, str], name: str, expand: Callable[[str], Iterator[Item]], example: str
) -> list[Item]:
    text = environment.get(name, "")
    try:
        return list(expand(text))
    except ValueError:
        raise UserError(f"{name}={text}: expected a list like {example}; or name the workers with TF_CONFIG") from None


def expand_hosts(text: str) -> Iterator[str]:
    """Yield the hosts of a list like "n[08-10,12],gpu7", in its order and with leading zeros.

    Raises:
        ValueError: The text is another kind of list.
    """
    for part in OUTER_COMMA.split(text) if text else ():
        match = HOSTS.fullmatch(part)
        if not match:
            raise ValueError(part)
        prefix, numbers = match.groups()
        yield from [prefix] if numbers is None else (prefix + number for number in _expand_numbers(numbers))


def _expand_numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        match = RANGE.fullmatch(part)
        if not match:
            raise ValueError(part)
        first, last = match[1], match[2] or match[1]
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))


def expand_tasks(text: str) -> Iterator[int]:
    """Yield the number of tasks of each node of a list like "2(x3),1".

    Raises:
        ValueError: The text is another kind of list.
    """
    for part in text.split(","):
        match = TASKS.fullmatch(part)
        if not match:
            raise ValueError(part)
        yield from [int(match[1])] * int(match[2] or 1)


def _number(environment: Mapping[str, str], name: str, default: str = "") -> int:
    """Return the value of a variable as a number, 0 or more."""
    text = environment.get(name) or default
    if not re.fullmatch("[0-9]+", text):
        raise UserError(f"{name}={text}: expected a number, as Slurm sets it")
    return int(text)
