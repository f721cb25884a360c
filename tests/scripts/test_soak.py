"""Choose settings, damage checkpoints and compare runs as `scripts/soak` does, and run it once."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config.command_line import parse_args
from scripts.soak import comparison, process
from scripts.soak.__main__ import main
from scripts.soak.settings import Settings, per_start
from tests.system.runs import ROOT


def test_random_settings_are_valid():
    kinds = set()
    for seed in range(40):
        settings = Settings.random(random.Random(seed))
        parse_args(["--dataset", "images", *settings.flags, *per_start(random.Random(seed))])
        kinds.add((settings.workers, settings.devices))
    assert kinds == {(1, 1), (1, 2), (1, 3), (2, 1)}


def write_run(run, last=1.0, best=2.0, seconds=3.0):
    state = json.dumps({"epoch": 2, "best_epoch": best, "train": {"seconds": seconds}})
    for name, value in (("epoch_0001-1", 0.0), (f"best-x2y-{seconds:.0f}", best), ("epoch_0002-2", last)):
        checkpoint = tf.train.Checkpoint(weight=tf.Variable([value, np.nan]), state=tf.Variable(state))
        checkpoint.write(str(run / "checkpoints" / name / "state"))
    lines = [{"epoch": 1, "loss": 1.0, "seconds": seconds}, {"epoch": 2, "loss": last, "speed/samples": seconds}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_ends_are_compared_bit_for_bit(tmp_path):
    whole = write_run(tmp_path / "whole")
    assert comparison.differences(whole, write_run(tmp_path / "same", seconds=4.0)) == []
    other = write_run(tmp_path / "other", last=1.0000001, best=2.5)
    values = "2 values, ['state/.ATTRIBUTES/VARIABLE_VALUE', 'weight/.ATTRIBUTES/VARIABLE_VALUE']"
    assert comparison.differences(whole, other) == [
        "metrics.jsonl: line 2 of 2 and 2",
        f"best-x2y checkpoint: {values}",
        f"newest checkpoint: {values}",
    ]
    assert comparison.differences(whole, write_run(tmp_path / "lost", best=2.5), is_best_lost=True) == []


def test_damage_leaves_a_checkpoint_to_resume_from(tmp_path):
    run, kinds = write_run(tmp_path), set()
    for seed in range(12):  # again and again, as when the starts between are killed before they save
        kinds.add(comparison.damage(run, random.Random(seed)))
        assert comparison.is_readable(run / "checkpoints" / "epoch_0001-1")
    assert len(kinds - {None}) > 2
    assert not comparison.is_readable(run / "checkpoints" / "epoch_0002-2")


@pytest.mark.parametrize(
    "program, reason", [("raise SystemExit(3)", "exit codes [3], expected one of [0]"), ("1 / 0", "a traceback")]
)
def test_a_failure_is_kept(tmp_path, monkeypatch, capsys, program, reason):
    monkeypatch.setattr(process, "PROGRAM", tmp_path / "program.py")
    (tmp_path / "program.py").write_text(program)
    flags = ["--minutes", "0", "--seed", "3", "--output_dir", str(tmp_path), "--json", str(tmp_path / "counts.json")]
    assert main(flags) == 1
    failures = json.loads((tmp_path / "counts.json").read_text())["failures"]
    assert failures == [{"seed": 3, "folder": str(tmp_path / "seed_3"), "reason": reason}]
    assert "1 failed" in capsys.readouterr().out and (tmp_path / "seed_3" / "whole.txt").exists()


@pytest.mark.slow
def test_a_short_soak(tmp_path):
    flags = ["--minutes", "0", "--seed", "601", "--json", tmp_path / "counts", "--output_dir", tmp_path / "runs"]
    command = [sys.executable, ROOT / "scripts" / "soak", *flags]
    result = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    counts = json.loads((tmp_path / "counts").read_text())["counts"]
    # On a busy machine the first start may end before the moment of its fault.
    assert counts["runs"] == 1 and counts["starts"] >= 1 and not list((tmp_path / "runs").iterdir())
