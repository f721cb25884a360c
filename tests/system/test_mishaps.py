"""Train through mishaps: divergence, broken and missing images, little memory."""

import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cyclegan.cli import train
from cyclegan.distribution import hardware
from cyclegan.errors import TrainingError, UserError
from cyclegan.training import setup
from cyclegan.training import step as step_module
from tests.system.runs import SMALLEST, TINY, all_finite, lines, start


@pytest.mark.slow
def test_divergence_goes_back_once_then_stops(photos, tmp_path, capsys):
    """Train with a learning rate that breaks the weights in the first step."""
    flags = ["--dataset", str(photos), "--output_dir", str(tmp_path / "run"), "--max_bad_steps", "3", *TINY]
    with pytest.raises(
        TrainingError, match=r"epoch 1, step \d .*not finite, with trainA.*diverged again after going back"
    ):
        train.main([*flags, "--lr", "1e30", "--epochs", "2"])
    errors = capsys.readouterr().err
    assert "nothing was updated (1 in a row)" in errors and "goes back to" in errors and "epoch_0000" in errors
    assert "Traceback" not in errors and len(lines(tmp_path / "run")) > 3
    assert all_finite(tmp_path / "run" / "checkpoints" / "epoch_0000")
    train.main([*flags, "--epochs", "1"])  # the same command with a lower --lr resumes
    assert "lr 1e+30 -> 0.0002 from here on" in capsys.readouterr().err


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
def test_images_may_disappear_while_training(finished, photos, monkeypatch):
    """Remove images that are cached in memory; the next start names the missing folder."""
    load_data = setup.load_data

    def load_and_remove(*args):
        data = load_data(*args)
        shutil.rmtree(photos / "trainA")
        return data

    monkeypatch.setattr(setup, "load_data", load_and_remove)
    monkeypatch.setattr(hardware, "measure_peak", lambda precision: pytest.fail("with --no_peak"))
    flags = [*finished, *SMALLEST, "--batch_size", "2", "--no_peak"]
    metrics = train.main([*flags, "--epochs", "2"])
    assert metrics["train"]["skipped_steps"] == 0 and not (photos / "trainA").exists()
    monkeypatch.undo()
    with pytest.raises(UserError, match="trainA: no such folder; expected"):
        train.main([*flags, "--epochs", "3"])


@pytest.mark.slow
def test_memory_stays_flat(stripes_dir, tmp_path):
    """Compare resident memory after 3 epochs and after 9.

    malloc has one arena and returns large blocks at once, because memory that it keeps would vary by some percent.
    """
    kept = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    process = start(
        "--dataset", "stripes", "--data_dir", stripes_dir, "--batch_size", "8", "--epochs", "10", "--plot_every", "3",
        "--max_dataset_size", "64", "--output_dir", tmp_path / "run", *TINY, **kept,
    )  # fmt: skip
    resident = {}
    for line in process.stdout:
        if line.startswith("Epoch"):
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            resident[int(line[6:9])] = int(re.search(r"VmRSS:\s+(\d+)", status).group(1))
    process.communicate(timeout=60)
    assert process.returncode == 0 and abs(resident[9] / resident[3] - 1) < 0.03, resident
