"""Flags of the scripts that contradict each other are refused, and mistyped ones, too."""

import importlib
import re

import pytest

from cyclegan.config import Config, serialization
from cyclegan.errors import UserError

REFUSED = [
    ("translate", "in out --skip_existing --overwrite", "--skip_existing with --overwrite: expected one of them"),
    (
        "translate",
        "in out --skip_existing --html",
        "--skip_existing with --html, whose page would lack the skipped images",
    ),
    ("export", "out --format savedmodel --float16", "--float16 with --format savedmodel: only tflite has it"),
    ("export", "out --format web --uint8", "--uint8 with --format web: only savedmodel"),
    ("export", "out --format web --size 64", "--size with --format web: only savedmodel"),
    ("export", "out --format onnx --runtime cdn", "--runtime with --format onnx: only web has it"),
]


@pytest.mark.parametrize("script, flags, text", REFUSED)
def test_flags_that_contradict_each_other_are_refused(monkeypatch, tmp_path, script, flags, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    serialization.save("run/config.json", Config.from_settings(dataset="stripes", output_dir="run"), {}, {})
    with pytest.raises(UserError) as error:
        importlib.import_module(f"cyclegan.cli.{script}").main(["run", *flags.split()])
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
