"""Real processes with closed or full streams, little address space, and a clock that jumps."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

from cyclegan.cli import train
from cyclegan.run.run_directory import find_checkpoints
from tests.system.runs import TINY

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow
NO_TRACE = ("Traceback", "Exception ignored")
SCRIPTS = [path for path in sorted(ROOT.glob("scripts/**/*.py")) if "__main__" in path.read_text(encoding="utf-8")]
COMMANDS = {
    "train.py --help": (0, 0),  # exit code, and exit code with a full disk behind stdout
    "train.py --wrong": (2, 2),
    **{f"{path.relative_to(ROOT)} --help": (0, 1) for path in SCRIPTS},
    "scripts/score_stripes.py /missing": (2, 2),
}


def shell(command, **variables):
    """Run a command of bash that has the program as "$@"; return the finished process."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **variables}
    environment.pop("PYTHONUNBUFFERED", None)
    program = ["bash", "-c", f"set -o pipefail; {command[0]}", sys.executable, *map(str, command[1:])]
    return subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "streams", [">&-", ">/dev/full", "0<&-", "2>&-", "0<&- >&- 2>&-", "2>&1 | true", "2>/dev/full"]
)
def test_streams_of_commands(streams):
    for command, codes in COMMANDS.items():
        done = shell([f'"$0" "$@" {streams}', *command.split()])
        print(f"{streams:15} {command:40} {done.returncode}")
        assert done.returncode == codes[streams == ">/dev/full"], (command, done)
        assert not any(text in done.stdout + done.stderr for text in NO_TRACE), (command, done)


@pytest.mark.parametrize("streams", ["0<&- >&- 2>&-", ">/dev/full", "2>/dev/full", "| true"])
def test_training_ends_well_without_streams(photos, tmp_path, streams):
    flags = ["--dataset", photos, "--output_dir", tmp_path / "run", *TINY, "--epochs", 1, "--no_peak"]
    done = shell([f'"$0" "$@" {streams}', "train.py", *flags])
    print(f"{streams:15} {'train.py, one epoch':40} {done.returncode}")
    assert done.returncode == 0 and not any(text in done.stdout + done.stderr for text in NO_TRACE), done
    assert (tmp_path / "run" / "checkpoints" / "epoch_0001-2").is_dir()


def test_programs_work_without_streams(finished, photos, stripes_dir, tmp_path):
    run, out = tmp_path / "run", tmp_path / "out"
    one_run = ["--minutes", 0.01, "--seeds", 1, "--settings", "default", "--dataset", "stripes"]
    small = ["--data_dir", stripes_dir, "--max_dataset_size", 9]
    cases = [
        (["translate.py", run, photos / "testA", out / "translations"], "0<&- >&- 2>&-", 0),
        (["evaluate.py", run, "--features", "random"], ">/dev/full", 1),
        (["export.py", run, out / "network.keras", "--format", "keras"], "2>/dev/full", 0),
        (["inspect_data.py", photos, "--html", out / "report"], "2>&1 | true", 0),
        (["compare.py", run, "--png", out / "curves.png"], "| true", 0),
        (["ablation.py", *one_run, "--output", out / "ablation", "--", *small, *TINY], "2>&1 | true", 0),
        (["score_stripes.py", out / "ablation" / "default-0"], "0<&- >&- 2>&-", 0),
        (["benchmark.py", "--size", 32, "--filters", 2, "--residual_blocks", 0, "--no_plain"], "2>/dev/full", 0),
    ]
    out.mkdir()
    for (script, *arguments), streams, code in cases:
        done = shell([f'"$0" "$@" {streams}', f"scripts/{script}", *arguments])
        print(f"{streams:15} {script:40} {done.returncode}")
        assert done.returncode == code, (script, done)
        assert not any(text in done.stdout + done.stderr for text in NO_TRACE), (script, done)
    made = {"translations", "network.keras", "report", "curves.png", "ablation"}
    assert {path.name for path in out.iterdir()} == made


