"""Connections of workers that find each other; reading from them never blocks; no TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import time
from typing import Optional

BACKLOG = 1024  # connections between two polls; Linux makes one that is too many wait for a second
DONE = b"."  # the last message of a worker that has met all others

Connections = dict[int, Optional[socket.socket]]  # by worker; `None` for a worker that has sent `DONE`


def endpoint(address: str) -> tuple[str, int]:
    """Return the host and the port of an address."""
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)


def listen(port: int) -> socket.socket:
    """Return a socket that listens at a port.

    Raises:
        OSError: The port is taken.
    """
    if socket.has_dualstack_ipv6():
        server = socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    else:
        server = socket.create_server(("", port), backlog=BACKLOG)
    server.setblocking(False)
    return server


@dataclasses.dataclass(frozen=True)
class PendingLine:
    """A connection whose other side has to send a line.

    Attributes:
        connection: The connection, which does not block.
        challenge: The challenge that was sent; empty if one has to come.
        deadline: End of the wait.
    """

    connection: socket.socket
    challenge: bytes
    deadline: float

    def read_line(self, limit: int) -> bytes | None:
        """Return the line without its end, or `None` if it has not come yet; what comes after the line stays unread.

        Raises:
            OSError: The connection has ended, the deadline is over, or the line has more than `limit` bytes.
        """
        with contextlib.suppress(BlockingIOError):
            found = self.connection.recv(limit, socket.MSG_PEEK)
            length = found.find(b"\n") + 1
            if length:
                return self.connection.recv(length)[:-1]
            if len(found) in (0, limit):
                raise ConnectionError("not a line")
        if time.monotonic() > self.deadline:
            raise TimeoutError
        return None


def forget_lost(connections: Connections) -> None:
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
        connection.close()
        if message == DONE:
            connections[worker] = None
        else:  # the worker is gone, or something else answered
            del connections[worker]


def close(connection: socket.socket | None) -> None:
    """Close a connection, if there is one."""
    if connection:
        connection.close()
