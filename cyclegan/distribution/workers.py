"""The processes that train together, here called workers: how they meet, agree, and notice that one of them is gone."""

import contextlib
import faulthandler
import os
import re
import signal
import subprocess
import threading
import time
import zlib

import numpy as np
import tensorflow as tf

from cyclegan.distribution import cluster, hardware, rendezvous
from cyclegan.distribution.strategy import make_strategy, use_gpus
from cyclegan.errors import TrainingError, UserError

LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)
ABORTED = "Collective ops is aborted"  # TensorFlow says so with other kinds of errors too
LEAVE_SECONDS = 0.5
HELD = []  # see `Workers.hold`


class Workers:
    """All workers, as one of them sees them; or the only process there is.

    What is said of all workers holds for those methods that say so: they wait for each other there.

    Args:
        strategy: the `tf.distribute.Strategy` over the devices of all.
        members: the `cluster.Cluster`; `None` for a single process.

    Attributes:
        count, index: how many there are, and which one this is, from 0.
        is_chief: whether this is worker 0, which alone writes the run's folder and talks to the user.
    """

    def __init__(self, strategy=None, members=None):
        self.strategy = strategy
        self.members = members
        self.count, self.index = (members.count, members.index) if members else (1, 0)
        self.is_chief = self.index == 0
        rows = tf.TensorSpec([self.count, None], tf.int64)
        self._sum = tf.function(self._sum, input_signature=[rows], autograph=False)  # traced once, however many values

    def exchange(self, values):
        """What each worker gives for `values`, integers: int64 [count, len(values)]. Of all workers, with as many values each."""
        rows = np.zeros((self.count, len(values)), np.int64)
        rows[self.index] = values
        return self._sum(tf.constant(rows)).numpy() if self.count > 1 else rows

    def _sum(self, rows):
        """The sum over the workers of what each gives."""
        local = self.strategy.num_replicas_in_sync // self.count

        def first_of_worker(rows):
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return rows * tf.cast(tf.equal(replica % local, 0), tf.int64)

        return self.strategy.reduce(
            tf.distribute.ReduceOp.SUM, self.strategy.run(first_of_worker, args=(rows,)), axis=None
        )

    def of_chief(self, value):
        """The chief's `value`, an integer. Of all workers."""
        return int(self.exchange([value])[0, 0])

    def all(self, value):
        """Whether `value` is true for all workers. Of all workers."""
        return bool(self.exchange([bool(value)]).all())

    @contextlib.contextmanager
    def chief_first(self, needed=True):
        """Where `needed`, the chief does what is within it first, so that the others find what it leaves. Of all workers."""
        if needed and not self.is_chief:
            self.exchange([0])
        yield
        if needed and self.is_chief:
            self.exchange([0])

    def compare(self, what):
        """Sees to it that all workers have the same. Of all workers.

        Args:
            what: a dict of values by name.

        Raises:
            UserError: a worker has something else than the chief; it names the worker and what differs.
        """
        names = sorted(what)
        if found := self._unlike_the_chief([" ".join(names)]):  # or there were not as many values
            raise UserError(
                f"{self.name(found[0])} has another version of this program than the chief: expected the same"
            )
        if found := self._unlike_the_chief([repr(what[name]) for name in names]):
            worker, differ = found
            here = ", ".join(f"{names[i]} ({what[names[i]]} at worker {self.index})" for i in differ)
            raise UserError(
                f"{self.name(worker)} differs from the chief in {here}: expected the same command, pictures and kind of device"
                " for all workers"
            )

    def _unlike_the_chief(self, texts):
        """(the first worker whose texts are not the chief's, which of them); `None` if there is none. Of all workers."""
        rows = self.exchange([zlib.crc32(text.encode(errors="surrogateescape")) for text in texts])
        for worker in range(self.count):
            differ = np.flatnonzero(rows[worker] != rows[0])
            if differ.size:
                return worker, differ
        return None

    def name(self, worker):
        """What a message calls a worker."""
        return f"worker {worker} ({self.members.addresses[worker]})"

    def hold(self, *objects):
        """Keeps objects until the process ends, where there are several workers: taking them down, TensorFlow asks the others."""
        if self.count > 1:
            HELD.extend((self, *objects))

    def beside(self):
        """How many of them are on this one's machine, itself included; 0 for a single process, which has no others."""
        if not self.members:
            return 0
        hosts = [cluster.host_of(address) for address in self.members.addresses]
        return hosts.count(hosts[self.index])

    def shares(self):
        """How many devices' worth of speed there is: CPU devices of one machine share its cores."""
        if hardware.accelerated():
            return self.strategy.num_replicas_in_sync
        return len(self.members.hosts) if self.members else 1

    @contextlib.contextmanager
    def noticed(self):
        """Within it, the error of a step in which another worker was gone becomes one that says so, and errors say whose they are.

        Raises:
            TrainingError
        """
        try:
            yield
        except UserError as error:
            if self.count > 1:
                error.args = (f"worker {self.index}: {error}",)
            raise
        except tf.errors.OpError as error:
            if self.count == 1 or not (isinstance(error, LOST) or ABORTED in str(error)):
                raise
            said = re.sub(r"{{.*?}}", "", str(error))  # where the error was noticed, which is here
            named = [worker for worker in map(int, re.findall(r"task:(\d+)", said)) if worker != self.index]
            gone = self.name(named[0]) if named and named[0] < self.count else "a worker"
            raise TrainingError(
                f"worker {self.index}: {gone} does not answer any more, so this one stops: see what it printed. Start all workers"
                " again with the same command: they resume from the last checkpoint"
            ) from error
        finally:
            if self.count > 1:
                time.sleep(LEAVE_SECONDS)  # what was sent last may be under way


