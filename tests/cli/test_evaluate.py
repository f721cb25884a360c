"""Requests that the command refuses before it looks at a run; `tests/inference/test_score_run.py` scores with it."""

import os
import pathlib
import subprocess
import sys

import pytest

from cyclegan.cli import evaluate
from cyclegan.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "file, text",
    [
        ("/nowhere/scores.json", "--json /nowhere/scores.json: expected a file in a writable folder"),
        (str(ROOT), "is a folder; expected a file"),
    ],
)
def test_the_file_of_the_scores_is_checked_first(tmp_path, file, text):
    with pytest.raises(UserError) as error:
        evaluate.main([str(tmp_path / "no run"), "--json", file])
    assert text in str(error.value)


def test_a_new_file_in_a_writable_folder_is_accepted(tmp_path):
    assert evaluate.json_path(str(tmp_path / "scores.json")) == tmp_path / "scores.json"


def test_mistake_is_one_line_and_exit_code_2(tmp_path):
    command = [sys.executable, str(ROOT / "scripts" / "evaluate.py"), str(tmp_path / "none"), "--max_images", "0"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 2 and done.stderr == "evaluate.py: --max_images 0: expected at least 2\n"


def test_help_names_the_docs_of_a_clone_only(monkeypatch, capsys):
    for program, has_docs in (("scripts/evaluate.py", True), ("cyclegan-evaluate", False)):
        monkeypatch.setattr(sys, "argv", [program])
        with pytest.raises(SystemExit):
            evaluate.main(["--help"])
        assert ("docs/evaluation.md" in capsys.readouterr().out) == has_docs
