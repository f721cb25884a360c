"""Workers wait for each other; missing and different workers are named."""

import contextlib
import os
import re
import socket
import struct
import threading
import time

import pytest

import cyclegan
from cyclegan.config.sections import DistributionConfig
from cyclegan.distribution import startup
from cyclegan.distribution.cluster import Cluster
from cyclegan.distribution.startup import start_workers
from cyclegan.errors import UserError
from tests.system.worker_processes import WORKER, ended, free_addresses, tf_config, together


def meet(found, seconds=20.0, delays=(), others=(), stacks=()):
    """Call `meet` in a thread for each worker; return (exit code, message) of each; `others` never come."""
    ended = [(0, "")] * len(found)
    delays, stacks = dict(delays), dict(stacks)

    def one(index):
        threading.Event().wait(delays.get(index, 0))
        try:
            startup.meet(Cluster((*found, *others), index), seconds, stacks.get(index, "4 GPUs"))
        except UserError as error:
            ended[index] = (error.exit_code, str(error))

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


def test_workers_meet_in_any_order():
    for late in range(3):
        assert meet(free_addresses(3), delays={late: 0.5}) == [(0, "")] * 3


def test_missing_workers_are_logged_and_then_reported_by_all(monkeypatch, caplog):
    monkeypatch.setattr(startup, "PATIENCE", 0.1)
    first, second, *missing = free_addresses(3)
    for code, text in meet((first, second), 0.5, others=(*missing, "no..name:80")):
        assert code == 2 and re.match(
            rf"worker \d \(\S+\) waited for 0.5 s \(--start_timeout\) and could not reach .*{missing[0]}, no..name:80:"
            " expected a worker at each",
            text,
        )
    chief = [text for text in caplog.messages if text.startswith(f"worker 0 ({first}) is waiting for ")]
    assert len(chief) == 1 and chief[0].endswith(f"{missing[0]}, no..name:80")
    ((code, text),) = meet((first,), 0.3, others=[second])
    assert code == 2 and f"could not reach {second}: " in text


def test_without_a_chief_the_others_name_it():
    found = Cluster(tuple(free_addresses(2)), 1)
    with pytest.raises(UserError, match=rf"worker 1 \S+ waited for 0.3 s .* could not reach {found.addresses[0]}: "):
        startup.meet(found, 0.3, "")


def test_different_stacks_are_reported_by_all():
    found = free_addresses(3)
    row = " ".join(found)
    text = f"worker 0 ({found[0]}) has 4 GPUs, addresses {row}, but worker 1 ({found[1]}) has 2 GPUs, addresses {row}"
    assert meet(found, stacks={1: "2 GPUs"}) == [(2, f"{text}: expected the same for all")] * 3


def test_no_worker_leaves_before_all_have_met(monkeypatch):
    """Lose all that worker 0 hears for half a second."""
    found, hear, until = free_addresses(2), startup._hear, time.monotonic() + 0.5

    def lose(connection, *rest):
        if connection.getsockname()[1] != int(found[0].rpartition(":")[2]) or time.monotonic() > until:
            hear(connection, *rest)
        else:
            connection.makefile().readline()
            connection.close()

    monkeypatch.setattr(startup, "_hear", lose)
    assert meet(found, 5) == [(0, "")] * 2


def test_connections_of_others_do_not_delay_the_meeting():
    found, done = free_addresses(2), threading.Event()

    def disturb():
        with contextlib.ExitStack() as silent:
            while not done.wait(0.05):
                for host, _, port in (address.rpartition(":") for address in found):
                    with contextlib.suppress(OSError):
                        silent.enter_context(socket.create_connection((host, int(port)), 1))
                        with socket.create_connection((host, int(port)), 1) as reset:
                            reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    stranger = threading.Thread(target=disturb)
    stranger.start()
    try:
        assert meet(found, delays={1: 0.5}) == [(0, "")] * 2
    finally:
        done.set()
        stranger.join()


def test_a_taken_port_is_refused():
    with socket.create_server(("", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(UserError, match=rf"worker 0 \({taken}\) can't listen there .*: expected a free port"):
            startup.meet(Cluster((taken, "127.0.0.1:9"), 0), 1, "")


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_a_worker_lost_while_tensorflow_starts_ends_the_other(who):
    addresses = free_addresses(2)
    found = ended(*together(addresses, "vanish", program=WORKER, WHO=str(who), START_TIMEOUT="20"))
    code, printed = found[1 - who]
    assert code == 1, printed
    assert f"worker {1 - who} ({addresses[1 - who]})" in printed and "--start_timeout" in printed


def test_workers_compare_their_programs_and_go_around_proxies(monkeypatch, tmp_path):
    monkeypatch.setenv("TF_CONFIG", tf_config(["a:1", "[::1]:2"], 0))
    monkeypatch.setenv("no_proxy", "intern")
    monkeypatch.setenv("no_grpc_proxy", "")
    monkeypatch.setattr(cyclegan, "__file__", str(tmp_path / "__init__.py"))
    compared = []

    def end(cluster, timeout, stack):
        compared.append(stack)
        assert os.getenv(startup.NO_PROXY[0]) == "a,::1,intern"
        raise UserError("met")

    monkeypatch.setattr(startup, "meet", end)
    for code in ("", "", "changed = True"):
        (tmp_path / "module.py").write_text(code)
        with pytest.raises(UserError, match="met"):
            start_workers(DistributionConfig())
        monkeypatch.setenv("no_grpc_proxy", "")
    assert compared[0].startswith(f"cyclegan {cyclegan.__version__}, code 00000000, TensorFlow")
    assert compared[0] == compared[1] != compared[2]


def test_a_worker_without_gpu_refuses_several_devices(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config(["a:1", "b:2"], 0))
    with pytest.raises(UserError, match="--devices 2: a worker without a GPU is one replica; expected 1"):
        start_workers(DistributionConfig(devices=2))


def test_multiworker_needs_several_workers(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(UserError, match="--strategy multiworker: neither TF_CONFIG nor Slurm's variables name several"):
        start_workers(DistributionConfig(strategy="multiworker"))
    monkeypatch.setenv("TF_CONFIG", "nonsense")  # a strategy of one machine ignores it
    workers = start_workers(DistributionConfig(strategy="mirrored"))
    assert (workers.count, workers.index, workers.is_chief, workers.speedup()) == (1, 0, True, 1)
