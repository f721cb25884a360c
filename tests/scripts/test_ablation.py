"""Train, score and tabulate as scripts/ablation.py does, with fakes of train.py and the scoring."""

import argparse
import json
import shlex

import pytest

from cyclegan.config.command_line import parse_args
from cyclegan.errors import TrainingError, UserError
from scripts import ablation

TRAIN = """
import pathlib, sys
flags = sys.argv[1:]
run = pathlib.Path(flags[flags.index("--output_dir") + 1])
if "hinge" in flags:
    sys.exit("--adversarial: not today")
for name in ("epoch_0002-1", *["best-x2y-2"] * ("--evaluate_every" in flags)):
    (run / "checkpoints" / name).mkdir(parents=True)
"""
SCORE = """
import json, pathlib, sys
run, _, checkpoint, *_, file = sys.argv[1:]
run = pathlib.Path(run).name
scores = {"X -> Y": {"MAE": 10 * ("pool" in run) + int(run[-1]) / 10}, "Y -> X": {"pixels": 50}}
if "best" in checkpoint:
    scores = {"X -> Y": {"MAE": 1}, "Y -> X": {"pixels": 0}}
pathlib.Path(file).write_text(json.dumps({"epoch": 2, "step": 10 + int(run[-1]), "scores": scores}))
"""


@pytest.fixture
def output(tmp_path, monkeypatch):
    """Replace the programs; return the output folder."""
    for name, text in (("TRAIN", TRAIN), ("SCORE", SCORE)):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setattr(ablation, name, tmp_path / f"{name}.py")
    (tmp_path / "out").mkdir()
    seconds = {setting: 0.06 * (1 + (setting == "no pool")) for setting in ablation.SETTINGS}
    (tmp_path / "out" / "seconds.json").write_text(json.dumps(seconds))
    return tmp_path / "out"


def test_all_settings_are_accepted_and_change_the_configuration():
    seen = []
    for flags in ablation.SETTINGS.values():
        config = parse_args([*ablation.COMMON.split(), *flags.split(), "--dataset", "scenes", "--output_dir", "x"])
        assert config not in seen
        seen.append(config)


def test_runs_are_trained_scored_and_kept(output, monkeypatch):
    flags = ["--seeds", "2", "--minutes", "0.1", "--settings", "default", "no pool", "--output", str(output)]
    results = ablation.main([*flags, "--", "--batch_size", "2"])
    assert [(run["setting"], run["seed"], run["step"]) for run in results] == [
        ("default", 0, 10), ("no pool", 0, 10), ("default", 1, 11), ("no pool", 1, 11)
    ]  # fmt: skip
    assert all("--batch_size 2" in run["command"] and run["commit"] for run in results)
    assert [json.loads(line) for line in (output / "runs.jsonl").read_text().splitlines()] == results
    assert (output / "ablation.md").read_text().splitlines()[2:4] == [
        "| default | `` | 2 | 10 | 0.05 ± 0.07 | 50.00 ± 0.00 |",
        "| no pool | `--pool_size 0` | 2 | 10 | **10.05 ± 0.07** | 50.00 ± 0.00 |",
    ]
    assert [run["command"].split("--epoch_size ")[1].split()[0] for run in results[:2]] == ["20", "10"]  # equal times
    monkeypatch.setattr(ablation, "train_and_score", None)  # finished runs are not trained again
    assert ablation.main([*flags, "--", "--batch_size", "2"]) == results
    with pytest.raises(UserError, match="holds runs with flags '--batch_size 2'; expected ''"):
        ablation.main(flags)


def test_the_best_checkpoint_of_a_direction_is_scored_beside_the_last(output):
    flags = ["--seeds", "1", "--minutes", "0.1", "--settings", "no pool", "--output", str(output)]
    (run,) = ablation.main([*flags, "--", "--evaluate_every", "1"])
    assert run["scores"] == {"X -> Y": {"MAE": 10.0}, "Y -> X": {"pixels": 50}, "X -> Y, best KID": {"MAE": 1}}


def test_a_failed_run_does_not_stop_the_others(output):
    flags = ["--seeds", "1", "--minutes", "0.1", "--settings", "hinge", "paired share 0.1", "--output", str(output)]
    with pytest.raises(TrainingError, match="1 of 2 runs failed: .* ended with code 1: --adversarial: not today"):
        ablation.main(flags)
    (saved,) = map(json.loads, (output / "runs.jsonl").read_text().splitlines())
    assert saved["setting"] == "paired share 0.1"


def test_steps_are_timed_beside_the_baseline(tmp_path):
    flags = shlex.split("--image_size 32 --filters 4 --residual_blocks 1 --discriminator_layers 1")
    arguments = argparse.Namespace(settings=["no identity"], flags=flags, dataset="stripes")
    file = tmp_path / "seconds.json"
    file.write_text('{"default": 2.0}')
    seconds = ablation.seconds_per_step(file, arguments)
    assert seconds["default"] == 2.0 and seconds["no identity"] > 0
    assert json.loads(file.read_text()) == seconds
