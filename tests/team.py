"""Workers in threads of one process, for tests of what they agree on."""

import threading

import numpy as np


class Team:
    """Stands in for `workers.Workers` in one thread of several."""

    def __init__(self, index, count, rows, barrier):
        self.index, self.count, self.is_chief = index, count, index == 0
        self._rows, self._barrier = rows, barrier

    def exchange(self, values):
        self._rows[self.index] = list(values)
        self._barrier.wait(60)
        rows = np.array(self._rows, np.int64)
        self._barrier.wait(60)
        return rows

    def of_chief(self, value):
        return int(self.exchange([value])[0, 0])

    def all(self, value):
        return bool(self.exchange([bool(value)]).all())


def in_threads(count, work):
    """What work(team) returned or raised in each of so many threads, a list."""
    rows, barrier, found = [None] * count, threading.Barrier(count), [None] * count

    def one(index):
        try:
            found[index] = work(Team(index, count, rows, barrier))
        except Exception as error:
            found[index] = error
            if not isinstance(error, threading.BrokenBarrierError):
                timer = threading.Timer(5, barrier.abort)  # the others do not wait for it for ever
                timer.daemon = True
                timer.start()

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
