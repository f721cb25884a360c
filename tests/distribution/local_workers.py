"""Start workers of `worker.py` as processes on 127.0.0.1."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 240  # no test waits longer; the machine may be busy


def free_ports(count):
    """Return ports of this machine that are free now."""
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def start(name, index, ports, **environment):
    """Start one of the workers on some ports."""
    tf_config = {
        "cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]},
        "task": {"type": "worker", "index": index},
    }
    return subprocess.Popen(
        [sys.executable, HERE / "worker.py", name],
        env={**os.environ, "TF_CONFIG": json.dumps(tf_config), "PYTHONPATH": str(HERE.parents[1]), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcomes(processes):
    """Wait for all processes; return (exit code, stdout, stderr) of each."""
    try:
        deadline = time.monotonic() + SECONDS
        found = [(*each.communicate(timeout=deadline - time.monotonic()), each.returncode) for each in processes]
        return [(code, out, errors) for out, errors, code in found]
    finally:
        for each in processes:
            if each.poll() is None:
                each.kill()
                each.communicate()


def together(name, count, **environment):
    """Run several workers to their end; return their outcomes and ports."""
    ports = free_ports(count)
    return outcomes([start(name, index, ports, **environment) for index in range(count)]), ports
