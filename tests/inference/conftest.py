import pytest

from cyclegan.images import writer
from cyclegan.images.image import DecodedImage
from cyclegan.inference.model import Model
from tests.inference.arrays import images
from tests.inference.test_restore import make_run


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
    sizes = {
        "a.png": (17, 23), "b.jpg": (40, 30), "sub/c.webp": (16, 16), "sub/deeper/d.bmp": (33, 65), "e.gif": (20, 20),
        "f.tif": (18, 19), "g.JPEG": (40, 30), "h.jpg": (40, 30), "i%20 ü#?.png": (24, 16),
    }  # fmt: skip
    for seed, (name, size) in enumerate(sizes.items()):
        writer.write(tmp_path / "in" / name, DecodedImage(images(*size, 3, seed=seed)))
    return sizes
