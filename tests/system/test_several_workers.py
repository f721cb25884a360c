"""Run train.py as several worker processes, as a user starts them."""

import io
import pathlib
import signal
import sys

import numpy as np
import pytest

from tests.system.runs import assert_same, lines, variables
from tests.system.worker_processes import ROOT, done, ended, free_addresses, start, together, train, wait_for
from train import main

pytestmark = pytest.mark.slow


def train_here(*flags):
    """Train in this process, which starts sooner."""
    main([str(flag) for flag in flags])


def metrics(folder):
    """Return the losses and errors of all lines of a log."""
    return [
        {
            f"{line['split']} {key}": value
            for key, value in line.items()
            if key in ("epoch", "step") or key.startswith(("loss", "error", "change"))
        }
        for line in lines(folder)
    ]


def listing(folder):
    """Return the names in a folder, without the host, process and time in the names of event files."""
    return sorted(path.name.partition("tfevents")[0] for path in folder.iterdir())


def assert_same_metrics(one, other, **tolerance):
    assert len(one) == len(other)
    for line, like in zip(one, other):
        assert line.keys() == like.keys()
        for key, value in line.items():
            np.testing.assert_allclose(value, like[key], err_msg=f"{key} of {line}", **tolerance)


def pool(folder, epochs, name):
    """Return the images and counts of an image pool in a checkpoint."""
    found = variables(folder / "checkpoints" / f"epoch_{epochs:04d}")[f"{name}/.ATTRIBUTES/py_state"]
    with np.load(io.BytesIO(found)) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def two(workers_home):
    """Return an undisturbed run of two workers, and the output of the launcher."""
    folder, flags = workers_home
    launch = start(
        [ROOT / "scripts" / "launch_local.sh", 2, "--", *flags, "--epochs", 2, "--output_dir", folder / "two"],
        VENV=sys.prefix,
    )
    ((code, printed),) = ended(launch)
    assert code == 0, printed
    return folder / "two", printed


def test_two_workers_equal_two_devices(workers_home, two):
    folder, flags = workers_home
    train_here(*flags, "--epochs", 2, "--devices", 2, "--output_dir", folder / "devices")
    assert_same_metrics(metrics(two[0]), metrics(folder / "devices"), rtol=2e-3, atol=1e-5)
    first, same = metrics(two[0])[0], metrics(folder / "devices")[0]
    assert first["steps step"] == 2
    assert_same_metrics([first], [same], rtol=1e-5, atol=1e-6)
    assert "Workers: 2 (127.0.0.1:" in two[1] and "Replicas: 2, global batch: 2 x 1 = 2" in two[1]
    assert two[1].count("Epoch 001/002") == 1  # only the chief talks
    assert listing(two[0]) == listing(folder / "devices")
    assert len(list(two[0].glob("**/events.out.tfevents.*"))) == 3
    for name in ("pool_x", "pool_y"):
        found, expected = pool(two[0], 2, name), pool(folder / "devices", 2, name)
        assert found["counts"].tolist() == [4, 4]  # of two slots
        np.testing.assert_array_equal(found["counts"], expected["counts"])
        np.testing.assert_array_equal(found["images"], expected["images"])
        assert len(np.unique(found["images"].reshape(8, -1), axis=0)) == 8


def test_killed_worker_ends_all_and_resume_is_bit_exact(workers_home, two):
    folder, flags = workers_home
    run = folder / "killed"
    flags = [*flags, "--epochs", 2, "--output_dir", run, "--checkpoint_minutes", 0]
    for lost, saved in ((1, "epoch_0000_pair_00004"), (0, "epoch_0001_pair_00004")):
        workers = together(free_addresses(2), *flags)
        wait_for(run / "checkpoints" / saved, *workers)
        workers[lost].send_signal(signal.SIGKILL)
        outcome = ended(*workers)
        code, printed = outcome[1 - lost]
        assert (code, outcome[lost][0]) == (1, -signal.SIGKILL), printed
        assert f"worker {1 - lost}: worker {lost} (127.0.0.1:" in printed and "does not answer any more" in printed
    done(*together(free_addresses(2), *flags))
    assert_same_metrics(metrics(run), metrics(two[0]), rtol=0, atol=0)
    assert_same(*(variables(folder / "checkpoints" / "epoch_0002") for folder in (run, two[0])))


def test_preempted_three_workers_go_on_as_one_and_as_two(workers_home):
    folder, flags = workers_home
    train_here(*flags, "--epochs", 3, "--batch_size", 6, "--devices", 1, "--output_dir", folder / "one")
    shared = [*flags, "--epochs", 3, "--output_dir", folder / "preempted"]
    # Three epochs, so that the signal comes in time.
    workers = together(free_addresses(3), *shared, "--batch_size", 2, "--steps_per_call", 1)
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
    done(*together(free_addresses(2), *shared, "--batch_size", 3))
    found, expected = metrics(folder / "preempted"), metrics(folder / "one")
    assert_same_metrics(found[:1], expected[:1], rtol=1e-5, atol=1e-6)
    assert_same_metrics(found, expected, rtol=2e-3, atol=1e-4)


def test_chief_saves_scores_and_profiles(workers_home):
    folder, flags = workers_home
    run, wishes = folder / "saved", ["--evaluate_every", 2, "--profile", "17:19", "--steps_per_call", 1]
    rare = ["--checkpoint_every", 4, "--plot_every", 1]
    workers = together(free_addresses(2), *flags, *wishes, *rare, "--epochs", 4, "--output_dir", run)
    wait_for(run / "samples" / "epoch_001.png", *workers)
    workers[1].send_signal(signal.SIGUSR1)
    done(*workers)
    saved = {path.name.rpartition("-")[0] for path in (run / "checkpoints").iterdir()}
    assert "epoch_0004" in saved and any("epoch_0000" < name < "epoch_0004" for name in saved), saved
    assert {line["epoch"] for line in lines(run) if any(key.startswith("score/") for key in line)} == {2, 4}
    assert len(list(run.glob("**/plugins/profile/*/*.xplane.pb"))) == 1
