"""Workers, the processes that train together: their collective operations, and errors if one is lost or stuck."""

from __future__ import annotations

import contextlib
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from cyclegan import terminal
from cyclegan.distribution import hardware
from cyclegan.distribution.cluster import Cluster
from cyclegan.errors import TrainingError, UserError

LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)
ABORTED = "Collective ops is aborted"  # in errors of other types, too
LEAVE_SECONDS = 0.5  # from an error to the end of the process, for messages to the other workers
MAX_NAMED = 3  # values that differ, in a message
WATCH_INTERVAL = 0.5  # seconds between two looks of the watchdog
Kept = TypeVar("Kept")
_KEPT_ALIVE: list[object] = []  # see `Workers.keep_alive`


class Workers:
    """All workers as seen by one of them, or a single process.

    All workers have to call the collective methods in the same order: each call waits for the other workers. A single
    process has no cluster. Only the chief, worker 0, writes the run's folder and reports to the user.
    """

    def __init__(self, strategy: tf.distribute.Strategy, cluster: Cluster | None = None) -> None:
        self.strategy = strategy
        self.cluster = cluster
        self.count, self.index = (cluster.count, cluster.index) if cluster else (1, 0)
        self.is_chief = self.index == 0
        rows = tf.TensorSpec([self.count, None], tf.int64)  # one trace for any number of values
        self._sum = tf.function(self._sum_rows, input_signature=[rows], autograph=False)

    def all_gather(self, values: Sequence[int]) -> np.ndarray:
        """Return the integers of each worker, equally many on each, as int64 [workers, len(values)]; collective."""
        rows = np.zeros((self.count, len(values)), np.int64)
        rows[self.index] = values
        return self._sum(tf.constant(rows)).numpy() if self.count > 1 else rows

    def broadcast_from_chief(self, value: int) -> int:
        """Return the chief's value; collective."""
        return int(self.all_gather([value])[0, 0])

    def all_true(self, value: bool) -> bool:
        """Return whether a value is true on all workers; collective."""
        return bool(self.all_gather([bool(value)]).all())

    def barrier(self) -> None:
        """Wait until all workers have called this method; collective."""
        self.all_gather([0])

    @contextlib.contextmanager
    def chief_first(self, needed: bool = True) -> Iterator[None]:
        """Let the chief leave the context before the other workers enter it, if `needed`; collective."""
        if needed and not self.is_chief:
            self.barrier()
        yield
        if needed and self.is_chief:
            self.barrier()

    def check_equal(self, values: Mapping[str, Any]) -> None:
        """Check that named values are the same on all workers; collective.

        Raises:
            UserError: A value of a worker differs from the chief's; the message names the worker and the values.
        """
        # First the names, because `all_gather` needs equally many values on each worker.
        for group in ({"the names of the settings": " ".join(sorted(values))}, values):
            names = sorted(group)
            rows = self.all_gather([zlib.crc32(repr(group[name]).encode(errors="surrogateescape")) for name in names])
            different = np.argwhere(rows != rows[0])
            if different.size:
                worker = int(different[0, 0])
                found = [names[i] for other, i in different if other == worker]
                here = ", ".join(f"{name} ({group[name]!s:.200} at worker {self.index})" for name in found[:MAX_NAMED])
                raise UserError(
                    f"{self._describe(worker)} differs from the chief in {here}: expected the same program, command,"
                    " images and kind of device for all workers"
                )

    def keep_alive(self, value: Kept) -> Kept:
        """Return an object. With several workers, keep it until the process ends.

        The destruction of the object would involve the other workers.
        """
        if self.count > 1:
            _KEPT_ALIVE.append(value)
        return value

    def count_on_this_host(self) -> int:
        """Return the number of workers on this machine; 0 for a single process."""
        return self.cluster.hosts.count(self.cluster.hosts[self.index]) if self.cluster else 0

    def speedup(self) -> int:
        """Return the speed of all devices relative to one device; the CPU devices of one machine share its cores."""
        if hardware.has_accelerator():
            return self.strategy.num_replicas_in_sync
        return len(set(self.cluster.hosts)) if self.cluster else 1

    @contextlib.contextmanager
    def report_lost(self, last_checkpoint: Callable[[], str]) -> Iterator[None]:
        """Turn the error that a lost worker causes into a `TrainingError`, and name this worker in errors."""
        try:
            yield
        except UserError as error:
            if self.count > 1:
                error.args = (f"worker {self.index}: {error}",)
            raise
        except tf.errors.OpError as error:
            if self.count == 1 or not (isinstance(error, LOST) or ABORTED in str(error)):
                raise
            raise TrainingError(
                f"worker {self.index}: {self._lost_worker(error)} does not answer any more, so this one stops: see its"
                f" output. Start all workers again; {last_checkpoint()}"
            ) from error
        finally:
            if self.count > 1:
                time.sleep(LEAVE_SECONDS)

    def _sum_rows(self, rows: tf.Tensor) -> tf.Tensor:
        local = self.strategy.num_replicas_in_sync // self.count

        def rows_of_first_replica(rows: tf.Tensor) -> tf.Tensor:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return rows * tf.cast(tf.equal(replica % local, 0), tf.int64)

        per_replica = self.strategy.run(rows_of_first_replica, args=(rows,))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)

    def _lost_worker(self, error: tf.errors.OpError) -> str:
        """Return the name of the lost worker, if the error names its task."""
        text = re.sub(r"{{.*?}}", "", str(error))  # without the operation that noticed the loss
        named = [worker for worker in map(int, re.findall(r"task:(\d+)", text)) if worker != self.index]
        return self._describe(named[0]) if named and named[0] < self.count else "a worker"

    def _describe(self, worker: int) -> str:
        return self.cluster.describe(worker) if self.cluster else "this process"


class Watchdog:
    """Context manager that ends the process with exit code 1 if training makes no progress for too long.

    A step waits without end for a worker that is alive but stuck, or for storage that hangs. So a thread ends the
    process `seconds` after the last `beat`. It counts only time in which this process runs, not a Ctrl-Z.
    `newest_checkpoint` returns a folder, or `None`, for the message; it must not wait for storage.
    """

    def __init__(self, seconds: int | None, newest_checkpoint: Callable[[], object], prefix: str = "") -> None:
        self._seconds = seconds
        self._newest_checkpoint = newest_checkpoint
        self._prefix = prefix
        self._still = 0.0  # seconds since the last beat
        self._done = threading.Event()

    def beat(self) -> None:
        """Note that training makes progress."""
        self._still = 0.0

    def __enter__(self) -> Watchdog:
        if self._seconds is not None:
            threading.Thread(target=self._watch, args=(self._seconds,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()

    def _watch(self, seconds: int) -> None:
        while not self._done.wait(WATCH_INTERVAL):
            self._still += WATCH_INTERVAL
            if self._still >= seconds:
                hint = "There is no checkpoint yet"
                if newest := self._newest_checkpoint():
                    hint = f"The last checkpoint is {newest}, and the same command resumes"
                terminal.end(
                    f"{self._prefix}no step, evaluation or checkpoint has ended for {seconds} s (--step_timeout), so"
                    f" training stops: a worker or its storage is stuck. {hint}",
                    1,
                )
