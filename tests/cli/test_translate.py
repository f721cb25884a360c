import os
import pathlib
import re
import subprocess
import sys

import pytest
from PIL import Image

from cyclegan.errors import UserError
from tests.inference.arrays import files, images, write_originals
from tests.inference.runs import make_run

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, strategies):
    """Return the folder of a run from RGB to RGB."""
    path = tmp_path_factory.mktemp("runs") / "run"
    make_run(path, strategies[1], channels_y=3)
    return path


@pytest.fixture
def originals(tmp_path):
    """Write images of all kinds to the folder "in"; return their sizes by name."""
    return write_originals(tmp_path / "in")


def translate_py(*arguments):
    command = [sys.executable, ROOT / "scripts" / "translate.py", *arguments]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    )


def test_a_folder_is_not_translated_into_a_file(run_folder):
    from cyclegan.cli import translate

    with pytest.raises(
        UserError, match=r"^h\.png: the name of an image, but .*run is a folder; expected a folder, such as h$"
    ):
        translate.main([str(run_folder), str(run_folder), "h.png"])


def test_script_translates_and_reports(run_folder, originals, tmp_path):
    (tmp_path / "in" / "broken.png").write_text("no image")
    frames = [Image.fromarray(images(16, 20, 3, seed=seed)) for seed in range(2)]
    frames[0].save(tmp_path / "in" / "e.gif", save_all=True, append_images=frames[1:])
    done = translate_py(
        run_folder, tmp_path / "in", tmp_path / "out", "--direction", "y2x", "--html", "--devices", 2, "--format", "png"
    )
    assert done.returncode == 1
    assert re.match(
        r"9 images translated in [\d.]+ s \([\d.]+ images/s\), from .*epoch_0002-2\n"
        r"Files with several pages, slices or frames: 1; only the first of each was translated: --stacks all .*\n"
        r"Page to look at: .*index\.html\n",
        done.stdout,
    )
    # TensorFlow 2.21 writes its notices before, whatever TF_CPP_MIN_LOG_LEVEL is.
    assert done.stderr.splitlines()[-1] == f"Warning: failed: {tmp_path}/in/broken.png (not an image)"
    assert done.stderr.count("Warning:") == 1
    assert len(files(tmp_path / "out")) == 9 + 1 + 27


@pytest.mark.parametrize(
    ("run", "flags", "text"),
    [
        ("nowhere", "", "nowhere: no such folder; expected the folder of a run"),
        ("run", "--checkpoint best-x2y", "no such checkpoint; expected one of epoch_0001-1, epoch_0002-2"),
        ("run", "--size 0x7", "'0x7': expected a number of pixels, or WIDTHxHEIGHT"),
        ("run", "--batch_size 0", "'0': expected a whole number of at least 1"),
    ],
)
def test_mistakes_on_the_command_line_are_named(run_folder, run, flags, text, capsys):
    from cyclegan.cli import translate

    with pytest.raises((UserError, SystemExit)) as refused:
        translate.main([str(run_folder.parent / run), "a", "b", *flags.split()])
    assert text in f"{refused.value}{capsys.readouterr().err}"
