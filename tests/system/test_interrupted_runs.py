"""Compare interrupted runs with undisturbed ones, bit for bit."""

import signal
from time import sleep

import numpy as np
import pytest
import tifffile
from PIL import Image

from cyclegan.cli import train
from cyclegan.errors import UserError
from cyclegan.run.run_directory import find_checkpoints
from scripts.soak.comparison import log_lines
from tests.system.runs import SMALLEST, TINY, assert_same, lines, run, start, variables, wait_for_line


def test_killed_process_resumes_bit_exact(photos, tmp_path, capsys):
    """Kill a process in its second epoch; resume it, and run an undisturbed one, in this process."""
    flags = ["--dataset", str(photos), "--epochs", "3", "--devices", "1", "--no_peak", "--plot_every", "99"]
    flags += [*SMALLEST, "--image_size", "32"]
    process = start(*flags, "--output_dir", tmp_path / "parts")
    wait_for_line(process, "Epoch 002")
    process.kill()
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    train.main([*flags, "--output_dir", str(tmp_path / "parts")])
    assert "Resumed from" in capsys.readouterr().out
    train.main([*flags, "--output_dir", str(tmp_path / "whole")])
    whole, parts = (variables(tmp_path / name / "checkpoints" / "epoch_0003") for name in ("whole", "parts"))
    assert_same(whole, parts)
    assert log_lines(tmp_path / "whole") == log_lines(tmp_path / "parts")


@pytest.mark.slow
def test_deep_gray_and_five_bands_resume_bit_exact(tmp_path, capsys):
    """Train 16-bit gray images and TIFFs of five bands, cropped from several sizes; stop between epochs, and cache elsewhere."""
    for i in range(4):
        rng = np.random.default_rng(i)
        for domain in "AB":
            (tmp_path / "data" / f"train{domain}").mkdir(parents=True, exist_ok=True)
        x, y = rng.integers(0, 65536, (40 + i, 36)), rng.integers(0, 256, (33, 40 - i, 5))
        Image.fromarray(x.astype(np.uint16)).save(tmp_path / "data" / "trainA" / f"{i}.png")
        tifffile.imwrite(
            tmp_path / "data" / "trainB" / f"{i}.tif",
            y.astype(np.uint8),
            photometric="minisblack",
            planarconfig="contig",
        )
    flags = ["--dataset", str(tmp_path / "data"), "--channels_x", "1", "--channels_y", "5", "--preprocess", "crop"]
    flags += [*TINY, "--no_flip", "--decay_from", "1"]
    train.main([*flags, "--output_dir", str(tmp_path / "whole"), "--epochs", "2"])
    output = capsys.readouterr()
    assert (
        "No identity losses: X and Y have different numbers of channels" in output.out and "Warning" not in output.err
    )
    train.main([*flags, "--output_dir", str(tmp_path / "parts"), "--epochs", "1", "--cache", "none"])
    train.main([*flags, "--output_dir", str(tmp_path / "parts"), "--epochs", "2", "--cache", "ram"])
    assert "1 of 2 epochs are done" in capsys.readouterr().out
    whole, parts = (variables(tmp_path / name / "checkpoints" / "epoch_0002") for name in ("whole", "parts"))
    assert_same(whole, parts)
    assert log_lines(tmp_path / "whole") == log_lines(tmp_path / "parts")
    assert (tmp_path / "parts" / "samples" / "epoch_002.png").exists()
    with pytest.raises(UserError, match="channels_y 5 -> 3"):
        train.main([*flags, "--channels_y", "3", "--output_dir", str(tmp_path / "parts"), "--epochs", "2"])


@pytest.mark.slow
def test_resume_between_epochs_with_another_cache_is_bit_exact(photos, tmp_path, capsys):
    small = [*TINY, "--decay_from", "1"]
    flags = ["--dataset", str(photos), "--batch_size", "2", "--verbose", "0", *small]
    train.main([*flags, "--cache", "ram", "--output_dir", str(tmp_path / "whole"), "--epochs", "2"])
    train.main([*flags, "--cache", "none", "--output_dir", str(tmp_path / "parts"), "--epochs", "1"])
    train.main(
        [*flags, "--cache_gb", "0", "--output_dir", str(tmp_path / "parts"), "--epochs", "2"]
    )  # 0 GB of memory: decoded at each use
    warnings = capsys.readouterr().err.splitlines()
    assert not [line for line in warnings if "is nearly the same for all" not in line]  # true after a few steps
    whole, parts = (variables(tmp_path / name / "checkpoints" / "epoch_0002") for name in ("whole", "parts"))
    assert_same(whole, parts)
    assert log_lines(tmp_path / "whole") == log_lines(tmp_path / "parts")
    whole, parts = ({path.name for path in (tmp_path / name).glob("[!e]*")} for name in ("whole", "parts"))
    assert whole == parts


@pytest.mark.slow
def test_damaged_checkpoint_is_skipped(photos, tmp_path, capsys):
    flags = ["--dataset", str(photos), "--output_dir", str(tmp_path / "run"), *TINY]
    train.main([*flags, "--epochs", "2"])
    (newest,) = find_checkpoints(tmp_path / "run" / "checkpoints", "epoch_0002")
    data = newest / "state.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    capsys.readouterr()
    train.main([*flags, "--epochs", "2"])
    output = capsys.readouterr()
    assert "epoch_0002-3 can't be read" in output.err and "epoch_0001-2: 1 of 2 epochs are done" in output.out
    assert [(line["epoch"], line["split"]) for line in lines(tmp_path / "run")] == [
        (1, "train"), (1, "test"), (2, "train"), (2, "test")
    ]  # fmt: skip


@pytest.mark.slow
def test_signals_and_kills_are_bit_exact(photos, tmp_path):
    """Interrupt a run by SIGTERM, SIGKILL, and SIGINT once and twice; it ends with the same weights and the same log."""
    flags = ["--dataset", photos, "--epochs", "20", "--plot_every", "99", "--log_every", "2", "--keep", "2", *TINY]
    assert run(*flags, "--output_dir", tmp_path / "whole").returncode == 0
    parts = [*flags, "--output_dir", tmp_path / "parts"]
    for signum, times in ((signal.SIGTERM, 1), (signal.SIGKILL, 1), (signal.SIGINT, 1), (signal.SIGINT, 2)):
        process = start(*parts)
        wait_for_line(process, "Epoch")
        sleep(1)  # at a random moment
        process.send_signal(signum)
        if times == 2:
            sleep(0.02)  # while the process finishes the step, or saves
            process.send_signal(signum)
        _, errors = process.communicate(timeout=120)
        if signum == signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL
        elif times == 2:
            assert process.returncode == 128 + signum
        else:
            assert process.returncode == 128 + signum
            assert f"train.py: stopped by {signum.name} after " in errors and "the same command resumes" in errors
        assert "Traceback" not in errors
    last = run(*parts)
    assert last.returncode == 0 and "Resumed from" in last.stdout
    whole, resumed = (variables(tmp_path / name / "checkpoints" / "epoch_0020") for name in ("whole", "parts"))
    assert_same(whole, resumed)
    assert log_lines(tmp_path / "whole") == log_lines(tmp_path / "parts")
