"""Flags of the scripts that contradict each other are refused, and mistyped ones, too."""

import importlib
import re

import pytest

from cyclegan.cli import translate
from cyclegan.config import Config, serialization
from cyclegan.errors import UserError


@pytest.mark.parametrize(
    "flag, text",
    [
        ("--overwrite", "--skip_existing with --overwrite: expected one of them"),
        ("--html", "--skip_existing with --html, whose page would lack the skipped images"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(monkeypatch, tmp_path, flag, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    serialization.save("run/config.json", Config.from_settings(dataset="stripes", output_dir="run"), {}, {})
    with pytest.raises(UserError) as error:
        translate.main(["run", "in", "out", "--skip_existing", flag])
    assert text in str(error.value)


@pytest.mark.parametrize(
    "command, meant",
    [
        ("translate run in out --over-writ", "--overwrite"),
        ("evaluate run --feature random", "--features"),
        ("export run out --format onnx --float_16", "--float16"),
        ("inspect_data folder --stric", "--strict"),
        ("compare run --pngs a.png", "--png"),
    ],
)
def test_a_mistyped_flag_is_refused_with_a_similar_one(capsys, command, meant):
    """An abbreviation would do what a longer flag does, such as replace files."""
    script, *arguments = command.split()
    with pytest.raises(SystemExit) as end:
        importlib.import_module(f"cyclegan.cli.{script}").main(arguments)
    message = capsys.readouterr().err
    assert end.value.code == 2 and message.count("\n") == 1
    assert re.search(f"unknown arguments: --.*do you mean {meant}[?].*; --help lists the flags", message)


@pytest.mark.parametrize(
    "command, text",
    [
        ("compare run -o a.png", "unknown arguments: -o (flags begin with --); --help"),
        ("train --no_flip yes", "unknown arguments: yes after --no_flip, which takes no value; --help"),
        (
            "train --gpu 0 --fineSize 9",
            "--gpu (here: CUDA_VISIBLE_DEVICES=0,1 before the command), --fineSize (here: --im",
        ),
        ("compare run --output a.png", "unknown arguments: --output (here: --png); --help"),
        ("inspect_data folder --json a.json", "unknown arguments: --json; --help"),
        ("translate run in out --results_dir a", "unknown arguments: --results_dir (here: OUTPUT, the last argument);"),
        (
            "translate --run run --input in --output out",
            "unknown arguments: --run (here: RUN INPUT OUTPUT go without flags), --input (here: INPUT), --output",
        ),
        ("translate run in out --direction BtoA", "--direction: BtoA is y2x here; --help"),
        ("translate run in out --direction up", "--direction 'up': expected one of "),
        ("export run out --direction AtoB", "--direction: AtoB is x2y here; --help"),
        ("evaluate run --direction BtoA", "--direction: BtoA is y2x here; --help"),
    ],
)
def test_flags_and_values_of_other_programs_are_explained(capsys, command, text):
    script, *arguments = command.split()
    with pytest.raises(SystemExit):
        importlib.import_module(f"cyclegan.cli.{script}").main(arguments)
    assert text in capsys.readouterr().err
