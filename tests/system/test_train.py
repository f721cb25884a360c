"""Run train.py as a user does, also through mishaps: broken and missing images, little memory."""

import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from cyclegan.cli import train
from cyclegan.config import serialization
from cyclegan.data import tfds_source
from cyclegan.data.sources import comparison_images
from cyclegan.errors import UserError
from cyclegan.run.run_directory import saved_checkpoints
from cyclegan.training import step as step_module
from tests.system.runs import ROOT, TINY, all_finite, assert_same, lines, photograph, run, start, variables


@pytest.mark.slow
def test_mistakes_are_one_line_and_code_2(tmp_path):
    (tmp_path / "other").mkdir()
    result = run("--dataset", "nowhere", cwd=tmp_path)
    shown = {line.partition(":")[0] for line in result.stdout.splitlines()}  # a slow phase adds its time
    assert result.returncode == 2 and shown <= {"Starting TensorFlow", "Finding the images"}
    assert result.stderr.startswith("train.py: --dataset nowhere: no such folder; expected")
    assert result.stderr.count("\n") == 1 and not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize(
    "missing, flags, code, text",
    [
        ("numpy", ["--dataset", "stripes"], 2, "No module named 'numpy': make the environment with scripts/setup.sh"),
        ("tensorflow", ["--help"], 0, "--lambda_cycle"),
        ("tensorflow", ["--batch_size", "0"], 2, "train.py: --batch_size 0: expected at least 1"),
    ],
)
def test_missing_packages_are_explained_or_not_needed(tmp_path, missing, flags, code, text):
    (tmp_path / f"{missing}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{missing}'\")")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(ROOT / "train.py"), *flags]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert result.returncode == code and text in result.stdout + result.stderr
    assert result.stderr.count("\n") == (1 if code else 0)


@pytest.mark.slow
def test_horse2zebra_through_tfds(tmp_path, monkeypatch, capsys):
    """Run train.py with the real builder of TFDS on an archive of the same layout."""
    archive = tmp_path / "horse2zebra.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for split, count in {"trainA": 4, "trainB": 5, "testA": 2, "testB": 3}.items():
            for i in range(count):
                photograph(tmp_path / "one.jpg", i, (64, 64))
                file.write(tmp_path / "one.jpg", f"horse2zebra/{split}/n0{i}_1.jpg")
    module = sys.modules[tfds.builder_cls("cycle_gan").__module__]
    monkeypatch.setitem(module._DL_URLS, "horse2zebra", str(archive))
    monkeypatch.setattr(tfds_source, "_host_answers", lambda url: True)
    monkeypatch.chdir(tmp_path)
    metrics = train.main(["--data_dir", str(tmp_path / "tfds"), "--epochs", "1", "--load_size", "36", *TINY])
    output = capsys.readouterr().out
    assert "Steps per epoch: 4 for training (4 pairs), 2 for validation (2 pairs)" in output
    assert "Writing to runs/horse2zebra" in output
    assert 0 < metrics["test"]["error/MAE(X, F(G(X)))"] < 2
    assert (tmp_path / "runs" / "horse2zebra" / "samples" / "epoch_001.png").exists()
    saved = json.loads((tmp_path / "runs" / "horse2zebra" / "config.json").read_text())
    assert saved["data"]["trainB"].startswith("5 images")
    config, *_ = serialization.load(tmp_path / "runs" / "horse2zebra" / "config.json")
    images, text = comparison_images(config.data, "y2x", 4)
    assert text.startswith("2 images (cycle_gan/horse2zebra, testB), 32 x 32") and len(images) == 4


@pytest.mark.slow
def test_deterministic_operations_train_the_same_weights_on_a_cpu(photos, tmp_path, capsys):
    flags = ["--dataset", photos, "--epochs", 1, "--diffaugment", "translation", "--cache", "none"]
    train.main([*map(str, flags), *TINY, "--devices", "1", "--output_dir", str(tmp_path / "plain")])
    assert ", deterministic" not in capsys.readouterr().out
    result = run(*flags, *TINY, "--output_dir", tmp_path / "deterministic", "--deterministic", cwd=tmp_path)
    assert result.returncode == 0 and ", deterministic, steps per call" in result.stdout, result.stderr
    phases = ["Finding the images", "Starting TensorFlow", "Building the networks"]
    assert re.findall(f"^({'|'.join(phases)})", result.stdout, re.MULTILINE) == phases
    assert_same(*(variables(tmp_path / name / "checkpoints" / "epoch_0001") for name in ("plain", "deterministic")))


