"""Draw settings, damage folders, compare runs and count as scripts/soak.py does, and run it once."""

import json
import pathlib
import random
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config.command_line import parse_args
from cyclegan.config.config import all_settings
from cyclegan.errors import UserError
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.train_state import TrainState
from scripts import soak
from scripts.soaking import comparison, process, settings, tampering
from scripts.soaking.scoreboard import Scoreboard

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_drawn_settings_are_valid_and_repeat():
    kinds = set()
    for seed in range(500):
        drawn = settings.draw(random.Random(seed))
        assert settings.draw(random.Random(seed)) == drawn
        config = parse_args(["--dataset", "images", *drawn.flags, *settings.draw_per_start(random.Random(seed))])
        kinds.add((drawn.workers, config.distribution.devices))
        assert config.optimization.epochs == drawn.epochs
    assert kinds == {(1, None), (1, 2), (1, 3), (2, None)}


NOT_DRAWN = {
    **dict.fromkeys(("dataset", "output_dir"), "set for each run"),
    **dict.fromkeys(("port", "data_dir"), "for Slurm's workers; for TensorFlow Datasets"),
    **dict.fromkeys(("wandb", "mlflow", "evaluate_features"), "need a server or a file"),
    **dict.fromkeys(("patience", "max_dataset_size"), "would end runs or epochs before they are disturbed"),
    "optimizer": "has one choice",
    **dict.fromkeys(("preset", "clear_output_dir"), "other flags in one; removes the run that is resumed"),
    **dict.fromkeys(("tf32", "xla", "profile"), "has no effect on a CPU; take minutes there"),
}


def test_all_flags_can_be_drawn():
    rngs = [random.Random(seed) for seed in range(500)]
    flags = [flag for rng in rngs for flag in (*settings.draw(rng).flags, *settings.draw_per_start(rng))]
    assert {*all_settings()} - {flag[2:] for flag in flags if flag.startswith("--")} == {*NOT_DRAWN}


def write_run(path, loss=1.0, seconds=2.0):
    path.mkdir(parents=True)
    line = {"split": "train", "epoch": 1, "loss_G/loss": loss, "speed/samples": seconds, "seconds": seconds}
    (path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    checkpoints = CheckpointManager(path / "checkpoints", {"w": tf.Variable(tf.ones([50]))})
    for epoch in (1, 2):
        checkpoints.save(TrainState(epoch=epoch, log_bytes=10))
    return path


def test_ends_are_compared_bit_for_bit(tmp_path, monkeypatch):
    values = {name: {"w": np.float32([0.0, np.nan])} for name in ("whole", "parts")}
    monkeypatch.setattr(comparison, "variables", lambda checkpoint: values[checkpoint.parents[1].name])
    whole, parts = write_run(tmp_path / "whole"), write_run(tmp_path / "parts", seconds=3.0)
    assert comparison.differences(whole, parts, 2) == []
    values["parts"]["w"] = np.float32([-0.0, np.nan])
    assert comparison.differences(whole, parts, 2) == ["epoch_0002: 1 variables ['w']"]
    assert comparison.differences(whole, parts, 3) == ["epoch_0003: exists in one only"]
    values["parts"] = values["whole"]
    (parts / "metrics.jsonl").write_text("")
    (parts / "checkpoints" / "partial").mkdir()
    assert comparison.differences(whole, parts, 2) == ["metrics.jsonl: line 1 of 1 and 0", "left behind: partial"]


def test_a_best_checkpoint_that_a_full_disk_prevented_is_not_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "variables", lambda checkpoint: {})
    whole, parts = write_run(tmp_path / "whole"), write_run(tmp_path / "parts")
    for run, best, since in ((whole, 1, 1), (parts, 2, 0)):
        kid = {"x2y": 0.5 * best, "y2x": 0.25}
        state = TrainState(epoch=2, best_epoch={"x2y": best, "y2x": 2}, best_kid=kid, evaluations_since_best=since)
        CheckpointManager(run / "checkpoints", {"w": tf.Variable(tf.ones([50]))}).save(state)
    found = "epoch_0002: 3 training state ['best_epoch x2y', 'best_kid x2y', 'evaluations_since_best']"
    assert comparison.differences(whole, parts, 2) == [found] == comparison.differences(whole, parts, 2, {3})
    assert comparison.differences(whole, parts, 2, {1}) == []


@pytest.mark.parametrize("name", tampering.TAMPERINGS)
def test_damage_leaves_a_checkpoint_to_resume_from(tmp_path, name):
    for seed in range(2):
        run = write_run(tmp_path / str(seed))
        assert tampering.TAMPERINGS[name](run, random.Random(seed))
        assert comparison.is_whole(run / "checkpoints" / "epoch_0001-1")
        assert len((run / "metrics.jsonl").read_bytes()) >= 10
        for again in range(3):  # as when a start is killed before it saves
            tampering.TAMPERINGS[name](run, random.Random(again))
        assert comparison.is_whole(run / "checkpoints" / "epoch_0001-1")


@pytest.mark.parametrize("name", ["cut checkpoint", "flipped bit", "missing file"])
def test_the_only_whole_checkpoint_is_not_damaged(tmp_path, name):
    run = write_run(tmp_path / "run")
    (run / "checkpoints" / "epoch_0001-1" / "state.index").unlink()
    assert not tampering.TAMPERINGS[name](run, random.Random(0))
    assert comparison.is_whole(run / "checkpoints" / "epoch_0002-2")


