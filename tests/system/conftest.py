"""Provide a folder of photographs, a finished run on it, and a folder for runs of several workers."""

import pytest

from cyclegan.cli import train
from tests.system import worker_processes
from tests.system.runs import SMALLEST, photograph


@pytest.fixture
def photos(tmp_path):
    """Return a dataset folder of mixed formats and sizes: 5 + 7 images for training, 2 + 3 for testing."""
    for domain, count, tests in (("A", 5, 2), ("B", 7, 3)):
        for i in range(count):
            ending = ("jpg", "PNG", "bmp", "webp", "jpeg")[i % 5]
            photograph(tmp_path / "photos" / f"train{domain}" / f"sub{i % 2}" / f"{i}.{ending}", i, (40 + 9 * i, 50))
        for i in range(tests):
            photograph(tmp_path / "photos" / f"test{domain}" / f"{i}.gif", 50 + i)
    return tmp_path / "photos"


@pytest.fixture
def finished(tmp_path, photos):
    """Return the flags of a run that finished its only epoch, with the smallest networks."""
    flags = ["--dataset", str(photos), "--output_dir", str(tmp_path / "run"), "--verbose", "0", "--image_size", "32"]
    train.main([*flags, *SMALLEST, "--epochs", "1"])
    return flags


@pytest.fixture(scope="module")
def workers_home(tmp_path_factory):
    """Return a folder for runs of several workers, and their flags."""
    return tmp_path_factory.mktemp("several"), [*worker_processes.FLAGS, "--log_every", 2]
