"""Train, score and tabulate as scripts/ablation.py does, with fakes of train.py and the scoring."""

import json

import pytest

from cyclegan.config.command_line import parse_args
from cyclegan.errors import TrainingError, UserError
from scripts import ablation

TRAIN = """
import pathlib, signal, sys, time
flags = sys.argv[1:]
run = pathlib.Path(flags[flags.index("--output_dir") + 1])
def stop(*_):
    for name in ("epoch_0002-1", *["best-x2y-2"] * ("--evaluate_every" in flags)):
        (run / "checkpoints" / name).mkdir(parents=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
if "hinge" in flags:
    sys.exit("--adversarial: not today")
if flags[len(flags) - flags[::-1].index("--verbose")] == "1":
    print("Epoch 001/100", flush=True)
time.sleep(60)
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
    return tmp_path / "out"


def test_all_settings_are_accepted_and_change_the_configuration():
    seen = []
    for flags in ablation.SETTINGS.values():
        config = parse_args([*ablation.COMMON.split(), *flags.split(), "--dataset", "scenes", "--output_dir", "x"])
        assert config not in seen
        seen.append(config)


def test_runs_are_trained_scored_and_kept(output, monkeypatch):
    flags = ["--seeds", "2", "--minutes", "0.002", "--settings", "default", "no pool", "--output", str(output)]
    results = ablation.main([*flags, "--", "--batch_size", "2", "--verbose", "0"])
    assert [(run["setting"], run["seed"], run["step"]) for run in results] == [
        ("default", 0, 10), ("no pool", 0, 10), ("default", 1, 11), ("no pool", 1, 11)
    ]  # fmt: skip
    assert all("--batch_size 2" in run["command"] and run["commit"] for run in results)
    assert [json.loads(line) for line in (output / "runs.jsonl").read_text().splitlines()] == results
    assert (output / "ablation.md").read_text().splitlines()[2:4] == [
        "| default | `` | 2 | 10 | 0.05 ± 0.07 | 50.00 ± 0.00 |",
        "| no pool | `--pool_size 0` | 2 | 10 | **10.05 ± 0.07** | 50.00 ± 0.00 |",
    ]
    monkeypatch.setattr(ablation, "train_for", None)  # finished runs are not trained again
    assert ablation.main([*flags, "--", "--batch_size", "2", "--verbose", "0"]) == results
    with pytest.raises(UserError, match="holds runs with flags '--batch_size 2 --verbose 0'; expected ''"):
        ablation.main(flags)


def test_the_best_checkpoint_of_a_direction_is_scored_beside_the_last(output):
    flags = ["--seeds", "1", "--minutes", "0.002", "--settings", "no pool", "--output", str(output)]
    (run,) = ablation.main([*flags, "--", "--evaluate_every", "1"])
    assert run["scores"] == {"X -> Y": {"MAE": 10.0}, "Y -> X": {"pixels": 50}, "X -> Y, best KID": {"MAE": 1}}


def test_a_failed_run_does_not_stop_the_others(output):
    flags = ["--seeds", "1", "--minutes", "0.002", "--settings", "hinge", "paired share 0.1", "--output", str(output)]
    with pytest.raises(TrainingError, match="1 of 2 runs failed: .* ended with code 1: --adversarial: not today"):
        ablation.main(flags)
    (saved,) = map(json.loads, (output / "runs.jsonl").read_text().splitlines())
    assert saved["setting"] == "paired share 0.1"
