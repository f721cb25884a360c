import os
import pathlib
import re
import shutil
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
    assert done.stderr.splitlines()[-1] == f"Warning: failed: {tmp_path}/in/broken.png (a text, not an image)"
    assert done.stderr.count("Warning:") == 1
    assert len(files(tmp_path / "out")) == 9 + 1 + 27


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("nowhere in out", "nowhere: no such folder; expected the folder of a run"),
        ("rum in out", "rum: no such folder (do you mean run?); expected the folder of a run"),
        ("lost in out", "lost is a run whose config.json is missing; expected the folder of a run"),
        ("run/checkpoints/epoch_9 in out", "epoch_9: no such checkpoint; expected one of "),
        ("run/checkpoints/a in out --checkpoint b", "run/checkpoints/a with --checkpoint b: expected one of them"),
        ("in run out", "in is a folder of images, but run is a run: swap them"),
        ("run in out --checkpoint epoch_9", "epoch_9: no such checkpoint; expected one of "),
        ("a.onnx in run", "a.onnx is an exported network, but run is a run: swap them"),
        ("card in out", "card is an exported network (docs/export.md: what uses it); expected the folder of a run"),
        ("run t.sh out", "t.sh: a text, not an image; expected an image"),
        (
            "run photo.scan out",
            "expected --format (png, jpeg, webp, bmp, gif, avif, jpeg2000, ",
        ),
        ("run in out --format heic2", "one of png, jpeg, webp, bmp, gif, avif, "),
        (
            "run out in",
            "out: no such file or folder; expected an image, a folder of images, or a pattern; or, if in, a",
        ),
        ("run out in in", "out: no such file or folder; expected an image, a folder of images, or a pattern\n"),
        ("run in run", "run is a run; expected another folder for the translations"),
        ("in out", "received in (a folder of images) and out (no file or folder), expected RUN INPUT OUTPUT"),
        ("run in out --size 0x7", "--size '0x7': expected a number of pixels, or WIDTHxHEIGHT"),
        ("run in/a.png out --size 50 40", "--size 50 and 40, no file or folder: expected 50x40, or ./40"),
        ("run in out --size 99999", "--size 99999 x 99999 pixels: expected at most 180 million"),
        ("run in out --batch_size 0", "--batch_size '0': expected a whole number of at least 1"),
        ("run in out --tile 100", "--tile 100: expected a whole number of at least 512 pixels"),
        ("run in/a.png in/b.jpg in/h.jpg", "h.jpg is an image; expected a folder for the translations, as the last"),
    ],
)
def test_mistakes_are_named_before_tensorflow_is_loaded(run_folder, originals, tmp_path, arguments, text):
    (tmp_path / "run").symlink_to(run_folder)
    (tmp_path / "a.onnx").write_bytes(b"")
    (tmp_path / "card").mkdir()
    for name in ("config.json", "scores.json"):
        (tmp_path / "card" / name).write_text("{}")
    (tmp_path / "t.sh").write_text("echo")
    (tmp_path / "photo.scan").write_bytes((tmp_path / "in" / "b.jpg").read_bytes())
    (tmp_path / "lost" / "checkpoints" / "epoch_0001-1").mkdir(parents=True)
    code = "import sys; sys.modules['tensorflow'] = None; from cyclegan.cli.translate import program; program()"
    command = [sys.executable, "-c", code, *arguments.split()]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert text in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["", "in", "out"], ["run", "", "out"], ["run", "in", ""], ["run", "in", "--masks", ""]]
)
def test_an_empty_path_is_refused(arguments):
    from cyclegan.cli import translate

    with pytest.raises(UserError, match=f"^{'--masks ' * ('--masks' in arguments)}'': expected a text that is"):
        translate.main(arguments)


def test_several_inputs_keep_their_folders(run_folder, originals, tmp_path, monkeypatch):
    from cyclegan.cli import translate

    monkeypatch.chdir(tmp_path)
    (tmp_path / "in" / "notes.txt").write_text("no image")
    for inputs, expected in (
        (["in/a.png", "in/b.jpg", "in/notes.txt"], ["a.png", "b.jpg"]),
        (["in/a.png", "in/sub", str(tmp_path / "in" / "sub" / "c.webp")], ["a.png", "sub/c.webp", "sub/deeper/d.bmp"]),
        (["in/sub/deeper", "in/*.p*g"], ["a.png", "i%20 ü#?.png", "sub/deeper/d.bmp"]),
    ):
        assert (
            translate.main([str(run_folder), *inputs, "--overwrite", "out", "--format", "png", "--batch-size", "2"])
            == 0
        )
        assert files(tmp_path / "out") == sorted(str(pathlib.Path(name).with_suffix(".png")) for name in expected)
        shutil.rmtree(tmp_path / "out")
