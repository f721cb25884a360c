"""Workers find each other at start, before TensorFlow waits for them for ever and without a word; no TensorFlow.

Each listens at its own address and greets all others. A worker that has been greeted by all and has greeted all is not needed
any more by those that are still looking, so it leaves the port to TensorFlow.
"""

import contextlib
import socket
import time
import zlib

from cyclegan.errors import UserError

TRY_SECONDS = 2.0  # for one attempt to reach one worker
LOOK_SECONDS = 0.2  # for somebody who comes
PATIENCE = 10.0  # seconds after which the user is told who is waited for
LONGEST = 100  # bytes of a greeting


def meet(members, seconds, say):
    """Returns when all workers have met.

    Args:
        members: the `cluster.Cluster`.
        seconds: how long to wait.
        say: called with a text if it takes a while.

    Raises:
        UserError: the port of this worker is taken, or not all have come in time; it says who has not.
    """
    own = members.addresses[members.index]
    others = set(range(members.count)) - {members.index}
    reached, heard = set(), set()
    began, told = time.monotonic(), False
    with contextlib.ExitStack() as stack:
        try:
            listening = stack.enter_context(_listening(_endpoint(own)[1], members.count))
        except OSError as error:
            raise UserError(
                f"worker {members.index}: {own} can't be listened on ({error.strerror}): expected a free port of this machine"
            ) from error
        while not reached == heard == others:
            for worker in others - reached:
                with contextlib.suppress(OSError):  # a name that is not known yet, too
                    address = _endpoint(members.addresses[worker])
                    stack.enter_context(_greeted(address, _greeting(members, members.index)))
                    reached.add(worker)
            heard |= _who_comes(listening, members)
            waited = time.monotonic() - began
            missing = ", ".join(members.addresses[worker] for worker in sorted(others - (reached & heard)))
            if waited > PATIENCE and missing and not told:
                say(f"worker {members.index} ({own}) is waiting for {missing}")
                told = True
            if waited > seconds and missing:
                raise UserError(_who_is_missing(members, others - reached, others - heard, seconds))


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
    return f"CycleGAN worker {worker} of {zlib.crc32(repr(members.addresses).encode()):08x}\n".encode()


def _greeted(address, greeting):
    """A connection over which a worker has been greeted. It stays: a connection that is closed early may lose what was sent."""
    connection = socket.create_connection(address, timeout=TRY_SECONDS)
    try:
        connection.sendall(greeting)
    except OSError:
        connection.close()
        raise
    return connection


def _who_comes(listening, members):
    """The workers whose greetings are heard within `LOOK_SECONDS`, a set."""
    greetings = {_greeting(members, worker): worker for worker in range(members.count)}
    heard, began = set(), time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - began < LOOK_SECONDS:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(TRY_SECONDS)
                heard.add(greetings.get(connection.recv(LONGEST)))
    return heard - {None}


def _who_is_missing(members, unreached, unheard, seconds):
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
    return text