def start(config):
    """The workers that a configuration and the environment (TF_CONFIG, Slurm's variables) ask for; they have met.

    Args:
        config: the `Config`.

    Raises:
        UserError: what was asked for can't be had here.
    """
    members = cluster.read(os.environ, config.port) if config.strategy in ("auto", "multiworker") else None
    if members:
        return _meet(members, config.devices, config.start_timeout)
    if config.strategy == "multiworker":
        raise UserError(
            "--strategy multiworker: neither TF_CONFIG nor Slurm's variables name more than one worker; expected one of them to"
            " (see docs/scaling.md), or scripts/launch_local.sh"
        )
    os.environ.pop("TF_CONFIG", None)  # or TensorFlow's other strategies would read it too
    return Workers(make_strategy(config.devices, config.strategy))


def _meet(members, devices_asked, seconds):
    gpus = use_gpus(devices_asked)
    if not gpus and (devices_asked or 1) > 1:
        raise UserError(
            f"--devices {devices_asked}: a worker without a GPU is one replica; expected 1, and more workers instead"
        )
    rendezvous.meet(members, seconds, f"TensorFlow {tf.__version__} and {len(gpus)} GPUs")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(members.addresses)}),
        task_type="worker",
        task_id=members.index,
        num_accelerators={"GPU": len(gpus)},
        rpc_layer="grpc",
    )
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(implementation=kinds.NCCL if gpus else kinds.RING)
    with _bounded(members, seconds), _sigterm_for_python():
        try:
            workers = Workers(tf.distribute.MultiWorkerMirroredStrategy(resolver, options), members)
            workers.hold(workers.strategy)
            workers.exchange([0])
        except (RuntimeError, tf.errors.OpError) as error:
            raise TrainingError(
                f"worker {members.index}: training could not be started with the others ({str(error).strip().splitlines()[0]}):"
                " expected all of them to stay; start all again"
            ) from error
    return workers


@contextlib.contextmanager
def _sigterm_for_python():
    """TensorFlow takes SIGTERM for itself when workers begin; it waits meanwhile, and is Python's afterwards."""
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
def _bounded(members, seconds):
    """Ends the process, with exit code 1, if what is done within it takes longer: TensorFlow would wait for an hour or for ever.

    It holds Python's lock meanwhile. Hence a thread of C that ends the process, and a shell that reads what that writes and says
    why.
    """
    text = (
        f"worker {members.index} ({members.addresses[members.index]}) has met the others, but TensorFlow's start with them took"
        f" more than {seconds} s (--start_timeout): expected all of them to stay; see what they printed, and start all again"
    )
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "wb") as written:
        speaker = subprocess.Popen(["sh", "-c", 'read -r _ && printf "%s\\n" "$0" >&2', text], stdin=reader)
        faulthandler.dump_traceback_later(seconds, exit=True, file=written)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
    speaker.wait()
