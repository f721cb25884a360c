"""Workers meet although strangers connect to them, answer in their place, or pose as one."""

import contextlib
import socket
import threading

import pytest

from cyclegan.distribution import handshake, rendezvous
from cyclegan.distribution.cluster import Cluster
from cyclegan.distribution.connections import endpoint
from cyclegan.errors import UserError
from tests.distribution.rendezvous_threads import addresses, meet


@contextlib.contextmanager
def flood(address, count, send=lambda connection: None):
    """Hold up to `count` connections to a worker from the moment that it listens; open a new one for each that it closes."""
    done, held = threading.Event(), []

    def fill():
        while not done.is_set():
            for connection in [each for each in held if is_closed(each)]:
                held.remove(connection)
                connection.close()
            try:
                while len(held) < count and not done.is_set():
                    held.append(socket.create_connection(endpoint(address), timeout=1))
                    send(held[-1])
                    held[-1].setblocking(False)
            except OSError:
                pass
            done.wait(0.02)

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield held
    finally:
        done.set()
        thread.join()
        for each in held:
            each.close()


def is_closed(connection):
    """Return whether the other side has closed a connection, after reading what it sent."""
    try:
        while connection.recv(1000):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def connect(address):
    """Connect to a worker as soon as it listens."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            return socket.create_connection(endpoint(address), timeout=1)
        threading.Event().wait(0.01)
    raise AssertionError(f"nobody listens on {address}")


def test_silent_server_is_no_worker():
    with socket.create_server(("", 0)) as other:
        found = (*addresses(1), f"127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(UserError, match=f"received no handshake from {found[1]}, where something answers"):
            rendezvous.meet(Cluster(found, 0), 0.3)


def test_talking_server_is_no_worker():
    with socket.create_server(("", 0)) as other:
        found = (*addresses(1), f"127.0.0.1:{other.getsockname()[1]}")

        def speak():
            held = []
            while True:
                try:
                    held.append(other.accept()[0])
                    held[-1].sendall(b"SSH-2.0-OpenSSH\r\n")
                except OSError:
                    return

        speaker = threading.Thread(target=speak, daemon=True)
        speaker.start()
        with pytest.raises(UserError, match=f"received no handshake from {found[1]}, where something answers"):
            rendezvous.meet(Cluster(found, 0), 1.0)


def test_strange_client_is_ignored():
    found = addresses(2)
    done = threading.Event()

    def stranger():
        while not done.wait(0.05):
            try:
                with socket.create_connection(endpoint(found[0]), timeout=1) as connection:
                    connection.sendall(b"GET / HTTP/1.0\r\n\r\n" + b"x" * 200)
            except OSError:
                pass

    thread = threading.Thread(target=stranger)
    thread.start()
    try:
        assert meet(found, delays={1: 0.5}) == [None] * 2
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(
    "send",
    [
        lambda connection: None,
        lambda connection: connection.sendall(b"CycleGAN worker"),
        lambda connection: connection.sendall(b"x" * 10000),
    ],
    ids=["silent", "half a handshake", "garbage"],
)
def test_idle_connections_do_not_keep_workers_apart(send):
    found = addresses(2)
    with flood(found[0], 56, send):
        assert meet(found, 5.0, delays={1: 0.3}) == [None] * 2


def test_more_idle_connections_than_are_kept_do_not_keep_workers_apart():
    found = addresses(2)
    with flood(found[0], rendezvous.CALLERS + 100, lambda connection: None):
        assert meet(found, 10.0, delays={1: 0.5}) == [None] * 2


def test_unanswered_connections_are_closed(monkeypatch):
    monkeypatch.setattr(rendezvous, "HANDSHAKE_SECONDS", 0.1)
    found = addresses(2)
    waiting = threading.Thread(target=meet, args=(found[:1], 0.8), kwargs={"lists": {0: found}})
    waiting.start()
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(found[0])) for _ in range(2)]
        for each in idle:
            each.settimeout(0.6)
            with contextlib.suppress(ConnectionResetError):
                while each.recv(100):
                    pass  # the challenge, then the end
    waiting.join()


def test_pending_connections_are_bounded():
    found = addresses(2)
    waiting = threading.Thread(target=meet, args=(found[:1], 1.0), kwargs={"lists": {0: found}})
    waiting.start()
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(found[0])) for _ in range(rendezvous.CALLERS + len(found) + 20)]
        threading.Event().wait(0.4)
        for each in idle:
            each.setblocking(False)
        assert sum(map(is_closed, idle)) == 20
    waiting.join()


def test_workers_with_the_same_secret_meet():
    assert meet(addresses(3), secrets=dict.fromkeys(range(3), b"s" * 16)) == [None] * 3


def test_other_secret_is_reported():
    found = addresses(2)
    for worker, outcome in enumerate(meet(found, 0.5, secrets={0: b"s" * 16})):
        other = found[1 - worker]
        assert f"received no handshake from {other}" in outcome
        assert f"handshakes of {other} had another secret: expected the same --rendezvous_secret_file" in outcome


def send_handshake(connection, cluster, worker, other, secret, challenge=None):
    """Send a handshake to a worker in the name of another one; return the challenge that it sent."""
    received = connection.makefile("rb").readline().strip()
    text = handshake.message(cluster, worker, other) + b"4 GPUs"
    code = handshake.sign(secret, text, challenge or received)
    connection.sendall(text + b" " + code + b"\n")
    return received


def test_forged_handshakes_are_refused():
    found, secret = addresses(2), b"s" * 16
    cluster = Cluster(found, 1)
    with flood(found[0], 1, lambda connection: send_handshake(connection, cluster, 1, 0, b"guessed")):
        assert meet(found, 5.0, delays={1: 0.3}, secrets={0: secret, 1: secret}) == [None] * 2
    with flood(found[0], 1, lambda connection: send_handshake(connection, cluster, 1, 0, b"guessed")):
        (outcome,) = meet(found[:1], 0.5, lists={0: found}, secrets={0: secret})
        assert f"handshakes of {found[1]} had another secret" in outcome


def test_overheard_handshake_is_refused():
    found, secret = addresses(2), b"s" * 16
    overheard, answers = [], []

    def replay(connection):
        overheard.append(send_handshake(connection, Cluster(found, 1), 1, 0, secret, *overheard[:1]))
        connection.settimeout(0.2)
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            answers.append(connection.recv(1))  # b"" if it is refused
        connection.close()

    waiting = threading.Thread(target=meet, args=(found[:1], 0.6), kwargs={"lists": {0: found}, "secrets": {0: secret}})
    waiting.start()
    for _ in range(2):
        replay(connect(found[0]))
    waiting.join()
    assert len(overheard) == 2 and answers == [b""]  # the first one was kept
