"""Start this worker together with the other workers that the environment names."""

from __future__ import annotations

import concurrent.futures
import contextlib
import faulthandler
import functools
import itertools
import json
import logging
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator

import tensorflow as tf

import cyclegan
from cyclegan.config.sections import DistributionConfig
from cyclegan.distribution.cluster import Cluster, read_cluster
from cyclegan.distribution.strategy import make_strategy, select_gpus
from cyclegan.distribution.workers import Workers
from cyclegan.errors import TrainingError, UserError, first_line

logger = logging.getLogger(__name__)

BACKLOG = 1024  # connections that wait to be accepted
CONNECT_SECONDS = 2.0  # for one attempt to reach one worker
HEAR_SECONDS = 60.0  # for a worker to send its line after it has connected, on a machine that is busy
# Variables with the hosts that gRPC reaches without a proxy; the second holds if there is no first.
NO_PROXY = ("no_grpc_proxy", "no_proxy")
INTERVAL = 0.2  # seconds between two attempts
PATIENCE = 10.0  # seconds until a warning names the missing workers


def start_workers(config: DistributionConfig) -> Workers:
    """Meet the other workers that TF_CONFIG or Slurm's variables name, and make a strategy over the devices of all."""
    if config.strategy in ("auto", "multiworker") and (cluster := read_cluster(os.environ, config.port)):
        return _join(cluster, config)
    if config.strategy == "multiworker":
        raise UserError(
            "--strategy multiworker: neither TF_CONFIG nor Slurm's variables name several workers; expected one of"
            " them to name at least two (see docs/scaling.md), or scripts/launch_local.sh"
        )
    os.environ.pop("TF_CONFIG", None)  # TensorFlow's other strategies would read it, too
    return Workers(make_strategy(config.devices, config.strategy))


def _join(cluster: Cluster, config: DistributionConfig) -> Workers:
    gpus = select_gpus(config.devices)
    if not gpus and (config.devices or 1) > 1:
        raise UserError(
            f"--devices {config.devices}: a worker without a GPU is one replica; expected 1: start more workers"
            " for more replicas"
        )
    others = next(filter(None, map(os.environ.get, NO_PROXY)), "")
    os.environ[NO_PROXY[0]] = ",".join([*(host.strip("[]") for host in cluster.hosts), others])
    meet(cluster, config.start_timeout, f"{_program()}, TensorFlow {tf.__version__}, {len(gpus)} GPUs")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.addresses)}),
        task_type="worker",
        task_id=cluster.index,
        num_accelerators={"GPU": len(gpus)},
        rpc_layer="grpc",
    )
    implementations = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=implementations.NCCL if gpus else implementations.RING
    )
    with _limit_time(cluster, config.start_timeout), _keep_sigterm():
        try:
            workers = Workers(tf.distribute.MultiWorkerMirroredStrategy(resolver, options), cluster)
            workers.keep_alive(workers)
            workers.barrier()
        except (RuntimeError, tf.errors.OpError) as error:
            raise TrainingError(
                f"worker {cluster.index}: training could not be started with the others ({first_line(error)}):"
                " expected every worker to keep running; start all of them again"
            ) from error
    return workers


def _program() -> str:
    """Return the version of this program with a checksum of its modules."""
    folder, checksum = pathlib.Path(cyclegan.__file__).parent, 0
    for path in sorted(folder.rglob("*.py")):
        checksum = zlib.crc32(path.read_bytes(), checksum)
    return f"cyclegan {cyclegan.__version__}, code {checksum:08x}"


def meet(cluster: Cluster, timeout: float, stack: str) -> None:
    """Wait until all workers listen, because TensorFlow waits silently and without end; compare their stacks.

    Each worker listens at its own address, and sends its stack, a text that has to be the same on all workers, to the
    others. When it has heard from all and has reached all, it leaves the port to TensorFlow's server.

    Raises:
        UserError: The port of this worker is taken, or a worker did not come in time or has another stack.
    """
    own, both = cluster.describe(cluster.index), socket.has_dualstack_ipv6()
    family, port = socket.AF_INET6 if both else socket.AF_INET, int(cluster.addresses[cluster.index].rpartition(":")[2])
    stack = f"{stack}, addresses {' '.join(cluster.addresses)}"
    send = functools.partial(_send, json.dumps([cluster.index, stack]).encode() + b"\n")
    others = {worker: address for worker, address in enumerate(cluster.addresses) if worker != cluster.index}
    began, warned, reached, stacks = time.monotonic(), False, set[int](), dict[int, str]()
    try:  # on all interfaces, as TensorFlow's server does
        server = socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=BACKLOG)
    except OSError as error:
        raise UserError(f"{own} can't listen there ({error.strerror}): expected a free port of this machine") from error
    with server, concurrent.futures.ThreadPoolExecutor(len(others)) as pool:
        server.setblocking(False)
        while True:
            with contextlib.suppress(OSError):  # no other connection waits
                for _ in range(BACKLOG):
                    threading.Thread(target=_hear, args=(server.accept()[0], stacks), daemon=True).start()
            reached.update(itertools.compress(others, pool.map(send, others.values())))
            missing = ", ".join(others[worker] for worker in others if worker not in reached or worker not in stacks)
            waited = time.monotonic() - began
            if not missing:
                break
            if waited > timeout:
                raise UserError(
                    f"{own} waited for {timeout} s (--start_timeout) and could not reach {missing}: expected a worker"
                    " at each; are they started, do firewalls let them through?"
                )
            if waited > PATIENCE and not warned:
                logger.warning("%s is waiting for %s", own, missing)
                warned = True
            time.sleep(INTERVAL)
    for worker in others:
        if stacks[worker] != stack:
            raise UserError(
                f"{own} has {stack}, but {cluster.describe(worker)} has {stacks[worker]}: expected the same for all"
            )


def _hear(connection: socket.socket, stacks: dict[int, str]) -> None:
    """Note the stack of the worker at the other end of a connection, which may also come from another program."""
    with connection, contextlib.suppress(OSError, ValueError, TypeError):
        connection.settimeout(HEAR_SECONDS)
        worker, stack = json.loads(connection.makefile("rb").readline())
        stacks[int(worker)] = str(stack)


def _send(line: bytes, address: str) -> bool:
    """Send a line to the worker at an address; return whether something listens there."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS) as connection:
            connection.sendall(line)
            return True
    except (OSError, ValueError):  # ValueError: no name of a host
        return False


@contextlib.contextmanager
def _keep_sigterm() -> Iterator[None]:
    """Hold SIGTERM back inside the context and restore its handler afterwards, because TensorFlow replaces it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


@contextlib.contextmanager
def _limit_time(cluster: Cluster, seconds: int) -> Iterator[None]:
    """End the process with exit code 1 if the context takes longer; TensorFlow would wait for an hour or without end.

    TensorFlow holds Python's global lock meanwhile. So a C thread of `faulthandler` ends the process, and its output
    makes a shell report the reason.
    """
    text = (
        f"{cluster.describe(cluster.index)} has met the others, but TensorFlow's start with them took more than"
        f" {seconds} s (--start_timeout): expected all of them to stay; see their output, and start all again"
    )
    report = ["sh", "-c", 'read -r _ && printf "%s\\n" "$0" >&2', text]
    with subprocess.Popen(report, stdin=subprocess.PIPE) as reporter:
        assert reporter.stdin
        faulthandler.dump_traceback_later(seconds, exit=True, file=reporter.stdin)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
