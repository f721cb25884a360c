import pytest

from cyclegan.inference.model import Model
from tests.inference.arrays import write_originals
from tests.inference.runs import make_run


@pytest.fixture(scope="module")
def models(tmp_path_factory, strategies):
    """Return the model of a run from RGB to gray, and the folder of the run."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    make_run(folder, strategies[1], channels_y=1)
    return Model(folder), folder


@pytest.fixture(scope="package")
def run_folder(tmp_path_factory, strategies):
    """Return the folder of a run from RGB to RGB."""
    path = tmp_path_factory.mktemp("runs") / "run"
    make_run(path, strategies[1], channels_y=3)
    return path


@pytest.fixture(scope="package")
def model(run_folder):
    return Model(run_folder)


@pytest.fixture
def originals(tmp_path):
    """Write images of all kinds to the folder "in"; return their sizes by name."""
    return write_originals(tmp_path / "in")
