"""Flags of the scripts that are known to have no effect with others are refused.

Unlike `training/test_effects.py`, which tries the flags of train.py, this file does not find such flags: `ALONE` is a judgement,
and the last test only demands one of each new flag.
"""

import importlib
import pathlib
import re
import types

import pytest

from cyclegan.cli import import_torch
from cyclegan.errors import UserError
from cyclegan.inference import model

COMMANDS = pathlib.Path(__file__).resolve().parents[2] / "cyclegan" / "cli"
ALONE = {  # flags of which someone decided that they have an effect with any others
    "translate": "--direction --checkpoint --size --format --batch_size --tile --devices",
    "evaluate": "--checkpoint --all_checkpoints --direction --features --dataset --data_dir --real --paired --max_images"
    " --batch_size --seed --json",
    "export": "--format --direction --checkpoint --uint8 --size --pictures --overwrite",
    "inspect_data": "--html --strict --load_size --channels_x --channels_y --value_range_x --value_range_y",
    "compare": "--png",
    "import_torch": "--discriminators",  # and those of train.py
}
REFUSED = [
    ("translate", "in out --skip_existing --overwrite", "--skip_existing with --overwrite: expected one of them"),
    (
        "translate",
        "in out --skip_existing --html",
        "--skip_existing with --html, whose page would lack the skipped images",
    ),
    ("export", "out --format savedmodel --float16", "--float16 with --format savedmodel: only tflite has it"),
    ("export", "out --format web --uint8", "--uint8 with --format web: the page chooses type and size"),
    ("export", "out --format web --size 64", "--size with --format web: the page chooses type and size"),
    ("export", "out --format onnx --runtime cdn", "--runtime with --format onnx: only --format web has it"),
    ("import_torch", "--profile 1:2", "--profile 1:2: has no effect here, as nothing is trained"),
    ("import_torch", "--init xavier", "--init xavier: has no effect here, as the files have all weights"),
    (
        "import_torch",
        "--lambda_gp 5",
        "--lambda_gp 5.0: has no effect here, because it needs --adversarial wgan-gp;",
    ),
]


@pytest.mark.parametrize("script, flags, text", REFUSED)
def test_flags_without_effect_are_refused(monkeypatch, script, flags, text):
    layout = types.SimpleNamespace(channels_in=3, channels_out=3, settings={})
    network = types.SimpleNamespace(layout=layout, path="network.pth")
    monkeypatch.setattr(import_torch, "read_networks", lambda files: dict.fromkeys(import_torch.MEANING, network))
    monkeypatch.setattr(model, "load_on_devices", lambda *_: [])
    with pytest.raises(UserError) as error:
        importlib.import_module(f"cyclegan.cli.{script}").main(["run", *flags.split()])
    assert text in str(error.value)


@pytest.mark.parametrize("script", ALONE)
def test_the_tables_name_all_flags(script):
    refused = " ".join(flags for name, flags, _ in REFUSED if name == script)
    flags = set(re.findall(r'"(--[a-z]\w*)"', (COMMANDS / f"{script}.py").read_text(encoding="utf-8"))) - {
        "--help",
        "--version",
    }
    assert flags <= {*ALONE[script].split(), *refused.split()}


@pytest.mark.parametrize(
    "command, meant",
    [
        ("translate run in out --overwrit", "--overwrite"),
        ("evaluate run --feature random", "--features"),
        ("export run out --format onnx --over-write", "--overwrite"),
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
    assert re.search(f"unrecognized arguments: --.*do you mean {meant}[?] --help lists the flags", message)