@pytest.mark.slow
def test_resume_refuses_and_warns(finished, photos, capsys):
    folder = pathlib.Path(finished[3])
    again = ["--output_dir", str(folder)]  # the run has its own settings

    def files():
        return {path: path.stat().st_mtime_ns for path in folder.rglob("[!.]*")}  # not the lock

    before = files()
    with pytest.raises(UserError, match="filters 1 -> 2"):
        train.main([*again, "--filters", "2"])
    photograph(photos / "trainA" / "new.jpg", 99)
    with pytest.raises(UserError, match="differs: trainA 5 images .* -> 6 images"):
        train.main(again)
    (photos / "trainA" / "new.jpg").unlink()
    train.main([*again, "--lr", "0.5"])  # its only epoch is done: nothing is left to change
    assert files() == before
    capsys.readouterr()
    train.main([*again, *["--epochs", "3", "--lr", "0.5", "--batch_size", "9", "--keep", "1", "--keep_every", "2"]])
    errors = capsys.readouterr().err
    assert "lr 0.0002 -> 0.5 from here on" in errors
    assert "the global batch is 9 pairs instead of 1 from here on: an epoch has fewer steps" in errors
    assert "the global batch of 9 is larger than an epoch of 5 pairs" in errors
    rates = [line["learning_rate"] for line in lines(folder) if line["split"] == "train" and "event" not in line]
    assert rates[-2] == 0.5
    assert [path.name[:10] for path in saved_checkpoints(folder / "checkpoints")] == ["epoch_0002", "epoch_0003"]


@pytest.mark.slow
def test_poisoned_image_is_skipped_and_named(photos, tmp_path, monkeypatch, capsys):
    original = step_module.to_float

    def poisoned(images):  # turn the pixels of the marked image into NaN
        marked = tf.reduce_all(images[:, 0, 0] == [1, 2, 3], axis=-1)[:, None, None, None]
        return tf.where(marked, np.nan, original(images))

    monkeypatch.setattr(step_module, "to_float", poisoned)
    pixels = np.full((32, 32, 3), (1, 2, 3), np.uint8)
    Image.fromarray(pixels).save(photos / "trainA" / "spoiled \x1b[31m.png")
    flags = ["--dataset", str(photos), "--output_dir", str(tmp_path / "run"), *TINY]
    train.main([*flags, "--epochs", "2"])
    errors = capsys.readouterr().err
    assert errors.count("nothing was updated") == 2 and "spoiled \\x1b[31m.png" in errors and "\x1b[31m" not in errors
    logged = lines(tmp_path / "run")
    events = [line for line in logged if line.get("event") == "not finite"]
    assert len(events) == 2 and all("trainA/spoiled \x1b[31m.png" in event["images"] for event in events)
    assert [line["skipped_steps"] for line in logged if line["split"] == "train" and "event" not in line] == [1, 1]
    assert all_finite(tmp_path / "run" / "checkpoints" / "epoch_0002")


@pytest.mark.slow
def test_memory_stays_flat(tmp_path):
    """Compare resident memory after 3 epochs and after 9.

    malloc has one arena and returns large blocks at once, because memory that it keeps would vary by some percent.
    """
    kept = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    process = start(
        "--dataset", "stripes", "--batch_size", "8", "--epochs", "10", "--plot_every", "3",
        "--max_dataset_size", "64", "--output_dir", tmp_path / "run", *TINY, **kept,
    )  # fmt: skip
    resident = {}
    for line in process.stdout:
        if line.startswith("Epoch"):
            resident[int(line[6:9])] = psutil.Process(process.pid).memory_info().rss
    process.communicate(timeout=60)
    assert process.returncode == 0 and abs(resident[9] / resident[3] - 1) < 0.03, resident
