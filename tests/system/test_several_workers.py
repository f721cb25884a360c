"""Run train.py as several worker processes, as a user starts them."""

import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from train import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ["--dataset", "stripes", "--image_size", 32, "--filters", 4, "--max_dataset_size", 24, "--no_peak"]
FLAGS += ["--residual_blocks", 0, "--discriminator_layers", 1, "--pool_size", 8]  # pools are soon full, and swap images
SECONDS = 500  # no run takes longer, even on a busy machine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory, stripes_dir):
    """Return a folder for runs and the flags of the embedded dataset."""
    return tmp_path_factory.mktemp("several"), [*FLAGS, "--log_every", 2, "--data_dir", stripes_dir]


def start(command, **environment):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment}
    environment = {name: value for name, value in environment.items() if value is not None}
    return subprocess.Popen(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def train(*flags, **environment):
    return start([sys.executable, ROOT / "train.py", *flags], **environment)


def train_here(*flags):
    """Train in this process, which starts sooner."""
    main([str(flag) for flag in flags])


def free_addresses(count):
    held = [socket.create_server(("", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in held]
    for each in held:
        each.close()
    return addresses


def tf_config(addresses, index):
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def together(count, *flags):
    """Start a number of workers on this machine."""
    addresses = free_addresses(count)
    return [train(*flags, TF_CONFIG=tf_config(addresses, index)) for index in range(count)]


def ended(*processes):
    """Return (exit code, output) of each process, after it ended by itself."""
    try:
        deadline = time.monotonic() + SECONDS
        return [(each.communicate(timeout=deadline - time.monotonic())[0], each.returncode)[::-1] for each in processes]
    finally:
        for each in processes:
            if each.poll() is None:
                each.kill()
                each.communicate()


def wait_for(path, *processes):
    """Wait until a run writes a file or folder."""
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        dead = [each.communicate()[0] for each in processes if each.poll() is not None]
        if dead or time.monotonic() > deadline:
            for each in processes:
                each.kill()
            pytest.fail("\n".join(dead) or f"no {path} within {SECONDS} s")
        time.sleep(0.02)


def done(*processes):
    for code, printed in ended(*processes):
        assert code == 0, printed


def metrics(folder):
    """Return the losses and errors of all lines of a log."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {
            f"{line['split']} {key}": value
            for key, value in line.items()
            if key in ("epoch", "step") or key.startswith(("loss", "error", "change"))
        }
        for line in lines
    ]


def assert_same_metrics(one, other, **tolerance):
    assert len(one) == len(other)
    for line, like in zip(one, other):
        assert line.keys() == like.keys()
        for key, value in line.items():
            np.testing.assert_allclose(value, like[key], err_msg=f"{key} of {line}", **tolerance)


def variables(folder, epochs):
    reader = tf.train.load_checkpoint(str(folder / "checkpoints" / f"epoch_{epochs:04d}" / "state"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def pool(folder, epochs, name):
    """Return the images and counts of an image pool in a checkpoint."""
    with np.load(io.BytesIO(variables(folder, epochs)[f"{name}/.ATTRIBUTES/py_state"])) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def two(home):
    """Return an undisturbed run of two workers, and the output of the launcher."""
    folder, flags = home
    launch = start(
        [ROOT / "scripts" / "launch_local.sh", 2, "--", *flags, "--epochs", 2, "--output_dir", folder / "two"],
        VENV=sys.prefix,
    )
    ((code, printed),) = ended(launch)
    assert code == 0, printed
    return folder / "two", printed


def test_two_workers_equal_two_devices(home, two):
    folder, flags = home
    train_here(*flags, "--epochs", 2, "--devices", 2, "--output_dir", folder / "devices")
    assert_same_metrics(metrics(two[0]), metrics(folder / "devices"), rtol=2e-3, atol=1e-5)
    first, same = metrics(two[0])[0], metrics(folder / "devices")[0]
    assert first["steps step"] == 2
    assert_same_metrics([first], [same], rtol=1e-5, atol=1e-6)
    assert "Workers: 2 (127.0.0.1:" in two[1] and "Replicas: 2, global batch: 2 x 1 = 2" in two[1]
    assert two[1].count("Epoch 001/002") == 1  # only the chief talks
    names = {path.name for path in two[0].iterdir()}
    assert names == {path.name for path in (folder / "devices").iterdir()}
    assert len(list(two[0].glob("**/events.out.tfevents.*"))) == 3
    for name in ("pool_x", "pool_y"):
        found, expected = pool(two[0], 2, name), pool(folder / "devices", 2, name)
        assert found["counts"].tolist() == [4, 4]  # of two slots
        np.testing.assert_array_equal(found["counts"], expected["counts"])
        np.testing.assert_array_equal(found["images"], expected["images"])
        assert len(np.unique(found["images"].reshape(8, -1), axis=0)) == 8


def test_killed_worker_ends_all_and_resume_is_bit_exact(home, two):
    folder, flags = home
    run = folder / "killed"
    flags = [*flags, "--epochs", 2, "--output_dir", run, "--checkpoint_minutes", 0]
    for lost, saved in ((1, "epoch_0000_pair_00004"), (0, "epoch_0001_pair_00004")):
        workers = together(2, *flags)
        wait_for(run / "checkpoints" / saved, *workers)
        workers[lost].send_signal(signal.SIGKILL)
        outcome = ended(*workers)
        code, printed = outcome[1 - lost]
        assert (code, outcome[lost][0]) == (1, -signal.SIGKILL), printed
        assert f"worker {1 - lost}: worker {lost} (127.0.0.1:" in printed and "does not answer any more" in printed
    done(*together(2, *flags))
    assert_same_metrics(metrics(run), metrics(two[0]), rtol=0, atol=0)
    found, expected = variables(run, 2), variables(two[0], 2)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_preempted_three_workers_go_on_as_one_and_as_two(home):
    folder, flags = home
    train_here(*flags, "--epochs", 3, "--batch_size", 6, "--devices", 1, "--output_dir", folder / "one")
    shared = [*flags, "--epochs", 3, "--output_dir", folder / "preempted"]
    # Three epochs, so that the signal comes in time.
    workers = together(3, *shared, "--batch_size", 2, "--steps_per_call", 1)
    wait_for(folder / "preempted" / "checkpoints" / "epoch_0001", *workers)
    workers[1].send_signal(signal.SIGTERM)
    found = ended(*workers)
    saved = {printed.split("saved in ")[1].split(";")[0] for _, printed in found}
    assert [code for code, _ in found] == [143, 143, 143] and len(saved) == 1
    assert pathlib.Path(saved.pop()).is_dir()
    assert "stopped by SIGTERM of another worker after" in found[0][1]
    assert "worker 1: stopped by SIGTERM after" in found[1][1]
    alone = train(*shared, "--batch_size", 6, "--checkpoint_minutes", 0)
    wait_for(folder / "preempted" / "checkpoints" / "epoch_0002_pair_00006", alone)
    alone.send_signal(signal.SIGTERM)
    assert ended(alone)[0][0] == 143
    done(*together(2, *shared, "--batch_size", 3))
    found, expected = metrics(folder / "preempted"), metrics(folder / "one")
    assert_same_metrics(found[:1], expected[:1], rtol=1e-5, atol=1e-6)
    assert_same_metrics(found, expected, rtol=2e-3, atol=1e-4)


def test_chief_saves_scores_and_profiles(home):
    folder, flags = home
    run, wishes = folder / "saved", ["--evaluate_every", 2, "--profile", "17:19", "--steps_per_call", 1]
    rare = ["--checkpoint_every", 4, "--plot_every", 1]
    workers = together(2, *flags, *wishes, *rare, "--epochs", 4, "--output_dir", run)
    wait_for(run / "samples" / "epoch_001.png", *workers)
    workers[1].send_signal(signal.SIGUSR1)
    done(*workers)
    saved = {path.name for path in (run / "checkpoints").iterdir()}
    assert "epoch_0004" in saved and any("epoch_0000" < name < "epoch_0004" for name in saved), (
        saved
    )  # also saved within epochs
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    scored = [line["epoch"] for line in lines if any(key.startswith("score/") for key in line)]
    assert sorted(set(scored)) == [2, 4]
    assert len(list(run.glob("**/plugins/profile/*/*.xplane.pb"))) == 1


# Run train.py, but hang after some steps.
HANG = """
import sys, time
sys.path.insert(0, sys.argv[1])
import train
from cyclegan import console
from cyclegan.training.pass_runner import PassRunner

start = PassRunner._start_call

def hang(self, split, call, *rest):
    if call.state.step == 9:
        print("hangs", flush=True)
        time.sleep(10**6)
    return start(self, split, call, *rest)

PassRunner._start_call = hang
console.leave(console.run(lambda: train.main(sys.argv[2:])))
"""


def test_stuck_worker_ends_the_job(home):
    folder, flags = home
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


def test_other_output_dir_is_refused(home):
    folder, flags = home
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


def test_pulled_cable_ends_two_hosts(home, two_hosts):
    folder, flags = home
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
