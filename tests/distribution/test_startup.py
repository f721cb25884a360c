"""Workers wait for each other; missing and different workers are named."""

import contextlib
import os
import socket
import struct
import threading

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


def test_missing_workers_are_logged_and_then_reported(monkeypatch, caplog):
    monkeypatch.setattr(startup, "PATIENCE", 0.1)
    first, second, *missing = free_addresses(3)
    for worker, (code, text) in enumerate(meet((first, second), 0.5, others=(*missing, "no..name:80"))):
        own = f"worker {worker} ({(first, second)[worker]})"
        assert code == 2 and text.startswith(
            f"{own} waited for 0.5 s (--start_timeout) and could not reach {missing[0]}, no..name:80: expected a worker"
        )
        # On a busy machine the other worker may be missing, too, at that moment.
        texts = [text for text in caplog.messages if text.startswith(f"{own} is waiting for ")]
        assert len(texts) == 1 and texts[0].endswith(f"{missing[0]}, no..name:80")


def test_different_stacks_are_reported():
    found = free_addresses(3)
    for worker, (code, text) in enumerate(meet(found, stacks={1: "2 GPUs"})):
        here, other, there = [(4, 1, 2), (2, 0, 4), (4, 1, 2)][worker]
        row = " ".join(found)
        assert code == 2 and text == (
            f"worker {worker} ({found[worker]}) has {here} GPUs, addresses {row}, but worker {other} ({found[other]})"
            f" has {there} GPUs, addresses {row}: expected the same for all"
        )


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
