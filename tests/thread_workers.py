"""Run workers as threads of one process, for tests of their collectives."""

import threading

import numpy as np

from cyclegan.distribution.workers import Workers


class ThreadWorkers:
    """Stand in for `workers.Workers` in one of several threads."""

    def __init__(self, index, count, rows, barrier):
        self.index, self.count, self.is_chief = index, count, index == 0
        self._rows, self._barrier = rows, barrier

    check_equal = Workers.check_equal

    def _describe(self, worker):
        return f"worker {worker}"

    def all_gather(self, values):
        self._rows[self.index] = list(values)
        self._barrier.wait(60)
        rows = np.array(self._rows, np.int64)
        self._barrier.wait(60)
        return rows

    def broadcast_from_chief(self, value):
        return int(self.all_gather([value])[0, 0])

    def all_true(self, value):
        return bool(self.all_gather([bool(value)]).all())


def in_threads(count, work):
    """Return the result or the exception of work(workers) in each of several threads."""
    rows, barrier, found = [None] * count, threading.Barrier(count), [None] * count

    def one(index):
        try:
            found[index] = work(ThreadWorkers(index, count, rows, barrier))
        except Exception as error:
            found[index] = error
            if not isinstance(error, threading.BrokenBarrierError):
                timer = threading.Timer(5, barrier.abort)  # so that the other threads do not wait forever
                timer.daemon = True
                timer.start()

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
