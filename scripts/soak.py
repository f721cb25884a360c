#!/usr/bin/env python
"""Kills a run again and again, and shows that it ends like one that nothing happened to: `scripts/soak.py --help`.

Trains a small pair of networks on the embedded data set twice: undisturbed, and killed at random moments, half of the times
with SIGKILL and half with SIGTERM, and started again each time. Then every variable (weights, Adam's moments, counters) and
every line of metrics.jsonl, but for the times in it, must be equal, bit for bit. The exit code is 0 if they are.
"""

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

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cyclegan import console  # noqa: E402  the package lies beside this folder

SMALL = ["--dataset", "stripes", "--image_size", 32, "--filters", 4, "--residual_blocks", 1, "--batch_size", 8]
STEPS = 32  # of an epoch, with 256 pairs
POLL = 0.05  # seconds between looks at the log


def start(folder, epochs, data_dir):
    """`python train.py` in the background, writing its output to a file beside the folder."""
    flags = ["--output_dir", folder, "--epochs", epochs, "--data_dir", data_dir, "--checkpoint_minutes", 0.02]
    flags += ["--plot_every", 1000, "--log_every", 5]
    command = [sys.executable, ROOT / "train.py", *SMALL, *flags]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # bit for bit is the CPU's promise
    with open(f"{folder}.txt", "a") as output:
        return subprocess.Popen(list(map(str, command)), env=environment, stdout=output, stderr=output)


def undisturbed(folder, epochs, data_dir):
    """Runs to the end. Returns the seconds until the first lines of the log."""
    began = time.monotonic()
    process = start(folder, epochs, data_dir)
    while process.poll() is None and not steps_done(folder):
        time.sleep(POLL)
    seconds = time.monotonic() - began
    if process.wait() != 0:
        raise SystemExit(f"The undisturbed run failed: {tail(folder)}")
    return seconds


def disturb(folder, epochs, data_dir, kills, begin, rng):
    """Runs until `kills` kills have hit it, then to the end. Returns the exit codes of all starts.

    A third of the kills come at a random moment while a start begins, which takes about `begin` seconds. The others come at a
    random step, later in training for each; not after a time, which on a busy machine may be that of a whole run or of none.
    """
    codes = []
    while len(codes) < kills:
        signum = signal.SIGKILL if len(codes) % 2 else signal.SIGTERM
        before = steps_done(folder)
        process, began = start(folder, epochs, data_dir), time.monotonic()
        if rng.random() < 1 / 3:
            time.sleep(rng.uniform(0.4, 0.9) * begin)
        else:
            step = (len(codes) + rng.random()) / (kills + 1) * STEPS * epochs
            while process.poll() is None and steps_done(folder) <= max(step, before):
                time.sleep(POLL)
            time.sleep(rng.uniform(0, 0.3))
        after = time.monotonic() - began
        process.send_signal(signum)
        codes.append(process.wait())
        if codes[-1] not in (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM):
            raise SystemExit(f"start {len(codes)} ended with {codes[-1]} before it was killed: {tail(folder)}")
        print(
            f"{len(codes):3d}  {signum.name} after {after:4.1f} s, exit code {codes[-1]:4d}, {place(folder)}",
            flush=True,
        )
    codes.append(start(folder, epochs, data_dir).wait())
    return codes


def steps_done(folder):
    """The last training step that the log has a line about; 0 if there is none."""
    path = pathlib.Path(folder) / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith(b"\n")]
    return json.loads(whole[-1])["step"] if whole else 0


def tail(folder):
    """The end of what the program printed."""
    return pathlib.Path(f"{folder}.txt").read_text()[-2000:]


def place(folder):
    """The newest checkpoint's name."""
    names = sorted(path.name for path in pathlib.Path(folder).glob("checkpoints/epoch_*"))
    return f"newest checkpoint {names[-1]}" if names else "no checkpoint yet"


def variables(folder, epochs):
    """{name: array} of the last checkpoint."""
    with console.start():
        import tensorflow as tf

    reader = tf.train.load_checkpoint(str(pathlib.Path(folder) / "checkpoints" / f"epoch_{epochs:04d}" / "state"))
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names if name != "_CHECKPOINTABLE_OBJECT_GRAPH"}


def log(folder):
    """The lines of metrics.jsonl without the times."""
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if not key.startswith("speed/") and "seconds" not in key}
        for line in lines
    ]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="how often (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=20, help=f"of {STEPS} steps each (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: %(default)s)")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        whole, parts, data_dir = (f"{folder}/{name}" for name in ("whole", "parts", "data"))
        print(f"Undisturbed: {STEPS * arguments.epochs} steps", flush=True)
        begin = undisturbed(whole, arguments.epochs, data_dir)
        print(f"{begin:.0f} s to begin. Now with {arguments.kills} kills:", flush=True)
        codes = disturb(parts, arguments.epochs, data_dir, arguments.kills, begin, random.Random(arguments.seed))
        if codes[-1]:
            raise SystemExit(f"the last start ended with {codes[-1]}: {tail(parts)}")
        one, other = variables(whole, arguments.epochs), variables(parts, arguments.epochs)
        different = [name for name in one if name not in other or (one[name] != other[name]).any()]
        print(
            f"{len(codes)} starts, {codes.count(-signal.SIGKILL)} SIGKILL, {len(codes) - 1 - codes.count(-signal.SIGKILL)} SIGTERM"
        )
        print(f"variables: {len(one)} compared, {len(different)} differ {different[:5] or ''}")
        same = log(whole) == log(parts)
        print(f"metrics.jsonl: {len(log(whole))} lines, {'equal' if same else 'NOT equal'}")
        return 0 if same and not different and one.keys() == other.keys() else 1


if __name__ == "__main__":
    sys.exit(main())
