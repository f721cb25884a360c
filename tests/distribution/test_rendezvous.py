import contextlib
import socket
import threading

import pytest

from cyclegan.distribution import rendezvous
from cyclegan.distribution.cluster import Cluster
from cyclegan.errors import UserError


def addresses(count):
    held = [socket.create_server(("", 0)) for _ in range(count)]
    found = tuple(f"127.0.0.1:{each.getsockname()[1]}" for each in held)
    for each in held:
        each.close()
    return found


def meet(found, seconds=20.0, delays=None, lists=None, configurations=None, secrets=None):
    """Call `meet` in a thread per worker; return the error of each worker, or `None`."""
    outcomes = [None] * len(found)

    def one(index):
        threading.Event().wait((delays or {}).get(index, 0))
        try:
            cluster = Cluster((lists or {}).get(index, found), index)
            secret = (secrets or {}).get(index, b"")
            rendezvous.meet(cluster, seconds, (configurations or {}).get(index, "4 GPUs"), secret)
        except UserError as error:
            outcomes[index] = str(error)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@contextlib.contextmanager
def flood(address, count, say=lambda connection: None):
    """Keep up to `count` connections to a worker open as soon as it listens, and replace those that it closes."""
    done, held = threading.Event(), []

    def fill():
        while not done.is_set():
            for connection in [each for each in held if is_closed(each)]:
                held.remove(connection)
                connection.close()
            try:
                while len(held) < count and not done.is_set():
                    held.append(socket.create_connection(rendezvous._endpoint(address), timeout=1))
                    say(held[-1])
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
            return socket.create_connection(rendezvous._endpoint(address), timeout=1)
        threading.Event().wait(0.01)
    raise AssertionError(f"nobody listens on {address}")


def test_workers_meet_in_any_order():
    for late in range(3):
        assert meet(addresses(3), delays={late: 0.5}) == [None] * 3


def test_ports_are_free_afterwards():
    found = addresses(2)
    for _ in range(2):
        assert meet(found) == [None] * 2


def test_missing_workers_are_logged(monkeypatch, caplog):
    monkeypatch.setattr(rendezvous, "PATIENCE", 0.3)
    found = addresses(2)
    outcomes = meet(found, delays={1: 1.0})
    assert outcomes == [None, None]
    assert caplog.messages == [f"worker 0 ({found[0]}) is waiting for {found[1]}"]


def test_missing_worker_is_reported():
    found = addresses(3)
    outcomes = meet(found[:2], 0.5, lists=dict.fromkeys((0, 1), found))
    for worker, outcome in enumerate(outcomes):
        assert outcome.startswith(f"worker {worker} ({found[worker]}) waited for 0.5 s (--start_timeout) and could not")
        assert f"could not reach {found[2]}: expected a worker at each" in outcome and found[1 - worker] not in outcome


def test_unknown_host_is_reported_as_missing():
    for name in ("no-such-host.invalid", "no..name"):
        found = (*addresses(1), f"{name}:80")
        with pytest.raises(UserError, match=f"could not reach {name}:80"):
            rendezvous.meet(Cluster(found, 0), 0.1)


