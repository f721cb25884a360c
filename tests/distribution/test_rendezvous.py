import socket
import threading

import pytest

from cyclegan.distribution import rendezvous
from cyclegan.distribution.cluster import Cluster
from cyclegan.errors import UserError
from tests.distribution.rendezvous_threads import addresses, meet


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


def test_workers_with_other_addresses_do_not_meet():
    found = addresses(3)
    outcomes = meet(found[:2], 0.5, lists={0: found[:2], 1: found})
    assert f"received no handshake from {found[1]}" in outcomes[0] and f"could not reach {found[2]}" in outcomes[1]


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
    ):  # worker 0 has sent a handshake to worker 1, and worker 2 is not there yet
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
