"""Run the demo of the README, then translate, view, score and export with its run."""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from cyclegan.data import stripes
from cyclegan.images import formats, geometry, reader
from cyclegan.images.image import DecodedImage
from cyclegan.images.value_range import to_depth

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Return a copy of the repository in which the demo ran, and the output of the demo."""
    home = tmp_path_factory.mktemp("home")
    ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, home / "clone", ignore=lambda folder, names: {*ignored(folder, names), "demo"} & set(names))
    os.environ["HOME"], before = str(home), os.environ["HOME"]  # the dataset is prepared there
    try:
        yield home / "clone", run([home / "clone" / "scripts" / "demo.sh"], VENV=sys.prefix)
    finally:
        os.environ["HOME"] = before


def run(command, code=0, **environment):
    """Run a command; return its output."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment}
    result = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=1800)
    assert result.returncode == code, result.stdout[-1000:] + result.stderr[-3000:]
    return result.stdout


def script(demo, name, *arguments, code=0):
    return run([sys.executable, demo[0] / "scripts" / name, demo[0] / "runs" / "demo", *arguments], code)


def test_demo_beats_the_identity(demo):
    rows = [line.rsplit(None, 2) for line in demo[1].splitlines() if line.startswith(("X -> Y:", "Y -> X:"))]
    assert len(rows) == 7
    for what, trained, identity in rows:
        if "outside the animal" in what:
            assert float(trained) < 20  # in gray levels of 255
        else:
            assert float(trained) < float(identity), what
    samples = next(line for line in demo[1].splitlines() if line.startswith("The samples:")).split(":", 1)[1]
    assert pathlib.Path(samples.strip()).read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Return a folder of images of horses, in all formats and of many sizes."""
    folder = tmp_path_factory.mktemp("mixed")
    horse = stripes.draw(stripes.random_scene(np.random.default_rng(0)), "horse", 256)
    sizes = {"small.png": (17, 23), "large.jpg": (2000, 3000), "odd <&\"' #?%.png": (64, 80), "a/b.webp": (90, 64)}
    sizes.update({"a/c.tif": (50, 64), "d.bmp": (64, 64), "e.gif": (70, 64)})
    for name, size in sizes.items():
        formats.write(folder / name, DecodedImage(geometry.resize(horse, size)))
    clear = np.linspace(0, 255, 256 * 256).reshape(256, 256, 1).astype(np.uint8)
    formats.write(folder / "clear.png", DecodedImage(horse, clear))
    for name in ("deep.png", "deep.tiff"):
        formats.write(folder / name, DecodedImage(to_depth(horse, np.uint16)))
    image, exif = Image.fromarray(horse[:, :200]), Image.Exif()
    exif[0x0112] = 6
    image.save(folder / "turned.jpg", exif=exif)
    image.convert("L").save(folder / "gray.jpg")
    image.convert("P").save(folder / "palette.png")
    image.convert("CMYK").save(folder / "cmyk.jpg")
    (folder / "broken.jpg").write_bytes((folder / "turned.jpg").read_bytes()[:900])
    (folder / "notes.txt").write_text("no image")
    return folder


EXPORTS = {"savedmodel": "out", "keras": "out.keras", "onnx": "out.onnx", "tflite": "out.tflite"}


@pytest.fixture(scope="module")
def used(demo, mixed, tmp_path_factory):
    """Run the commands, two at a time; return the folder of results and the outputs by name."""
    folder = tmp_path_factory.mktemp("used")
    commands = {
        "translate": ("translate.py", mixed, folder / "translated", "--html"),
        "evaluate": ("evaluate.py", "--features", "random", "--json", folder / "scores.json"),
        **{format: ("export.py", folder / name, "--format", format) for format, name in EXPORTS.items()},
    }
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = {
            name: pool.submit(script, demo, *command, code=int(name == "translate"))
            for name, command in commands.items()
        }
        return folder, {name: future.result() for name, future in running.items()}


def test_translate_mixed_images(mixed, used):
    out, printed = used[0] / "translated", used[1]["translate"]
    unused, summary = printed.splitlines()[:2]
    assert "not used: 1 (.txt)" in unused
    assert re.fullmatch(r"14 images translated in [\d.]+ s \([\d.]+ images/s\), from .*epoch_0005-\d+", summary)
    assert "more than 1536 x 1536 pixels, translated in tiles: 1. A larger --tile is faster" in printed
    expected = sorted(path for path in mixed.rglob("*.*") if path.name not in ("broken.jpg", "notes.txt"))
    for path in expected:
        with Image.open(path) as before, Image.open(out / path.relative_to(mixed)) as after:
            turned = before.size if path.name != "turned.jpg" else before.size[::-1]
            assert (after.format, after.size) == (before.format, turned), path
    assert reader.decode_values(out / "deep.png").pixels.dtype == np.uint16
    np.testing.assert_array_equal(
        reader.decode_values(out / "clear.png").opacity,
        reader.decode_values(mixed / "clear.png").opacity,
    )
    assert "index_files" in os.listdir(out) and not (out / "broken.jpg").exists()


def test_pages_in_a_browser(demo, used, browser):
    for page, count in ((used[0] / "translated" / "index.html", 14), (demo[0] / "runs" / "demo" / "index.html", 10)):
        browser.open(page)
        assert browser.js("document.querySelectorAll('ol > li').length") == count
        assert all(browser.widths()) and len(browser.widths()) == 3 * count
        assert browser.problems() == []
    shown = "document.querySelectorAll('ol img')[1].src.split('samples/')[1].split('/')[0]"
    browser.js("document.querySelector('input[type=range]').focus()")
    seen = [browser.js(shown)]
    for key in ("Home", "ArrowRight"):
        browser.press(key)
        seen.append(browser.js(shown))
    assert seen == ["epoch_005", "epoch_001", "epoch_002"]


def test_scores_beat_untranslated(used):
    folder, printed = used[0], used[1]["evaluate"]
    assert "not comparable with published" in printed and "seed 0" in printed
    for direction, part in json.loads((folder / "scores.json").read_text())["directions"].items():
        scores, untranslated = part["scores"], part["untranslated"]
        assert scores["FID"] < untranslated["FID"] and scores["KID"] < untranslated["KID"], direction
        if direction == "y2x":  # a horse does not show where its stripes would be
            assert scores["MAE"] < untranslated["MAE"] and scores["SSIM"] > untranslated["SSIM"]
        assert 0 < scores["cycle_MAE"] < 30 and 0 < scores["identity_MAE"] < 30


@pytest.mark.parametrize("format", EXPORTS)
def test_exports_equal_the_network(used, format):
    folder, printed = used[0], used[1][format]
    difference = float(re.search(r"largest difference from the network: ([\d.e-]+) gray levels", printed)[1])
    assert difference < 0.13 and (folder / EXPORTS[format]).exists()
