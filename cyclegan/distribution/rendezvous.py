"""Workers find each other at start, before TensorFlow waits for them for ever and without a word; no TensorFlow.

Each listens at its own address and greets all others, and keeps the connections. A worker that has greeted all and has been greeted
by all is not needed any more by those that are still looking: it says so on all connections, and leaves the port to TensorFlow. A
connection that ends without that word is of a worker that is gone, which has to come again.
"""

import contextlib
import logging
import socket
import time
import zlib

from cyclegan.errors import UserError

logger = logging.getLogger(__name__)

TRY_SECONDS = 2.0  # for one attempt to reach one worker
LOOK_SECONDS = 0.2  # for somebody who comes
PATIENCE = 10.0  # seconds after which the user is told who is waited for
LONGEST = 200  # bytes of a greeting
MET = b"."  # the last word of a worker that has met all


def meet(members, seconds, having=""):
    """Returns when all workers have met.

    Args:
        members: the `cluster.Cluster`.
        seconds: how long to wait.
        having: what all workers have to have in common, a short text.

    Raises:
        UserError: the port of this worker is taken; not all have come in time, and it says who has not; or another has something
            else.
    """
    own = members.addresses[members.index]
    others = set(range(members.count)) - {members.index}
    reached, heard = {}, {}  # connections by worker; `None` for one that has left because it has met all
    unreached, unheard = set(others), set(others)  # so far at any time
    theirs = {}  # what they have, by worker
    began, told = time.monotonic(), False
    with contextlib.ExitStack() as stack:
        try:
            listening = stack.enter_context(_listening(_endpoint(own)[1], members.count))
        except OSError as error:
            raise UserError(
                f"worker {members.index}: {own} can't be listened on ({error.strerror}): expected a free port of this machine"
            ) from error
        while not set(reached) == set(heard) == others:
            for worker in others - set(reached):
                if time.monotonic() - began < seconds:
                    with contextlib.suppress(OSError, UnicodeError):  # a name that is not known yet, or can't be one
                        address = _endpoint(members.addresses[worker])
                        reached[worker] = _greeted(address, _greeting(members, members.index) + having.encode())
                        stack.callback(_close, reached[worker])
            for worker, has, connection in _who_comes(listening, members):
                heard[worker], theirs[worker] = connection, has
                stack.callback(_close, connection)
            unreached -= set(reached)
            unheard -= set(heard)
            for connections in (reached, heard):
                _forget_who_is_gone(connections)
            waited = time.monotonic() - began
            missing = ", ".join(members.addresses[worker] for worker in sorted(others - (set(reached) & set(heard))))
            if waited > PATIENCE and missing and not told:
                logger.warning("worker %d (%s) is waiting for %s", members.index, own, missing)
                told = True
            if waited > seconds and missing:
                raise UserError(_who_is_missing(members, unreached, unheard, missing, seconds))
        for connection in (*reached.values(), *heard.values()):
            if connection:
                with contextlib.suppress(OSError):
                    connection.sendall(MET)
    for worker, has in sorted(theirs.items()):
        if has != having:
            raise UserError(
                f"worker {members.index} ({own}) has {having}, but worker {worker} ({members.addresses[worker]}) has {has}:"
                " expected the same for all"
            )


def _endpoint(address):
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)


def _listening(port, count):
    both = {"family": socket.AF_INET6, "dualstack_ipv6": True} if socket.has_dualstack_ipv6() else {}
    server = socket.create_server(("", port), backlog=2 * count, **both)
    server.settimeout(LOOK_SECONDS)
    return server


def _greeting(members, worker):
    """The same for a worker only if both know the same workers."""
    return f"CycleGAN worker {worker} of {zlib.crc32(repr(members.addresses).encode()):08x}, ".encode()


def _greeted(address, greeting):
    """A connection over which a worker has been greeted."""
    connection = socket.create_connection(address, timeout=TRY_SECONDS)
    try:
        connection.sendall(greeting)
        connection.setblocking(False)
    except OSError:
        connection.close()
        raise
    return connection


def _who_comes(listening, members):
    """(worker, what it has, connection) for each whose greeting is heard within `LOOK_SECONDS`."""
    greetings = {_greeting(members, worker): worker for worker in range(members.count)}
    came, began = [], time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - began < LOOK_SECONDS:
            connection, _ = listening.accept()
            try:
                connection.settimeout(TRY_SECONDS)
                greeting, comma, has = connection.recv(LONGEST).partition(b", ")
                came.append((greetings[greeting + comma], has.decode(errors="replace"), connection))
                connection.setblocking(False)
            except (OSError, KeyError):  # somebody else
                connection.close()
    return came


def _forget_who_is_gone(connections):
    for worker, connection in list(connections.items()):
        if connection is None:
            continue
        try:
            said = connection.recv(len(MET))
        except BlockingIOError:
            continue  # it is there, and looks for others
        except OSError:
            said = b""
        if said == MET:
            connections[worker] = None
        else:  # it has gone, or it is somebody else
            del connections[worker]


def _close(connection):
    with contextlib.suppress(OSError):
        connection.close()


def _who_is_missing(members, unreached, unheard, missing, seconds):
    def listed(workers):
        return ", ".join(members.addresses[worker] for worker in sorted(workers))

    own = members.addresses[members.index]
    text = f"worker {members.index} ({own}) waited for {seconds} s (--start_timeout)"
    if unreached:
        text += (
            f" and could not reach {listed(unreached)}: expected a worker at each; are they started, do firewalls let them"
            " through?"
        )
    if unheard - unreached:
        text += (
            f" and was not greeted by {listed(unheard - unreached)}, where something answers: expected a worker there, with the"
            f" same addresses in TF_CONFIG, which can reach {own}"
        )
    if not unheard | unreached:
        text += f" for {missing}, which came and went away again: look at what it printed"
    return text
