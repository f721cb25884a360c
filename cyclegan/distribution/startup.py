"""Start this worker together with the other workers that the environment names."""

from __future__ import annotations

import contextlib
import faulthandler
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
from collections.abc import Callable, Iterator

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
# Variables with the hosts that gRPC reaches without a proxy; the second holds if there is no first.
NO_PROXY = ("no_grpc_proxy", "no_proxy")
INTERVAL = 0.2  # seconds between two attempts
UNEXPECTED = (OSError, ValueError, TypeError)  # of connections that are lost, or that come from other programs
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
    """Wait until the chief has met all workers, because TensorFlow waits silently and without end; compare the stacks.

    Each worker listens at its own address, connects to the chief and sends its stack, a text that has to be the same on
    all workers. When the chief has heard from each worker and has reached the address of each, it sends the same answer
    to all. No worker starts TensorFlow without this answer, which leaves the ports to TensorFlow's servers.

    Raises:
        UserError: The port of this worker is taken, or a worker did not come in time or has another stack.
    """
    own, both = cluster.describe(cluster.index), socket.has_dualstack_ipv6()
    family, port = socket.AF_INET6 if both else socket.AF_INET, int(cluster.addresses[cluster.index].rpartition(":")[2])
    try:  # on all interfaces, as TensorFlow's server does
        server = socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=BACKLOG)
    except OSError as error:
        raise UserError(f"{own} can't listen there ({error.strerror}): expected a free port of this machine") from error
    start, warned = time.monotonic(), False

    def check_time(missing: str) -> str:
        """Return the problem when the time is over, else ""; warn once of the missing addresses after a while."""
        nonlocal warned
        waited = time.monotonic() - start
        if waited > PATIENCE and not warned:
            logger.warning("%s is waiting for %s", own, missing)
            warned = True
        if waited <= timeout:
            return ""
        return (
            f"{own} waited for {timeout} s (--start_timeout) and could not reach {missing}: expected a worker at each;"
            " are they started, do firewalls let them through?"
        )

    stack = f"{stack}, addresses {' '.join(cluster.addresses)}"
    with server:
        server.settimeout(INTERVAL)
        is_chief = cluster.index == 0
        problem = (
            _meet_workers(cluster, server, stack, check_time)
            if is_chief
            else _meet_chief(cluster, stack, timeout, check_time)
        )
    if problem:
        raise UserError(problem)


def _meet_workers(cluster: Cluster, server: socket.socket, stack: str, check_time: Callable[[str], str]) -> str:
    """Meet all workers as the chief; return the problem that stops all of them, or ""."""
    others = range(1, cluster.count)
    connected: dict[socket.socket, tuple[int, str]] = {}  # worker at the other end, and its stack
    reached: set[socket.socket] = set()  # connections of workers whose addresses answer
    missing, problem = "all", ""
    while missing and not problem:
        with contextlib.suppress(OSError):  # no connection waits, or it has ended already
            threading.Thread(target=_hear, args=(server.accept()[0], connected), daemon=True).start()
        present = dict(connected)
        reached |= {each for each in present if each not in reached and _answers(cluster.addresses[present[each][0]])}
        stacks = {worker: found for each, (worker, found) in present.items() if each in reached}
        missing = ", ".join(cluster.addresses[worker] for worker in others if worker not in stacks)
        if missing:
            problem = check_time(missing)
        elif different := [worker for worker in others if stacks[worker] != stack]:
            problem = (
                f"worker 0 ({cluster.addresses[0]}) has {stack}, but {cluster.describe(different[0])} has"
                f" {stacks[different[0]]}: expected the same for all"
            )
        for each in present:
            with contextlib.suppress(OSError):  # a worker that was lost starts again, or is missing from now on
                each.sendall(json.dumps([missing, problem]).encode() + b"\n")
    return problem


def _hear(connection: socket.socket, connected: dict[socket.socket, tuple[int, str]]) -> None:
    """List a worker in `connected` while its connection lasts; other programs may have connected, too."""
    with connection, contextlib.suppress(*UNEXPECTED):
        lines = connection.makefile("rb")
        worker, stack = json.loads(lines.readline())
        connected[connection] = int(worker), str(stack)
        lines.readline()  # waits for the end
    connected.pop(connection, None)


def _meet_chief(cluster: Cluster, stack: str, timeout: float, check_time: Callable[[str], str]) -> str:
    """Report to the chief until it has met all workers; return the problem that stops all of them, or ""."""
    address = cluster.addresses[0]
    while not (problem := check_time(address)):
        # The chief is not there yet, or is lost, or the port belongs to another program.
        with contextlib.suppress(*UNEXPECTED), _connect(address) as link:
            link.settimeout(timeout)
            link.sendall(json.dumps([cluster.index, stack]).encode() + b"\n")
            for line in link.makefile("rb"):
                missing, problem = json.loads(line)
                problem = problem or (missing and check_time(missing))
                if problem or not missing:
                    return str(problem)
        time.sleep(INTERVAL)
    return problem


def _answers(address: str) -> bool:
    """Return whether a worker listens at an address."""
    with contextlib.suppress(*UNEXPECTED), _connect(address):
        return True
    return False


def _connect(address: str) -> socket.socket:
    """Connect to an address; raise `OSError`, or `ValueError` for what can't be the name of a host."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS)


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
