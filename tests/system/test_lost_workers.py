"""Workers that are stuck, that cannot reach each other, or that do not belong together."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from tests.system.worker_processes import ROOT, ended, free_addresses, start, tf_config, train, wait_for

pytestmark = pytest.mark.slow

# Run train.py, but hang after some steps.
HANG = """
import sys, time
sys.path.insert(0, sys.argv[1])
from cyclegan.cli import train
from cyclegan import terminal
from cyclegan.training.trainer import Trainer

start = Trainer._start_call

def hang(self, *rest):
    if self.state.step == 9:
        print("hangs", flush=True)
        time.sleep(10**6)
    return start(self, *rest)

Trainer._start_call = hang
terminal.leave(terminal.run(lambda: train.main(sys.argv[2:])))
"""


def test_stuck_worker_ends_the_job(workers_home):
    folder, flags = workers_home
    run = folder / "hangs"
    flags = [*flags, "--epochs", 500, "--output_dir", run, "--checkpoint_minutes", 0, "--step_timeout", 20]
    addresses = free_addresses(2)
    workers = [
        start([sys.executable, *command, *flags], TF_CONFIG=tf_config(addresses, index))
        for index, command in enumerate(([ROOT / "train.py"], ["-c", HANG, ROOT]))
    ]
    found = ended(*workers)
    newest = max((run / "checkpoints").glob("epoch_*"))
    assert [code for code, _ in found] == [1, 1], found
    for _, printed in found:  # the first of them to end is lost for the other one
        assert "(--step_timeout), so training stops" in printed or "does not answer any more" in printed, printed
        assert str(newest) in printed.strip().splitlines()[-1]
    assert any("(--step_timeout), so training stops" in text for _, text in found)
    assert any(f"The last checkpoint is {newest}, and the same command resumes" in text for _, text in found)


def test_other_output_dir_is_refused(workers_home):
    folder, flags = workers_home
    addresses, dirs = free_addresses(2), [folder / "here", folder / "there"]
    workers = [
        train(*flags, "--output_dir", path, TF_CONFIG=tf_config(addresses, index)) for index, path in enumerate(dirs)
    ]
    for index, (code, printed) in enumerate(ended(*workers)):
        differs = f"worker 1 ({addresses[1]}) differs from the chief in output_dir ({dirs[index]} at worker {index})"
        assert code == 2 and differs in printed, printed
    assert not any(path.exists() for path in dirs)


def network(*command):
    return subprocess.run(["ip", *command], capture_output=True, text=True)


@pytest.fixture
def two_hosts():
    """Return two network namespaces, 10.99.0.1 and 10.99.0.2, and the links between them."""
    names = [f"cyclegan{os.getpid()}{side}" for side in "ab"]
    links = [f"cg{os.getpid() % 10000}{side}" for side in "ab"]
    with contextlib.ExitStack() as stack:
        if not shutil.which("ip"):
            pytest.skip("no `ip` to make network namespaces with")
        for name in names:
            made = network("netns", "add", name)
            if made.returncode:
                pytest.skip(f"network namespaces can't be made here: {made.stderr.strip()}")
            stack.callback(network, "netns", "del", name)
        made = network("link", "add", links[0], "type", "veth", "peer", "name", links[1])
        if made.returncode:
            pytest.skip(f"no virtual Ethernet here: {made.stderr.strip()}")
        for i, (name, link) in enumerate(zip(names, links)):
            for command in (
                ["link", "set", link, "netns", name],
                ["-n", name, "addr", "add", f"10.99.0.{i + 1}/24", "dev", link],
                ["-n", name, "link", "set", link, "up"],
                ["-n", name, "link", "set", "lo", "up"],
            ):
                assert network(*command).returncode == 0, command
        yield names, links


def test_pulled_cable_ends_two_hosts(workers_home, two_hosts):
    folder, flags = workers_home
    names, links = two_hosts
    flags = [*flags, "--epochs", 500, "--output_dir", folder / "hosts", "--plot_every", 500]
    workers = []
    for index, name in enumerate(names):
        config = {
            "cluster": {"worker": ["10.99.0.1:2222", "10.99.0.2:2222"]},
            "task": {"type": "worker", "index": index},
        }
        command = ["ip", "netns", "exec", name, sys.executable, ROOT / "train.py", *flags]
        workers.append(start(command, TF_CONFIG=json.dumps(config)))
    wait_for(folder / "hosts" / "checkpoints" / "epoch_0001", *workers)
    assert network("-n", names[0], "link", "set", links[0], "down").returncode == 0
    began = time.monotonic()
    found = ended(*workers)
    assert time.monotonic() - began < 90
    for code, printed in found:
        assert code == 1 and "does not answer any more, so this one stops" in printed
