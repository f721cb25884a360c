"""The command evaluate.py around the scores; `tests/evaluation/test_score_run.py` scores with it."""

import json
import os
import pathlib
import re
from unittest import mock

import pytest

from cyclegan.cli import evaluate
from cyclegan.config import Config, serialization
from cyclegan.errors import UserError
from cyclegan.evaluation import score_run

ROOT = pathlib.Path(__file__).resolve().parents[2]

RESULT = {"run": "runs/a", "checkpoint": "epoch_0001", "epoch": 1, "step": 2, "directions": {"x2y": {}}}


@pytest.mark.parametrize(
    "file, text",
    [
        ("/proc/new/scores.json", "/proc: No such file or directory; expected a folder that can be written to"),
        (str(ROOT), "expected a name that ends in .json"),
        (os.devnull, "expected a name that ends in .json"),
        ("run/config.json", "--json run/config.json: the name of a file of a run; expected another name"),
    ],
)
def test_the_file_of_the_scores_is_checked_first(tmp_path, file, text):
    with pytest.raises(UserError) as error:
        evaluate.main([str(tmp_path / "no run"), "--json", file])
    assert text in str(error.value)


def save_config(folder):
    config = Config.from_settings(dataset="stripes", objective="cut", output_dir=str(folder))
    serialization.save(folder / "config.json", config, {}, {})


@pytest.mark.parametrize(
    "flags, text",
    [
        (["--features", "fid-cleen"], "fid-cleen: no such file; expected one of random, "),
        (["--direction", "y2x"], "--objective cut has no generator Y -> X; expected --direction x2y"),
        (["--real", "absent"], "--real absent: no such folder; expected a folder with testA and testB"),
        (["--dataset", "absent"], "--dataset absent: no such folder; expected a folder with trainA"),
        ([], "TensorFlow is not needed yet"),
    ],
)
def test_arguments_are_checked_before_tensorflow_starts(monkeypatch, tmp_path, flags, text):
    save_config(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluate.terminal, "start", mock.Mock(side_effect=UserError("TensorFlow is not needed yet")))
    with pytest.raises(UserError, match=f"^{re.escape(text)}"):
        evaluate.main([str(tmp_path), *flags])


def test_scores_that_cannot_be_written_leave_the_file_as_it_was(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(score_run, "score_run", lambda *_: RESULT)
    monkeypatch.setattr(evaluate, "table", lambda result: [])
    save_config(tmp_path)
    file = tmp_path / "new" / "folder" / "scores.json"
    evaluate.main([str(tmp_path), "--json", str(file)])
    before = file.read_text()
    assert json.loads(before) == RESULT
    (tmp_path / "checkpoints" / "best-x2y-3").mkdir(parents=True)
    monkeypatch.setattr(score_run, "score_run", lambda run, name, _: {**RESULT, "checkpoint": f"{name} of {run}"})
    assert evaluate.main([f"{tmp_path}/checkpoints/best-x2y-3"])["checkpoint"] == f"best-x2y-3 of {tmp_path}"
    monkeypatch.setattr(score_run, "score_run", lambda *_: {**RESULT, "step": 3})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left.*scores\.json"):
        evaluate.main([str(tmp_path), "--json", str(file)])
    assert file.read_text() == before and os.listdir(file.parent) == ["scores.json"]
