"""One TensorFlow process for all tests, with three logical CPU devices, so that replicas can be tried anywhere."""

import gc
import os
import pathlib
import signal

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the tests compare with what the CPU gives, bit for bit

import numpy as np
import pytest

import cyclegan  # noqa: F401  before TensorFlow: it silences the notices
from cyclegan.distribution.strategy import make_strategy
from tests.browser import CHROMIUM, Browser

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = pathlib.Path(__file__).resolve().parents[1]
make_strategy(3)  # starts TensorFlow with three logical devices; strategies of fewer share them


@pytest.fixture(scope="module", autouse=True)
def collected():
    """What modules leave behind is looked through once after each, not each time: that takes seconds, of the graphs of all."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def strategies():
    """MirroredStrategy by number of replicas: 1, 2, 3."""
    return {replicas: make_strategy(replicas) for replicas in (1, 2, 3)}


@pytest.fixture(scope="session")
def stripes_dir(tmp_path_factory):
    """A data_dir for TFDS, in which the embedded data set is prepared once."""
    return str(tmp_path_factory.mktemp("tfds"))


def smooth_pictures(count, size=32, seed=0):
    """uint8 [count, size, size, 3], smooth pictures unlike each other."""
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 255, (count, 2, 2, 3))
    ramp = np.linspace(0, 1, size)
    rows = np.stack([1 - ramp, ramp])
    return np.einsum("ah,bw,nabc->nhwc", rows, rows, corners).round().astype(np.uint8)


@pytest.fixture(scope="session")
def pictures_of():
    """The function `smooth_pictures`."""
    return smooth_pictures


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A `Browser` for all tests."""
    if not CHROMIUM:
        pytest.skip("no Chromium on the PATH")
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
