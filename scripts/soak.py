#!/usr/bin/env python
"""Kill a run again and again, and check that it ends like an undisturbed one: `scripts/soak.py --help`.

Trains small networks on the embedded dataset twice: undisturbed, and killed at random moments, in turn by SIGTERM and SIGKILL,
and started again each time. Then every variable (weights, Adam's moments, counters) and every line of metrics.jsonl must be equal
bit for bit, except for the times in the lines. The exit code is 0 if they are.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cyclegan import console  # noqa: E402  the package lies beside this folder

SMALL = ["--dataset", "stripes", "--image_size", 32, "--filters", 4, "--residual_blocks", 1, "--batch_size", 8]
STEPS = 32  # of an epoch, with 256 pairs
POLL_SECONDS = 0.05


class Run:
    """A run of `train.py` in a folder, which may be started several times.

    Args:
        folder: Folder of the run. The output goes to a file beside it.
        epochs: Length of the training, in epochs.
        data_dir: Folder of the prepared dataset.
    """

    def __init__(self, folder: pathlib.Path, epochs: int, data_dir: pathlib.Path) -> None:
        self.folder = folder
        self.epochs = epochs
        self.output = folder.with_suffix(".txt")
        self._command = [
            *(sys.executable, ROOT / "train.py", *SMALL, "--output_dir", folder, "--epochs", epochs),
            *("--data_dir", data_dir, "--checkpoint_minutes", 0.02, "--plot_every", 1000, "--log_every", 5),
        ]

    def start(self) -> subprocess.Popen[bytes]:
        """Start `train.py` in the background."""
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # only the CPU promises equal bits
        with open(self.output, "a") as output:
            return subprocess.Popen(list(map(str, self._command)), env=environment, stdout=output, stderr=output)

    def steps_done(self) -> int:
        """Return the last training step in the log; 0 if there is none."""
        log = self.folder / "metrics.jsonl"
        lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        return json.loads(whole[-1])["step"] if whole else 0

    def newest_checkpoint(self) -> str:
        """Return the name of the newest checkpoint."""
        names = sorted(path.name for path in self.folder.glob("checkpoints/epoch_*"))
        return names[-1] if names else "none"

    def end_of_output(self) -> str:
        """Return the end of the program's output."""
        return self.output.read_text()[-2000:]

    def variables(self) -> dict[str, np.ndarray]:
        """Return the variables of the last checkpoint by name."""
        with console.start():
            import tensorflow as tf

        reader = tf.train.load_checkpoint(str(self.folder / "checkpoints" / f"epoch_{self.epochs:04d}" / "state"))
        names = reader.get_variable_to_shape_map()
        return {name: reader.get_tensor(name) for name in names if name != "_CHECKPOINTABLE_OBJECT_GRAPH"}

    def log_lines(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl without the times."""
        lines = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        return [
            {name: value for name, value in line.items() if not name.startswith("speed/") and "seconds" not in name}
            for line in lines
        ]


def run_undisturbed(run: Run) -> float:
    """Run to the end; return the seconds until the first line of the log."""
    start = time.monotonic()
    process = run.start()
    while process.poll() is None and not run.steps_done():
        time.sleep(POLL_SECONDS)
    seconds = time.monotonic() - start
    if process.wait() != 0:
        raise SystemExit(f"The undisturbed run failed: {run.end_of_output()}")
    return seconds


def run_disturbed(run: Run, kills: int, start_seconds: float, rng: random.Random) -> list[int]:
    """Kill a run several times, then let it end; return the exit codes of all starts.

    A third of the kills come at a random moment of the start, which takes about `start_seconds`. The others come at a random step,
    each later in training. A random time would not do: a busy machine may do a whole run or nothing in it.
    """
    codes: list[int] = []
    while len(codes) < kills:
        signum = signal.SIGKILL if len(codes) % 2 else signal.SIGTERM
        steps_before, start = run.steps_done(), time.monotonic()
        process = run.start()
        if rng.random() < 1 / 3:
            time.sleep(rng.uniform(0.4, 0.9) * start_seconds)
        else:
            step = (len(codes) + rng.random()) / (kills + 1) * STEPS * run.epochs
            while process.poll() is None and run.steps_done() <= max(step, steps_before):
                time.sleep(POLL_SECONDS)
            time.sleep(rng.uniform(0, 0.3))
        seconds = time.monotonic() - start
        process.send_signal(signum)
        codes.append(process.wait())
        if codes[-1] not in (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM):
            raise SystemExit(f"start {len(codes)} ended with {codes[-1]} before it was killed: {run.end_of_output()}")
        print(
            f"{len(codes):3d}  {signum.name} after {seconds:4.1f} s, exit code {codes[-1]:4d},"
            f" newest checkpoint: {run.newest_checkpoint()}",
            flush=True,
        )
    codes.append(run.start().wait())
    return codes


def are_equal(one: Run, other: Run) -> bool:
    """Compare the variables and the logs of two runs, and print the result."""
    variables, others = one.variables(), other.variables()
    different = [name for name in variables if name not in others or (variables[name] != others[name]).any()]
    print(f"variables: {len(variables)} compared, {len(different)} differ {different[:5] or ''}")
    same_log = one.log_lines() == other.log_lines()
    print(f"metrics.jsonl: {len(one.log_lines())} lines, {'equal' if same_log else 'NOT equal'}")
    return same_log and not different and variables.keys() == others.keys()


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the comparison that the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="number of kills (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=20, help=f"epochs of {STEPS} steps (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random moments (default: %(default)s)")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        whole, parts = (Run(folder / each, arguments.epochs, folder / "data") for each in ("whole", "parts"))
        print(f"Undisturbed: {STEPS * arguments.epochs} steps", flush=True)
        start_seconds = run_undisturbed(whole)
        print(f"{start_seconds:.0f} s to start. Now with {arguments.kills} kills:", flush=True)
        codes = run_disturbed(parts, arguments.kills, start_seconds, random.Random(arguments.seed))
        if codes[-1]:
            raise SystemExit(f"the last start ended with {codes[-1]}: {parts.end_of_output()}")
        sigkills = codes.count(-signal.SIGKILL)
        print(f"{len(codes)} starts, {sigkills} SIGKILL, {len(codes) - 1 - sigkills} SIGTERM")
        return 0 if are_equal(whole, parts) else 1


if __name__ == "__main__":
    sys.exit(console.run(main))