def test_silent_server_is_no_worker():
    with socket.create_server(("", 0)) as other:
        found = (*addresses(1), f"127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(UserError, match=f"was not greeted by {found[1]}, where something answers"):
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
        with pytest.raises(UserError, match=f"was not greeted by {found[1]}, where something answers"):
            rendezvous.meet(Cluster(found, 0), 1.0)


def test_strange_client_is_ignored():
    found = addresses(2)
    done = threading.Event()

    def stranger():
        while not done.wait(0.05):
            try:
                with socket.create_connection(rendezvous._endpoint(found[0]), timeout=1) as connection:
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


def test_workers_with_other_addresses_do_not_meet():
    found = addresses(3)
    outcomes = meet(found[:2], 0.5, lists={0: found[:2], 1: found})
    assert f"was not greeted by {found[1]}" in outcomes[0] and f"could not reach {found[2]}" in outcomes[1]


def test_other_configuration_is_reported():
    found = addresses(3)
    outcomes = meet(found, configurations={1: "2 GPUs"})
    assert outcomes == [
        f"worker {worker} ({found[worker]}) has {here} GPUs, but worker {other} ({found[other]}) has {there} GPUs: expected the"
        " same for all"
        for worker, here, other, there in ((0, 4, 1, 2), (1, 2, 0, 4), (2, 4, 1, 2))
    ]


def test_restarted_worker_is_met_again():
    found = addresses(3)
    with pytest.raises(
        UserError, match=f"could not reach {found[2]}"
    ):  # worker 0 has greeted worker 1, and worker 2 is not there yet
        first = threading.Thread(target=lambda: outcomes.append(meet_as(0)), daemon=True)
        outcomes = []
        meet_as = lambda index, seconds=20.0: rendezvous.meet(Cluster(found, index), seconds)  # noqa: E731
        first.start()
        meet_as(1, 0.7)
    others = [threading.Thread(target=lambda index=index: outcomes.append(meet_as(index))) for index in (1, 2)]
    for thread in others:
        thread.start()
    for thread in (first, *others):
        thread.join(30)
    assert outcomes == [None, None, None]


def test_taken_port_is_refused():
    with socket.create_server(("", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(UserError, match=f"worker 0: can't listen on {taken} .*: expected a free port"):
            rendezvous.meet(Cluster((taken, "127.0.0.1:9"), 0), 1)


@pytest.mark.parametrize(
    "say",
    [
        lambda connection: None,
        lambda connection: connection.sendall(b"CycleGAN worker"),
        lambda connection: connection.sendall(b"x" * 10000),
    ],
    ids=["silent", "half a greeting", "garbage"],
)
def test_idle_connections_do_not_keep_workers_apart(say):
    found = addresses(2)
    with flood(found[0], 56, say):
        assert meet(found, 5.0, delays={1: 0.3}) == [None] * 2


def test_unanswered_connections_are_closed(monkeypatch):
    monkeypatch.setattr(rendezvous, "GREETING_SECONDS", 0.1)
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
        assert f"was not greeted by {other}" in outcome
        assert f"greetings of {other} had another secret: expected the same --rendezvous_secret_file" in outcome


def greet(connection, cluster, worker, other, secret, challenge=None):
    """Greet a worker in the name of another one; return the challenge that it sent."""
    received = connection.makefile("rb").readline().strip()
    text = rendezvous._greeting(cluster, worker, other) + b"4 GPUs"
    code = rendezvous._Rendezvous(cluster, "", secret)._sign(text, challenge or received)
    connection.sendall(text + b" " + code + b"\n")
    return received


def test_forged_greetings_are_told_from_real_ones():
    found, secret = addresses(2), b"s" * 16
    cluster = Cluster(found, 1)
    with flood(found[0], 1, lambda connection: greet(connection, cluster, 1, 0, b"guessed")):
        assert meet(found, 5.0, delays={1: 0.3}, secrets={0: secret, 1: secret}) == [None] * 2
    with flood(found[0], 1, lambda connection: greet(connection, cluster, 1, 0, b"guessed")):
        (outcome,) = meet(found[:1], 0.5, lists={0: found}, secrets={0: secret})
        assert f"greetings of {found[1]} had another secret" in outcome


def test_overheard_greeting_is_refused():
    found, secret = addresses(2), b"s" * 16
    overheard, answers = [], []

    def replay(connection):
        overheard.append(greet(connection, Cluster(found, 1), 1, 0, secret, *overheard[:1]))
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


def test_secret_is_read_from_a_file(tmp_path):
    path = tmp_path / "secret"
    with pytest.raises(
        UserError, match=f"--rendezvous_secret_file {path}: No such file.*; expected a file that can be"
    ):
        rendezvous.read_secret(str(path))
    path.write_bytes(b"short\n")
    with pytest.raises(UserError, match=f"--rendezvous_secret_file {path}: 5 bytes; expected at least 16 random ones"):
        rendezvous.read_secret(str(path))
    path.write_bytes(b"0123456789abcdef\n")
    assert rendezvous.read_secret(str(path)) == b"0123456789abcdef" and rendezvous.read_secret(None) == b""
