"""Run train.py as a user does."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import zipfile

import pytest
import tensorflow_datasets as tfds

from cyclegan.cli import train
from cyclegan.config import serialization
from cyclegan.data import tfds_source
from cyclegan.data.sources import comparison_images
from cyclegan.errors import UserError
from tests.system.runs import ROOT, SMALLEST, TINY, assert_same, lines, photograph, run, variables


def test_mistakes_are_one_line_and_code_2(tmp_path):
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
def test_every_phase_is_on_the_terminal_before_the_first_bar(photos, tmp_path):
    """Print what a new user sees, with its times: run with -s."""
    flags = ["--dataset", photos, "--output_dir", tmp_path / "run", "--image_size", "32", "--epochs", "1", *SMALLEST]
    reader, writer = os.openpty()
    command = [sys.executable, ROOT / "train.py", *flags]
    began = time.monotonic()
    process = subprocess.Popen(list(map(str, command)), stdout=writer, stderr=writer)
    os.close(writer)
    shown = ""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(reader, 4096).decode(errors="replace"):
            print(f"{time.monotonic() - began:6.2f} {part!r}")
            shown += part
    os.close(reader)
    assert process.wait() == 0
    before = shown[: shown.index("Train: ")]
    phases = ["Starting TensorFlow", "Finding the images", "Building the networks"]
    assert [line for line in re.split("[\r\n]+", before) if line in phases] == phases


@pytest.mark.slow
def test_patience_ends_a_run_with_code_0(photos, tmp_path, capsys):
    """Train so slowly that no weight changes, so no evaluation is better than the first."""
    flags = ["--dataset", str(photos), "--output_dir", str(tmp_path / "run"), *SMALLEST, "--image_size", "32"]
    train.main([*flags, "--lr", "1e-30", "--epochs", "9", "--evaluate_every", "1", "--patience", "2"])
    output = capsys.readouterr().out
    assert "Training ends after epoch 3: in the last 2 evaluations, the KID of no direction was" in output
    assert "Epoch 003/009" in output and "Epoch 004" not in output


@pytest.mark.slow
def test_deterministic_operations_train_the_same_weights_on_a_cpu(photos, tmp_path, capsys):
    flags = ["--dataset", photos, "--epochs", 1, "--diffaugment", "translation", "--cache", "none"]
    train.main([*map(str, flags), *TINY, "--devices", "1", "--output_dir", str(tmp_path / "plain")])
    assert ", deterministic" not in capsys.readouterr().out
    result = run(*flags, *TINY, "--output_dir", tmp_path / "deterministic", "--deterministic", cwd=tmp_path)
    assert result.returncode == 0 and ", deterministic, steps per call" in result.stdout, result.stderr
    assert_same(*(variables(tmp_path / name / "checkpoints" / "epoch_0001") for name in ("plain", "deterministic")))


@pytest.mark.slow
def test_resume_refuses_and_warns(finished, photos, capsys):
    folder, small = pathlib.Path(finished[3]), [*SMALLEST, "--epochs", "1"]

    def files():
        return {path: path.stat().st_mtime_ns for path in folder.rglob("[!.]*")}  # not the lock

    before = files()
    with pytest.raises(UserError, match="filters 1 -> 2"):
        train.main([*finished, "--filters", "2"])
    photograph(photos / "trainA" / "new.jpg", 99)
    with pytest.raises(UserError, match="differs: trainA 5 images .* -> 6 images"):
        train.main([*finished, *SMALLEST])
    (photos / "trainA" / "new.jpg").unlink()
    train.main([*finished, *small, "--lr", "0.5"])  # one epoch is done already: nothing is left to change
    assert files() == before
    capsys.readouterr()
    train.main([*finished, *SMALLEST, "--epochs", "2", "--lr", "0.5", "--batch_size", "9"])
    errors = capsys.readouterr().err
    assert "lr 0.0002 -> 0.5 from here on" in errors
    assert "the global batch is 9 pairs instead of 1 from here on: an epoch has fewer steps" in errors
    assert "the global batch of 9 is larger than an epoch of 5 pairs" in errors
    assert lines(folder)[-2]["learning_rate"] == 0.5
    train.main([*finished, *small, "--filters", "2", "--clear_output_dir"])
    assert [line["epoch"] for line in lines(folder) if "event" not in line] == [1, 1]
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(UserError, match="holds a run that has begun to train, but no complete checkpoint"):
        train.main([*finished, *small, "--filters", "2"])