def test_too_little_address_space_to_start_is_one_line(photos, tmp_path):
    for command in (
        ["train.py", "--dataset", photos, "--output_dir", tmp_path / "run"],
        ["scripts/evaluate.py", tmp_path],
    ):
        done = shell(['ulimit -v 1000000; "$0" "$@"', *command])
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done
        assert (
            "TensorFlow does not start within 1 GB of address space: expected a higher limit (ulimit -v)" in done.stderr
        )
    assert not (tmp_path / "run").exists()


# Leave almost no address space from the second epoch on.
SITE = """
import resource, sys
from cyclegan.cli import train
from cyclegan import terminal
from cyclegan.training.trainer import Trainer

run_epoch, epochs = Trainer._run_epoch, []

def limited(self):
    epochs.append(1)
    if len(epochs) == 2:
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + 2**20, now + 2**20))
    return run_epoch(self)

Trainer._run_epoch = limited
terminal.leave(terminal.run(train.main, needs_stdout=False))
"""


def test_address_space_that_runs_out_names_the_last_checkpoint(photos, tmp_path):
    flags = ["--dataset", photos, "--output_dir", tmp_path / "run", *TINY, "--image_size", 128, "--filters", 16]
    (tmp_path / "limited.py").write_text(SITE)
    command = [tmp_path / "limited.py", *flags, "--epochs", 3, "--no_peak", "--cache", "none", "--batch_size", 4]
    done = shell(['ulimit -v 100000000; "$0" "$@"', *command], PYTHONPATH=str(ROOT))
    assert done.returncode == 1, done
    assert (
        f"the last checkpoint is {tmp_path / 'run' / 'checkpoints' / 'epoch_0001-2'}, and the same command"
        in done.stderr
    )
    assert not any(text in done.stderr for text in NO_TRACE)


# Let the kernel refuse new threads from the second epoch on.
NO_THREADS = """
import os, resource
from cyclegan.cli import train
from cyclegan import terminal
from cyclegan.training.trainer import Trainer

run_epoch, epochs = Trainer._run_epoch, []

def limited(self):
    epochs.append(1)
    if len(epochs) == 2:
        if not os.getuid():
            os.setresuid(54321, 0, 0)  # the limit is that of the real user, and root has none
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    return run_epoch(self)

Trainer._run_epoch = limited
terminal.leave(terminal.run(train.main, needs_stdout=False))
"""
WITHOUT_RIGHTS = "setpriv --bounding-set -sys_resource,-sys_admin"  # to exceed limits, for root


def test_threads_that_run_out_name_the_last_checkpoint(photos, tmp_path):
    prefix = "" if os.getuid() else WITHOUT_RIGHTS
    if prefix and subprocess.run([*prefix.split(), "true"], capture_output=True, check=False).returncode:
        pytest.skip("root has no limit on threads, and setpriv does not work here")
    (tmp_path / "limited.py").write_text(NO_THREADS)
    flags = ["--dataset", photos, "--output_dir", tmp_path / "run", *TINY, "--epochs", 3, "--no_peak"]
    done = shell([f'ulimit -u 4000; {prefix} "$0" "$@"', tmp_path / "limited.py", *flags], PYTHONPATH=str(ROOT))
    assert done.returncode == 1, done
    assert "memory or threads ran out (can't start new thread)" in done.stderr
    assert f"the last checkpoint is {tmp_path / 'run' / 'checkpoints' / 'epoch_0001-2'}, and the same" in done.stderr
    assert not any(text in done.stderr for text in NO_TRACE)


def test_training_ends_though_the_clock_jumps(photos, tmp_path, monkeypatch):
    clock, calls = time.time, []

    def jumping():
        calls.append(1)
        return clock() + (0, 30, -30)[len(calls) // 5 % 3] * 3e7  # seconds, about 30 years

    monkeypatch.setattr(time, "time", jumping)
    flags = ["--dataset", str(photos), "--output_dir", str(tmp_path / "run"), *TINY, "--epochs", "2", "--no_peak"]
    metrics = train.main([*flags, "--log_every", "1", "--checkpoint_minutes", "0.001"])
    assert metrics["train"]["skipped_steps"] == 0 and len(calls) > 10
    assert find_checkpoints(tmp_path / "run" / "checkpoints", "epoch_0002")
