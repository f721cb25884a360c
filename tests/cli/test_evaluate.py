"""The command evaluate.py around the scores; `tests/evaluation/test_score_run.py` scores with it."""

import json
import os
import pathlib

import pytest

from cyclegan.cli import evaluate
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


def test_scores_that_cannot_be_written_leave_the_file_as_it_was(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(score_run, "score_run", lambda *_: RESULT)
    monkeypatch.setattr(evaluate, "table", lambda result: [])
    (tmp_path / "config.json").write_text("{}")
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
