"""Run train.py, in this process or in others, and compare runs."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import tensorflow as tf
from PIL import Image

from cyclegan.run.run_directory import saved_checkpoints

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALLEST = ["--filters", "1", "--residual_blocks", "0", "--discriminator_layers", "1"]
TINY = ["--filters", "4", "--residual_blocks", "0", "--discriminator_layers", "1", "--image_size", "32"]


def photograph(path, seed, size=(50, 40)):
    """Write a smooth image with some noise, which compresses like a photograph."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 5, 3)).astype(np.uint8)).resize(size, Image.BICUBIC)
    noisy = np.clip(np.asarray(small) + rng.normal(0, 8, (size[1], size[0], 3)), 0, 255)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noisy.astype(np.uint8)).save(path)


def run(*args, cwd=ROOT, program=ROOT / "train.py"):
    """Run a program as a process; return it, finished, with its output as text."""
    command = [sys.executable, str(program), *map(str, args)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600)


def start(*args, **variables):
    """Start `python train.py` in the background with environment variables; return the process."""
    command = [sys.executable, str(ROOT / "train.py"), *map(str, args)]
    pipe, environment = subprocess.PIPE, {**os.environ, **variables}
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def lines(folder):
    """Return the lines of metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def variables(checkpoint):
    """Return the arrays of a checkpoint, given without its number, by name."""
    (path,) = saved_checkpoints(checkpoint.parent, checkpoint.name)
    reader = tf.train.load_checkpoint(str(path / "state"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if name[:11] != "train_state"}


def wait_for_line(process, beginning):
    """Wait until a process prints a line."""
    for line in process.stdout:
        if line.startswith(beginning):
            return
    raise AssertionError(f"no line that begins with {beginning}")


def assert_same(variables, others):
    """Assert that two checkpoints hold the same arrays, bit for bit."""
    assert variables.keys() == others.keys() and len(variables) > 50
    for name, value in variables.items():
        if name != "_CHECKPOINTABLE_OBJECT_GRAPH" and not name.startswith("save_counter"):
            np.testing.assert_array_equal(value, others[name], err_msg=name)


def all_finite(checkpoint):
    """Return whether all arrays of a checkpoint are finite."""
    arrays = [value for value in variables(checkpoint).values() if isinstance(value, np.ndarray)]
    return len(arrays) > 50 and all(np.isfinite(value).all() for value in arrays if value.dtype.kind == "f")
