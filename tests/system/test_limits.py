"""Real processes with closed or full streams, little address space, and a clock that jumps."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

from cyclegan.commands import train
from tests.system.runs import TINY

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow
NO_TRACE = ("Traceback", "Exception ignored")
COMMANDS = {
    "train.py --help": (0, 0),  # exit code, and exit code with a full disk behind stdout
    "train.py --wrong": (2, 2),
    **{
        f"scripts/{name}.py --help": (0, 1) for name in ("evaluate", "translate", "export", "benchmark", "import_torch")
    },
    **{f"scripts/{name}.py --help": (0, 1) for name in ("ablation", "score_stripes", "soak")},
    "scripts/score_stripes.py /missing": (2, 2),
}


def shell(command, **variables):
    """Run a command of bash that has the program as "$@"; return the finished process."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **variables}
    environment.pop("PYTHONUNBUFFERED", None)
    program = ["bash", "-c", f"set -o pipefail; {command[0]}", sys.executable, *map(str, command[1:])]
    return subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


FEW = ("train.py --help", "scripts/score_stripes.py /missing")


@pytest.mark.parametrize(
    "streams, commands",
    [
        (">&-", COMMANDS),
        (">/dev/full", COMMANDS),
        *((streams, FEW) for streams in ("0<&-", "2>&-", "0<&- >&- 2>&-", "2>&1 | true", "2>/dev/full")),
    ],
)
def test_streams_of_commands(streams, commands):
    for command in commands:
        codes = COMMANDS[command]
        done = shell([f'"$0" "$@" {streams}', *command.split()])
        print(f"{streams:15} {command:40} {done.returncode}")
        assert done.returncode == codes[streams == ">/dev/full"], (command, done)
        assert not any(text in done.stdout + done.stderr for text in NO_TRACE), (command, done)


def test_training_ends_well_without_streams(photos, tmp_path):
    flags = ["--dataset", photos, "--output_dir", tmp_path / "run", *TINY, "--epochs", 1, "--no_peak"]
    done = shell(['"$0" "$@" 0<&- >&- 2>&-', "train.py", *flags])
    assert done.returncode == 0 and not done.stderr, done
    assert (tmp_path / "run" / "checkpoints" / "epoch_0001").is_dir()


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
from cyclegan.commands import train
from cyclegan import console
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
console.leave(console.run(train.main, needs_stdout=False))
"""


def test_address_space_that_runs_out_names_the_last_checkpoint(photos, tmp_path):
    flags = ["--dataset", photos, "--output_dir", tmp_path / "run", *TINY, "--image_size", 128, "--filters", 16]
    (tmp_path / "limited.py").write_text(SITE)
    command = [tmp_path / "limited.py", *flags, "--epochs", 3, "--no_peak", "--cache", "none", "--batch_size", 4]
    done = shell(['ulimit -v 100000000; "$0" "$@"', *command], PYTHONPATH=str(ROOT))
    assert done.returncode == 1, done
    assert (
        f"the last checkpoint is {tmp_path / 'run' / 'checkpoints' / 'epoch_0001'}, and the same command" in done.stderr
    )
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
    assert (tmp_path / "run" / "checkpoints" / "epoch_0002").is_dir()
