"""Start this worker together with the other workers that the environment names."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import tensorflow as tf

from cyclegan.config.sections import DistributionConfig
from cyclegan.distribution.cluster import Cluster, read_cluster
from cyclegan.distribution.strategy import make_strategy, select_gpus
from cyclegan.distribution.workers import Workers
from cyclegan.errors import TrainingError, UserError, first_line

logger = logging.getLogger(__name__)

BACKLOG = 1024  # connections that wait to be accepted
CONNECT_SECONDS = 2.0  # for one attempt to reach one worker, and for its answer
INTERVAL = 0.2  # seconds between two attempts
PATIENCE = 10.0  # seconds until a warning names the missing workers
GREETING = b"CycleGAN worker: "


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
            f"--devices {config.devices}: a worker without a GPU is one replica; expected 1, and more workers instead"
        )
    meet(cluster, config.start_timeout, f"TensorFlow {tf.__version__}, {len(gpus)} GPUs")
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


def meet(cluster: Cluster, timeout: float, stack: str) -> None:
    """Wait until all workers answer, because TensorFlow waits silently and without end.

    Each worker answers at its own address with its stack, a line that has to be the same on all workers, and asks all others
    until all of them answer at the same time. Then it leaves the port to TensorFlow's server, which also counts as an answer.
    The first of two workers to leave has compared their stacks.

    Raises:
        UserError: The port of this worker is taken, or a worker did not come in time, has another stack or other addresses.
    """
    own = cluster.addresses[cluster.index]
    both = socket.has_dualstack_ipv6()  # listen on all interfaces, as TensorFlow's server does
    family, address = socket.AF_INET6 if both else socket.AF_INET, ("", int(own.rpartition(":")[2]))
    try:
        server = socket.create_server(address, family=family, dualstack_ipv6=both)
    except OSError as error:
        raise UserError(
            f"worker {cluster.index}: can't listen on {own} ({error.strerror}): expected a free port of this machine"
        ) from error
    with server:
        asyncio.run(_meet(cluster, timeout, f"{stack}, addresses {' '.join(cluster.addresses)}", server))


async def _meet(cluster: Cluster, timeout: float, stack: str, listening: socket.socket) -> None:
    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING + stack.encode() + b"\n")
        writer.close()

    own = cluster.describe(cluster.index)
    others = {worker: address for worker, address in enumerate(cluster.addresses) if worker != cluster.index}
    began, warned, met = time.monotonic(), False, set[str]()
    async with await asyncio.start_server(answer, sock=listening, backlog=BACKLOG):
        while True:
            answers = dict(zip(others, await asyncio.gather(*map(_ask, others.values()))))
            for worker, found in answers.items():
                if found and found != stack:
                    await asyncio.sleep(CONNECT_SECONDS)  # the others have to see it, too
                    raise UserError(
                        f"{own} has {stack}, but {cluster.describe(worker)} has {found}: expected the same for all"
                    )
            missing = [others[worker] for worker, found in answers.items() if found is None]
            if not missing:
                return
            met.update(set(others.values()).difference(missing))  # of these, some may have given up already
            names = ", ".join([address for address in missing if address not in met] or missing)
            waited = time.monotonic() - began
            if waited > timeout:
                raise UserError(
                    f"{own} waited for {timeout} s (--start_timeout) and could not reach {names}: expected a worker at"
                    " each; are they started, do firewalls let them through?"
                )
            if waited > PATIENCE and not warned:
                logger.warning("%s is waiting for %s", own, names)
                warned = True
            await asyncio.sleep(INTERVAL)


async def _ask(address: str) -> str | None:
    """Return the stack of the worker at an address; "" if something else answers; `None` if nothing does."""
    host, _, port = address.rpartition(":")
    connecting = asyncio.open_connection(host.strip("[]"), int(port))
    try:
        reader, writer = await asyncio.wait_for(connecting, CONNECT_SECONDS)
    except (OSError, ValueError, asyncio.TimeoutError):  # ValueError: no name of a host
        return None
    try:
        if await asyncio.wait_for(reader.read(len(GREETING)), CONNECT_SECONDS) == GREETING:
            return (await asyncio.wait_for(reader.readline(), CONNECT_SECONDS)).decode().strip()
        return ""
    except (OSError, asyncio.TimeoutError):
        return ""
    finally:
        writer.close()


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
