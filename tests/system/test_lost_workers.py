"""Workers that are stuck, that cannot reach each other, or that do not belong together."""

import contextlib
import os
import shutil
import subprocess
import sys
import time

import pytest

from cyclegan.run.run_directory import saved_checkpoints
from tests.system.worker_processes import ROOT, ended, free_addresses, start, tf_config, train, wait_for

pytestmark = pytest.mark.slow

# Run train.py, but hang as soon as the folder of checkpoints has one.
HANG = """
import pathlib, sys, time
sys.path.insert(0, sys.argv[1])
from cyclegan import terminal
from cyclegan.cli import train
from cyclegan.distribution.workers import Watchdog

beat, checkpoints = Watchdog.beat, pathlib.Path(sys.argv[2])

def hang(self):
    if any(checkpoints.glob("epoch_*")):
        print("hangs", flush=True)
        time.sleep(10**6)
    beat(self)

Watchdog.beat = hang
terminal.leave(terminal.run(lambda: train.main(sys.argv[3:])))
"""


def test_stuck_worker_ends_the_job(workers_home):
    folder, flags = workers_home
    run, addresses = folder / "hangs", free_addresses(2)
    flags = [*flags, "--epochs", 500, "--output_dir", run, "--checkpoint_minutes", 0, "--step_timeout", 20]
    commands = [[ROOT / "train.py"], ["-c", HANG, ROOT, run / "checkpoints"]]
    workers = [
        start([sys.executable, *command, *flags], TF_CONFIG=tf_config(addresses, index))
        for index, command in enumerate(commands)
    ]
    found = ended(*workers)
    newest = saved_checkpoints(run / "checkpoints")[-1]
    assert [code for code, _ in found] == [1, 1], found
    for _, printed in found:  # the first of them to end is lost for the other one
        assert "(--step_timeout), so training stops" in printed or "does not answer any more" in printed, printed
        assert str(newest) in printed.strip().splitlines()[-1]
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
    made = subprocess.run(["ip", *command], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no network namespaces here: ip {' '.join(command)}: {made.stderr.strip()}")


@pytest.fixture
def two_hosts():
    """Return two network namespaces, 10.99.0.1 and 10.99.0.2, and the links between them."""
    names = [f"cyclegan{os.getpid()}{side}" for side in "ab"]
    links = [f"cg{os.getpid() % 10000}{side}" for side in "ab"]
    if not shutil.which("ip"):
        pytest.skip("no `ip` to make network namespaces with")
    with contextlib.ExitStack() as stack:
        for name in names:
            network("netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "del", name])
        network("link", "add", links[0], "type", "veth", "peer", "name", links[1])
        for i, (name, link) in enumerate(zip(names, links)):
            network("link", "set", link, "netns", name)
            network("-n", name, "addr", "add", f"10.99.0.{i + 1}/24", "dev", link)
            network("-n", name, "link", "set", link, "up")
            network("-n", name, "link", "set", "lo", "up")
        yield names, links


def test_pulled_cable_ends_two_hosts(workers_home, two_hosts):
    folder, flags = workers_home
    names, links = two_hosts
    flags = [*flags, "--epochs", 500, "--output_dir", folder / "hosts", "--plot_every", 500]
    workers = [
        start(
            ["ip", "netns", "exec", name, sys.executable, ROOT / "train.py", *flags],
            TF_CONFIG=tf_config(["10.99.0.1:2222", "10.99.0.2:2222"], index),
        )
        for index, name in enumerate(names)
    ]
    wait_for(folder / "hosts" / "checkpoints" / "epoch_0001", *workers)
    network("-n", names[0], "link", "set", links[0], "down")
    began = time.monotonic()
    for code, printed in ended(*workers):
        assert code == 1 and "does not answer any more, so this one stops" in printed
    assert time.monotonic() - began < 90
