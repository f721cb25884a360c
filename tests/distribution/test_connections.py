import socket
import time

import pytest

from cyclegan.distribution.connections import DONE, PendingLine, endpoint, forget_lost, listen


@pytest.fixture
def pair():
    """Return both ends of a connection; reading from the first one does not block."""
    own, other = socket.socketpair()
    own.setblocking(False)
    with own, other:
        yield own, other


def pending(connection, seconds=60.0):
    return PendingLine(connection, b"", time.monotonic() + seconds)


@pytest.mark.parametrize(
    "address, expected",
    [("node1:5000", ("node1", 5000)), ("10.0.0.1:80", ("10.0.0.1", 80)), ("[fe80::1]:80", ("fe80::1", 80))],
)
def test_an_address_has_a_host_and_a_port(address, expected):
    assert endpoint(address) == expected


def test_a_port_that_is_taken_is_an_error():
    with listen(0) as server:
        with pytest.raises(BlockingIOError):  # nobody has connected, and accepting does not wait
            server.accept()
        with pytest.raises(OSError):
            listen(server.getsockname()[1])


def test_a_line_is_read_once_it_is_complete(pair):
    own, other = pair
    line = pending(own)
    assert line.read_line(20) is None
    other.sendall(b"4 G")
    assert line.read_line(20) is None
    other.sendall(b"PUs\nrest")
    assert line.read_line(20) == b"4 GPUs"
    assert own.recv(20) == b"rest"


def test_a_line_may_be_as_long_as_the_limit(pair):
    own, other = pair
    other.sendall(b"1234567\n")
    assert pending(own).read_line(8) == b"1234567"
    other.sendall(b"12345678\n")
    with pytest.raises(ConnectionError, match="not a line"):
        pending(own).read_line(8)


def test_a_connection_that_ended_sends_no_line(pair):
    own, other = pair
    other.close()
    with pytest.raises(ConnectionError, match="not a line"):
        pending(own).read_line(8)


def test_a_line_that_came_before_the_deadline_is_read_after_it(pair):
    own, other = pair
    with pytest.raises(TimeoutError):
        pending(own, seconds=-1.0).read_line(8)
    other.sendall(b"in time\n")
    assert pending(own, seconds=-1.0).read_line(8) == b"in time"


def test_workers_that_are_done_stay_known_and_lost_ones_do_not():
    ends = {worker: socket.socketpair() for worker in ("waiting", "done", "lost", "stranger")}
    for own, _ in ends.values():
        own.setblocking(False)
    ends["done"][1].sendall(DONE)
    ends["lost"][1].close()
    ends["stranger"][1].sendall(b"S")
    connections = {worker: own for worker, (own, _) in ends.items()}
    for _ in range(2):  # the second time, nothing has happened
        forget_lost(connections)
        assert connections == {"waiting": ends["waiting"][0], "done": None}
    assert [ends[worker][0].fileno() >= 0 for worker in ends] == [True, False, False, False]  # whether it is open
    for own, other in ends.values():
        own.close()
        other.close()