def test_scoreboard_counts_kills_and_signals():
    board = Scoreboard(seed=5, runs=3, starts=9)
    board.faults.update({"SIGKILL": 2, "full disk and SIGKILL": 1, "SIGINT twice": 4, "pause": 7})
    board.failures.append({"seed": 6, "folder": "runs/soak/seed_6", "reason": "a traceback"})
    written = json.loads(board.to_json())
    assert (written["kills"], written["signals"], written["faults"]["pause"]) == (3, 4, 7)
    assert "3 runs, 9 starts" in board.line() and "FAILED: seed 6: a traceback" in board.table()


@pytest.mark.parametrize(
    ("program", "reason", "count"),
    [
        ("raise SystemExit(3)", "exit codes [3], expected one of [0]", "wrong_ends"),
        ("1 / 0", "a traceback", "tracebacks"),
    ],
)
def test_a_failure_is_counted_and_kept(tmp_path, monkeypatch, program, reason, count):
    monkeypatch.setattr(process, "PROGRAM", tmp_path / "program.py")
    (tmp_path / "program.py").write_text(program)
    flags = ["--minutes", "0", "--seed", "3", "--output_dir", str(tmp_path), "--json", str(tmp_path / "board.json")]
    assert soak.main(flags) == 1
    board, kept = json.loads((tmp_path / "board.json").read_text()), tmp_path / "seed_3"
    assert board[count] == 1 and board["failures"] == [{"seed": 3, "folder": str(kept), "reason": reason}]
    assert "--dataset data" in (kept / "settings.txt").read_text() and (kept / "whole.txt").exists()


def test_a_run_that_cannot_be_compared_is_a_difference(tmp_path, monkeypatch):
    monkeypatch.setattr(soak.Pair, "_train_undisturbed", lambda self: None)
    monkeypatch.setattr(soak.Pair, "_train_disturbed", lambda self, number, is_last: True)
    flags = ["--minutes", "0", "--output_dir", str(tmp_path), "--json", str(tmp_path / "board.json")]
    assert soak.main(flags) == 1
    board = json.loads((tmp_path / "board.json").read_text())
    assert board["differences"] == 1 and "metrics.jsonl" in board["failures"][0]["reason"]


def test_a_failed_run_is_not_overwritten(tmp_path):
    (tmp_path / "seed_3").mkdir()
    with pytest.raises(UserError, match="seed_3: holds a run that has failed; expected another --output_dir"):
        soak.main(["--minutes", "0", "--seed", "3", "--output_dir", str(tmp_path)])


def test_a_defect_of_the_soak_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(soak.Pair, "compare", lambda self: [][0])
    flags = ["--minutes", "0", "--output_dir", str(tmp_path), "--json", str(tmp_path / "board.json")]
    assert soak.main(flags) == 1
    assert json.loads((tmp_path / "board.json").read_text())["failures"][0]["reason"].startswith("IndexError: ")


@pytest.mark.parametrize("line", ["Resumed from checkpoints/epoch_0002", "Starting"])
def test_a_run_must_resume_from_a_checkpoint(tmp_path, monkeypatch, line):
    (tmp_path / "program.py").write_text(f"print({line!r}); print('Epoch 002/003')")
    monkeypatch.setattr(process, "PROGRAM", tmp_path / "program.py")
    pair = soak.Pair(tmp_path / "seed_0", 0, Scoreboard(0))
    write_run(pair.folder / "parts")
    if line == "Starting":
        with pytest.raises(soak.Failure, match="it began from nothing though there was a checkpoint"):
            pair._train_disturbed(1, is_last=True)
    else:
        assert pair._train_disturbed(1, is_last=True)


def test_ctrl_c_shows_the_scoreboard(tmp_path, monkeypatch, capsys):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(soak.Pair, "compare", interrupt)
    with pytest.raises(KeyboardInterrupt):
        soak.main(["--minutes", "0", "--output_dir", str(tmp_path)])
    assert "minutes from seed 0: 0 runs" in capsys.readouterr().out


@pytest.mark.parametrize("fault, code", [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_between_steps_must_stop_the_run(tmp_path, monkeypatch, fault, code):
    (tmp_path / "program.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(process, "PROGRAM", tmp_path / "program.py")
    start = process.Start(tmp_path / "run", [], 1, tmp_path / "log.txt")
    try:
        start.disturb(fault, random.Random(0), together=True)
        start.demand_stop(fault)
    finally:
        start.kill()
    assert start.allowed == {code}
    write_run(tmp_path / "run")
    assert start.has_logged(1) and not start.has_logged(2)


@pytest.mark.slow
def test_a_short_soak(tmp_path):
    command = [sys.executable, ROOT / "scripts" / "soak.py", "--minutes", "0", "--seed", "601"]
    command += ["--output_dir", tmp_path / "runs", "--json", tmp_path / "board.json"]
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    board = json.loads((tmp_path / "board.json").read_text())
    assert board["runs"] == 1 and board["starts"] > 1 and board["faults"] and not board["failures"]
    assert not list((tmp_path / "runs").iterdir())
