"""Wait for all workers before TensorFlow starts, because TensorFlow waits silently and without end; no TensorFlow.

Each worker listens at its own address, sends a handshake to every other worker and keeps the connections. After it has sent
all handshakes and received one from every other worker, it sends `DONE` on all connections and leaves the port to TensorFlow. A
connection that ends without `DONE` belongs to a lost worker, which has to connect again.

A worker sends a random challenge on every connection that it accepts. The handshake that answers it ends with an HMAC of both,
whose key is the secret that the workers share. So nobody without the secret can pose as a worker, even by repeating a handshake
of another connection. The handshake is a line that has to come within `HANDSHAKE_SECONDS`; nothing waits for it.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import random
import socket
import time
from collections.abc import Iterable

from cyclegan.distribution import handshake
from cyclegan.distribution.cluster import Cluster
from cyclegan.distribution.connections import DONE, Connections, PendingLine, close, endpoint, forget_lost, listen
from cyclegan.errors import UserError

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 2.0  # for one attempt to reach one worker
CONNECT_INTERVAL = 0.2  # seconds between attempts
POLL_INTERVAL = 0.02  # seconds
HANDSHAKE_SECONDS = 5.0  # for a connection until its challenge or handshake has come
PATIENCE = 10.0  # seconds until a warning names the missing workers
CALLERS = 256  # connections besides those of the workers that may wait for their handshakes


def meet(cluster: Cluster, timeout: float, configuration: str = "", secret: bytes = b"") -> None:
    """Wait until all workers of a cluster have met.

    Args:
        cluster: The cluster, as seen by this worker.
        timeout: Seconds to wait.
        configuration: A short text that has to be the same on all workers.
        secret: Secret of the workers; empty if they trust everyone who can reach their ports.

    Raises:
        UserError: The port of this worker is taken, or a worker did not come in time or has another configuration.
    """
    own = cluster.addresses[cluster.index]
    try:
        server = listen(endpoint(own)[1])
    except OSError as error:
        raise UserError(
            f"worker {cluster.index}: can't listen on {own} ({error.strerror}): expected a free port of this machine"
        ) from error
    rendezvous = _Rendezvous(cluster, configuration, secret)
    with server, contextlib.closing(rendezvous):
        rendezvous.wait(server, timeout)
    rendezvous.check_configurations()


class _Rendezvous:
    """The connections of one worker to all others while they find each other."""

    def __init__(self, cluster: Cluster, configuration: str, secret: bytes) -> None:
        self.cluster = cluster
        self.configuration = configuration
        self.secret = secret
        self.others = set(range(cluster.count)) - {cluster.index}
        self.expected = {handshake.message(cluster, worker, cluster.index): worker for worker in self.others}
        self.called: dict[int, PendingLine] = {}  # by worker; the challenge has to come
        self.callers: list[PendingLine] = []  # unknown until their handshakes come
        self.sent: Connections = {}  # with the handshake of this worker
        self.received: Connections = {}  # with the handshake of the other worker
        self.forged: set[int] = set()  # workers in whose name a handshake with another secret came
        self.unreached = set(self.others)  # workers to which this one has not connected yet
        self.unheard = set(self.others)  # workers whose handshakes have not come yet
        self.configurations: dict[int, str] = {}

    def wait(self, server: socket.socket, timeout: float) -> None:
        """Exchange handshakes with the other workers until all have met."""
        began, warned = time.monotonic(), False
        next_attempt = began
        while not set(self.sent) == set(self.received) == self.others:
            if time.monotonic() >= next_attempt:
                self._connect(began + timeout)
                next_attempt = time.monotonic() + CONNECT_INTERVAL
            self._accept(server)
            self._answer_challenges()
            time.sleep(POLL_INTERVAL)
            self._read_handshakes()
            self._limit_callers()
            for connections in (self.sent, self.received):
                forget_lost(connections)
            missing = self._list(self.others - (set(self.sent) & set(self.received)))
            waited = time.monotonic() - began
            if waited > PATIENCE and missing and not warned:
                logger.warning("%s is waiting for %s", self.cluster.describe(self.cluster.index), missing)
                warned = True
            if waited > timeout and missing:
                raise UserError(self._explain_missing(missing, timeout))
        for connection in (*self.sent.values(), *self.received.values()):
            if connection:
                with contextlib.suppress(OSError):
                    connection.sendall(DONE)

    def check_configurations(self) -> None:
        """Raise `UserError` if another worker has another configuration."""
        for worker, configuration in sorted(self.configurations.items()):
            if configuration != self.configuration:
                raise UserError(
                    f"{self.cluster.describe(self.cluster.index)} has {self.configuration}, but {self.cluster.describe(worker)}"
                    f" has {configuration}: expected the same for all"
                )

    def close(self) -> None:
        """Close all connections."""
        for pending in (*self.callers, *self.called.values()):
            pending.connection.close()
        for connection in (*self.sent.values(), *self.received.values()):
            close(connection)

    def _connect(self, deadline: float) -> None:
        """Connect to workers that have no handshake of this one, in any order, for at most about `CONNECT_SECONDS`."""
        began = time.monotonic()
        left = self.others - set(self.sent) - set(self.called)
        for worker in random.SystemRandom().sample(sorted(left), len(left)):
            if time.monotonic() >= min(deadline, began + CONNECT_SECONDS):
                break
            with contextlib.suppress(OSError, UnicodeError):  # the host is not known yet, or its name is impossible
                connection = socket.create_connection(endpoint(self.cluster.addresses[worker]), CONNECT_SECONDS)
                connection.setblocking(False)
                self.called[worker] = PendingLine(connection, b"", time.monotonic() + HANDSHAKE_SECONDS)
                self.unreached.discard(worker)

    def _answer_challenges(self) -> None:
        """Send handshakes to the workers whose challenges have come."""
        for worker, pending in list(self.called.items()):
            try:
                challenge = pending.read_line(handshake.CHALLENGE_BYTES)
                if challenge is None:
                    continue
                # A fixed length, so that a challenge is no part of a handshake.
                if len(challenge) != handshake.CHALLENGE_BYTES - 1:
                    raise ConnectionError("not a worker")
                message = handshake.message(self.cluster, self.cluster.index, worker) + self.configuration.encode()
                code = handshake.sign(self.secret, message, challenge)
                pending.connection.sendall(message + b" " + code + b"\n")
                self.sent[worker] = pending.connection
            except OSError:  # not a worker, or a busy one
                pending.connection.close()
            del self.called[worker]

    def _accept(self, server: socket.socket) -> None:
        """Accept connections, and send a challenge on each."""
        with contextlib.suppress(OSError):  # no more of them, or one that has ended already
            for _ in range(CALLERS + self.cluster.count):
                connection, _ = server.accept()
                challenge = handshake.make_challenge()
                self.callers.append(PendingLine(connection, challenge, time.monotonic() + HANDSHAKE_SECONDS))
                connection.setblocking(False)
                connection.sendall(challenge + b"\n")

    def _read_handshakes(self) -> None:
        """Note the workers whose handshakes have come; close the connections of all others."""
        for caller in list(self.callers):
            try:
                line = caller.read_line(handshake.MESSAGE_BYTES)
                if line is None:
                    continue
                self._note_handshake(line, caller)
            except OSError:
                caller.connection.close()
            self.callers.remove(caller)

    def _limit_callers(self) -> None:
        """Close connections whose handshakes have not come, if there are too many: any of them, as one may be a worker's."""
        while len(self.callers) > CALLERS + self.cluster.count:
            self.callers.pop(random.randrange(len(self.callers))).connection.close()

    def _note_handshake(self, line: bytes, caller: PendingLine) -> None:
        text, _, code = line.rpartition(b" ")
        start, comma, configuration = text.partition(b", ")
        worker = self.expected.get(start + comma)
        if worker is None:
            raise ConnectionError("not a worker of this cluster")
        if not hmac.compare_digest(code, handshake.sign(self.secret, text, caller.challenge)):
            self.forged.add(worker)
            raise ConnectionError("not the secret of this cluster")
        close(self.received.get(worker))  # of a worker that was started again
        self.received[worker] = caller.connection
        self.configurations[worker] = configuration.decode(errors="replace")
        self.unheard.discard(worker)

    def _list(self, workers: Iterable[int]) -> str:
        return ", ".join(self.cluster.addresses[worker] for worker in sorted(workers))

    def _explain_missing(self, missing: str, timeout: float) -> str:
        text = f"{self.cluster.describe(self.cluster.index)} waited for {timeout} s (--start_timeout)"
        if self.unreached:
            text += (
                f" and could not reach {self._list(self.unreached)}: expected a worker at each; are they started, do firewalls let"
                " them through?"
            )
        if self.unheard - self.unreached:
            text += (
                f" and received no handshake from {self._list(self.unheard - self.unreached)}, where something answers: expected"
                " a worker there, with the same addresses in TF_CONFIG, which can reach"
                f" {self.cluster.addresses[self.cluster.index]}"
            )
        if not self.unheard | self.unreached:
            text += f" for {missing}, which came and went away again: look at its output"
        if forged := self.forged & self.unheard:
            text += (
                f"; handshakes of {self._list(forged)} had another secret: expected the same --rendezvous_secret_file for all"
                " workers"
            )
        return text
