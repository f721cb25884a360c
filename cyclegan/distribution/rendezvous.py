"""Wait for all workers before TensorFlow starts, because TensorFlow waits silently and without end; no TensorFlow.

Each worker listens at its own address, greets all others and keeps the connections. A worker that has greeted all others and
was greeted by all of them is done: it sends `DONE` on all connections and leaves the port to TensorFlow. A connection that
ends without `DONE` belongs to a lost worker, which has to connect again.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
import zlib
from collections.abc import Iterable
from typing import Optional

from cyclegan.distribution.cluster import Cluster
from cyclegan.errors import UserError

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 2.0  # for one attempt to reach one worker
ACCEPT_SECONDS = 0.2  # to wait for greetings
PATIENCE = 10.0  # seconds until a warning names the missing workers
GREETING_BYTES = 200  # at most
DONE = b"."  # the last message of a worker that has met all others

Connections = dict[int, Optional[socket.socket]]  # by worker; `None` for a worker that has sent `DONE`


def meet(cluster: Cluster, timeout: float, configuration: str = "") -> None:
    """Wait until all workers of a cluster have met.

    Args:
        cluster: The cluster, as seen by this worker.
        timeout: Seconds to wait.
        configuration: A short text that has to be the same on all workers.

    Raises:
        UserError: The port of this worker is taken, or a worker did not come in time or has another configuration.
    """
    own = cluster.addresses[cluster.index]
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(_listen(_endpoint(own)[1], cluster.count))
        except OSError as error:
            raise UserError(
                f"worker {cluster.index}: can't listen on {own} ({error.strerror}): expected a free port of this machine"
            ) from error
        rendezvous = _Rendezvous(cluster, configuration, stack)
        rendezvous.wait(server, timeout)
    rendezvous.check_configurations()


class _Rendezvous:
    """The connections of one worker to all others while they find each other."""

    def __init__(self, cluster: Cluster, configuration: str, stack: contextlib.ExitStack) -> None:
        self.cluster = cluster
        self.configuration = configuration
        self.stack = stack  # closes the connections
        self.others = set(range(cluster.count)) - {cluster.index}
        self.greeted: Connections = {}  # by this worker
        self.greeted_by: Connections = {}
        self.unreached = set(self.others)  # workers that this one has not greeted yet
        self.unheard = set(self.others)  # workers that have not greeted this one yet
        self.configurations: dict[int, str] = {}

    def wait(self, server: socket.socket, timeout: float) -> None:
        """Greet the other workers and accept their greetings until all have met."""
        began, warned = time.monotonic(), False
        while not set(self.greeted) == set(self.greeted_by) == self.others:
            self._greet_others(began + timeout)
            self._accept_greetings(server)
            for connections in (self.greeted, self.greeted_by):
                _forget_lost(connections)
            missing = self._list(self.others - (set(self.greeted) & set(self.greeted_by)))
            waited = time.monotonic() - began
            if waited > PATIENCE and missing and not warned:
                logger.warning("%s is waiting for %s", self.cluster.describe(self.cluster.index), missing)
                warned = True
            if waited > timeout and missing:
                raise UserError(self._explain_missing(missing, timeout))
        for connection in (*self.greeted.values(), *self.greeted_by.values()):
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

    def _greet_others(self, deadline: float) -> None:
        greeting = _greeting(self.cluster, self.cluster.index) + self.configuration.encode()
        for worker in self.others - set(self.greeted):
            if time.monotonic() < deadline:
                with contextlib.suppress(OSError, UnicodeError):  # the host is not known yet, or its name is impossible
                    connection = _greet(_endpoint(self.cluster.addresses[worker]), greeting)
                    self.greeted[worker] = connection
                    self.stack.callback(_close, connection)
                    self.unreached.discard(worker)

    def _accept_greetings(self, server: socket.socket) -> None:
        for worker, configuration, connection in _accept(server, self.cluster):
            self.greeted_by[worker] = connection
            self.configurations[worker] = configuration
            self.stack.callback(_close, connection)
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
                f" and was not greeted by {self._list(self.unheard - self.unreached)}, where something answers: expected a worker"
                f" there, with the same addresses in TF_CONFIG, which can reach {self.cluster.addresses[self.cluster.index]}"
            )
        if not self.unheard | self.unreached:
            text += f" for {missing}, which came and went away again: look at its output"
        return text


def _endpoint(address: str) -> tuple[str, int]:
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)


def _listen(port: int, workers: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        server = socket.create_server(("", port), family=socket.AF_INET6, backlog=2 * workers, dualstack_ipv6=True)
    else:
        server = socket.create_server(("", port), backlog=2 * workers)
    server.settimeout(ACCEPT_SECONDS)
    return server


def _greeting(cluster: Cluster, worker: int) -> bytes:
    """Return the greeting of a worker; its checksum ensures that both workers have the same list of addresses."""
    return f"CycleGAN worker {worker} of {zlib.crc32(repr(cluster.addresses).encode()):08x}, ".encode()


def _greet(endpoint: tuple[str, int], greeting: bytes) -> socket.socket:
    connection = socket.create_connection(endpoint, timeout=CONNECT_SECONDS)
    try:
        connection.sendall(greeting)
        connection.setblocking(False)
    except OSError:
        connection.close()
        raise
    return connection


def _accept(server: socket.socket, cluster: Cluster) -> list[tuple[int, str, socket.socket]]:
    """Return (worker, its configuration, connection) for each greeting that comes within `ACCEPT_SECONDS`."""
    workers = {_greeting(cluster, worker): worker for worker in range(cluster.count)}
    accepted, began = [], time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - began < ACCEPT_SECONDS:
            connection, _ = server.accept()
            try:
                connection.settimeout(CONNECT_SECONDS)
                greeting, comma, configuration = connection.recv(GREETING_BYTES).partition(b", ")
                accepted.append((workers[greeting + comma], configuration.decode(errors="replace"), connection))
                connection.setblocking(False)
            except (OSError, KeyError):  # not a worker of this cluster
                connection.close()
    return accepted


def _forget_lost(connections: Connections) -> None:
    """Mark workers that have sent `DONE` by `None`, and remove workers whose connection has ended without it."""
    for worker, connection in list(connections.items()):
        if connection is None:
            continue
        try:
            message = connection.recv(len(DONE))
        except BlockingIOError:
            continue  # the worker is there and looks for others
        except OSError:
            message = b""
        if message == DONE:
            connections[worker] = None
        else:  # the worker is gone, or something else answered
            del connections[worker]


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.close()
