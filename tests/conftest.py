"""Start TensorFlow once per test process, with eight logical CPU devices, and choose which tests run.

Without `--all`, tests marked `slow` are left out, and of the cases of a test marked `sampled` the first one runs.
"""

import gc
import os
import pathlib
import signal

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the tests compare with what the CPU gives, bit for bit
# LLVM's optimizations take two thirds of the time in which XLA compiles a step.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"

import numpy as np
import pytest

import cyclegan  # noqa: F401  before TensorFlow: it silences the notices
from cyclegan.data.loading import free_bytes
from cyclegan.distribution.strategy import make_strategy
from tests.browser import CHROMIUM, Browser

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as for a background job of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = pathlib.Path(__file__).resolve().parents[1]
LITTLE_MEMORY = 8e9  # bytes
FORKING = "tests/run/test_kill.py"  # goes first, because forking a process that has grown takes long
LONGEST = ("system", "training", "networks", "cli", "scripts")  # folders of `tests`
make_strategy(8)  # starts TensorFlow with eight logical devices; strategies of fewer share them


def pytest_addoption(parser):
    """Add the option --all."""
    parser.addoption("--all", action="store_true", help="run all tests, not only the quick ones")


def pytest_collection_modifyitems(config, items):
    """Deselect the tests that only --all runs; start the longest files first, which balances the processes.

    Only with `--no-loadscope-reorder`: otherwise pytest-xdist starts files with many tests first, and long ones last.
    """
    if not config.getoption("--all"):
        seen, kept, left_out = set(), [], []
        for item in items:
            test = item.nodeid.split("[")[0]
            skipped = item.get_closest_marker("slow") or (item.get_closest_marker("sampled") and test in seen)
            (left_out if skipped else kept).append(item)
            seen.add(test)
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
    longest = tuple(f"tests/{folder}/" for folder in LONGEST)
    items.sort(key=lambda item: (not item.nodeid.startswith(FORKING), not item.nodeid.startswith(longest)))


@pytest.fixture(scope="module", autouse=True)
def collect_garbage():
    """Collect garbage after a test file, only if memory runs short: TensorFlow's graphs make it take up to a minute."""
    gc.disable()
    yield
    if free_bytes() < LITTLE_MEMORY:
        gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def strategies():
    """Return a MirroredStrategy by number of replicas: 1, 2, 3."""
    return {replicas: make_strategy(replicas) for replicas in (1, 2, 3)}


def smooth_images(count, size=32, seed=0):
    """Return smooth images unlike each other, uint8 [count, size, size, 3]."""
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 255, (count, 2, 2, 3))
    ramp = np.linspace(0, 1, size)
    rows = np.stack([1 - ramp, ramp])
    return np.einsum("ah,bw,nabc->nhwc", rows, rows, corners).round().astype(np.uint8)


@pytest.fixture(scope="session")
def make_images():
    """Return the function `smooth_images`."""
    return smooth_images


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Return a `Browser` for all tests."""
    if not CHROMIUM:
        pytest.skip("no Chromium on the PATH")
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
