"""Compare interrupted runs with undisturbed ones, bit for bit."""

import shutil
import signal
from time import sleep

import numpy as np
import pytest
import tifffile
from PIL import Image

from cyclegan.cli import train
from cyclegan.errors import UserError
from cyclegan.run.run_directory import saved_checkpoints
from scripts.soak.comparison import log_lines
from tests.system.runs import SMALLEST, TINY, assert_same, start, variables, wait_for_line


def assert_same_runs(folder, checkpoint):
    """Assert that the runs `whole` and `parts` in a folder have the same log, and the same weights in a checkpoint."""
    assert_same(*(variables(folder / name / "checkpoints" / checkpoint) for name in ("whole", "parts")))
    assert log_lines(folder / "whole") == log_lines(folder / "parts")


def test_deep_gray_and_five_bands_resume_bit_exact(tmp_path, capsys):
    """Train 16-bit gray images and TIFFs of five bands, cropped; resume as after a kill before the last save."""
    for i in range(4):
        rng = np.random.default_rng(i)
        for domain in "AB":
            (tmp_path / "data" / f"train{domain}").mkdir(parents=True, exist_ok=True)
        x, y = rng.integers(0, 65536, (40 + i, 36)), rng.integers(0, 256, (33, 40 - i, 5))
        Image.fromarray(x.astype(np.uint16)).save(tmp_path / "data" / "trainA" / f"{i}.png")
        bands = {"photometric": "minisblack", "planarconfig": "contig"}
        tifffile.imwrite(tmp_path / "data" / "trainB" / f"{i}.tif", y.astype(np.uint8), **bands)
    flags = ["--dataset", str(tmp_path / "data"), "--channels_x", "1", "--channels_y", "5", "--preprocess", "crop"]
    flags += [*SMALLEST, "--image_size", "32", "--no_flip", "--decay_from", "1", "--no_peak"]
    flags += ["--plot_every", "2"]
    train.main([*flags, "--output_dir", str(tmp_path / "whole"), "--epochs", "2"])
    output = capsys.readouterr()
    assert "No identity losses: X and Y have different numbers of channels" in output.out
    assert "Warning" not in output.err
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    shutil.rmtree(*saved_checkpoints(tmp_path / "parts" / "checkpoints", "epoch_0002"))
    train.main([*flags, "--output_dir", str(tmp_path / "parts"), "--epochs", "2", "--cache", "none"])
    assert "1 of 2 epochs are done" in capsys.readouterr().out
    assert_same_runs(tmp_path, "epoch_0002")
    assert (tmp_path / "parts" / "samples" / "epoch_002.png").exists()
    with pytest.raises(UserError, match="channels_y 5 -> 3"):
        train.main([*flags, "--channels_y", "3", "--output_dir", str(tmp_path / "parts"), "--epochs", "2"])


@pytest.mark.slow
def test_signals_and_kills_are_bit_exact(photos, tmp_path, capsys):
    """Interrupt a run by SIGTERM, SIGKILL, and SIGINT once and twice; it ends with the same weights and log."""
    flags = ["--dataset", str(photos), "--epochs", "20", "--plot_every", "99", "--log_every", "2", "--keep", "2"]
    flags += ["--devices", "1", "--no_peak", *TINY]
    train.main([*flags, "--output_dir", str(tmp_path / "whole")])
    flags += ["--output_dir", str(tmp_path / "parts")]
    for signum, times in ((signal.SIGTERM, 1), (signal.SIGKILL, 1), (signal.SIGINT, 1), (signal.SIGINT, 2)):
        process = start(*flags)
        wait_for_line(process, "Epoch")
        sleep(1)  # at a random moment
        process.send_signal(signum)
        if times == 2:
            sleep(0.02)  # while the process finishes the step, or saves
            process.send_signal(signum)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == (-signum if signum == signal.SIGKILL else 128 + signum)
        if signum != signal.SIGKILL and times == 1:
            assert f"train.py: stopped by {signum.name} after " in errors and "the same command resumes" in errors
        assert "Traceback" not in errors
    capsys.readouterr()
    train.main(flags)
    assert "Resumed from" in capsys.readouterr().out
    assert_same_runs(tmp_path, "epoch_0020")
