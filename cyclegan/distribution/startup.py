"""Start of this worker, together with the other workers that the environment names."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import threading
from collections.abc import Iterator

import tensorflow as tf

from cyclegan.config.sections import DistributionConfig
from cyclegan.distribution import handshake, rendezvous
from cyclegan.distribution.cluster import Cluster, read_cluster, refuse_port
from cyclegan.distribution.gpus import select_gpus
from cyclegan.distribution.strategy import make_strategy
from cyclegan.distribution.workers import Workers
from cyclegan.errors import TrainingError, UserError, first_line


def start_workers(config: DistributionConfig) -> Workers:
    """Meet the other workers that TF_CONFIG or Slurm's variables name, and make a strategy over the devices of all workers.

    Raises:
        UserError: The environment does not provide what the configuration asks for.
        TrainingError: Another worker was lost meanwhile.
    """
    if config.strategy in ("auto", "multiworker"):
        if cluster := read_cluster(os.environ, config.port):
            return _join(cluster, config)
    else:
        refuse_port(config.port, f"--strategy {config.strategy} uses this process only")
    if config.strategy == "multiworker":
        raise UserError(
            "--strategy multiworker: neither TF_CONFIG nor Slurm's variables name several workers; expected one of them to name at"
            " least two (see docs/scaling.md), or scripts/launch_local.sh"
        )
    may_join = config.strategy == "auto" and os.environ.get("TF_CONFIG")  # launchers set it for a single worker, too
    for name in () if may_join else ("start_timeout",):
        if (value := getattr(config, name)) != getattr(DistributionConfig, name):
            raise UserError(f"--{name} {value}: has no effect here, because it needs several workers; drop the flag")
    os.environ.pop("TF_CONFIG", None)  # TensorFlow's other strategies would read it, too
    return Workers(make_strategy(config.devices, config.strategy))


def _join(cluster: Cluster, config: DistributionConfig) -> Workers:
    secret = handshake.read_secret(None)
    gpus = select_gpus(config.devices)
    if not gpus and (config.devices or 1) > 1:
        raise UserError(
            f"--devices {config.devices}: a worker without a GPU is one replica; expected 1, and more workers instead"
        )
    rendezvous.meet(cluster, config.start_timeout, f"TensorFlow {tf.__version__} and {len(gpus)} GPUs", secret)
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


@contextlib.contextmanager
def _keep_sigterm() -> Iterator[None]:
    """Hold SIGTERM back inside the context and restore its handler afterwards, because TensorFlow replaces it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


@contextlib.contextmanager
def _limit_time(cluster: Cluster, seconds: int) -> Iterator[None]:
    """End the process with exit code 1 if the context takes longer; TensorFlow would wait for an hour or without end.

    TensorFlow holds Python's global lock meanwhile. So a C thread of `faulthandler` ends the process, and its output makes a
    shell report the reason.
    """
    text = (
        f"{cluster.describe(cluster.index)} has met the others, but TensorFlow's start with them took more than {seconds} s"
        " (--start_timeout): expected all of them to stay; see their output, and start all again"
    )
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "wb") as written:
        reporter = subprocess.Popen(["sh", "-c", 'read -r _ && printf "%s\\n" "$0" >&2', text], stdin=reader)
        faulthandler.dump_traceback_later(seconds, exit=True, file=written)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
    reporter.wait()
