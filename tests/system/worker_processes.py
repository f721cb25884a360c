"""Processes that train together on this machine: of train.py, or of tests/distribution/worker.py with its tiny step."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

from cyclegan.run.run_directory import saved_checkpoints

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKER = ROOT / "tests" / "distribution" / "worker.py"
FLAGS = ["--dataset", "stripes", "--image_size", 32, "--filters", 4, "--max_dataset_size", 24, "--no_peak"]
FLAGS += ["--residual_blocks", 0, "--discriminator_layers", 1, "--pool_size", 8]  # pools are soon full, and swap images
SECONDS = 500  # no run takes longer, even on a busy machine


def start(command, **environment):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def train(*flags, **environment):
    return start([sys.executable, ROOT / "train.py", *flags], **environment)


def free_addresses(count):
    held = [socket.create_server(("", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in held]
    for each in held:
        each.close()
    return addresses


def tf_config(addresses, index):
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def together(addresses, *arguments, program=ROOT / "train.py", **environment):
    """Start a worker at each address."""
    command = [sys.executable, program, *arguments]
    return [start(command, TF_CONFIG=tf_config(addresses, i), **environment) for i in range(len(addresses))]


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
    """Wait until a run writes a file, or a checkpoint given without its number."""
    deadline = time.monotonic() + SECONDS
    while not path.exists() and not saved_checkpoints(path.parent, path.name):
        dead = [each.communicate()[0] for each in processes if each.poll() is not None]
        if dead or time.monotonic() > deadline:
            for each in processes:
                each.kill()
            pytest.fail("\n".join(dead) or f"no {path} within {SECONDS} s")
        time.sleep(0.02)


def done(*processes):
    for code, printed in ended(*processes):
        assert code == 0, printed
