"""Train, score and tabulate as scripts/ablation.py does, with fakes of train.py and the scoring."""

import json

import pytest

from cyclegan.config.command_line import parse_args
from cyclegan.errors import TrainingError, UserError
from cyclegan.run.train_state import TrainState
from scripts import ablation

TRAIN = """
import pathlib, signal, sys, time
flags = sys.argv[1:]
run = pathlib.Path(flags[flags.index("--output_dir") + 1])
def stop(*_):
    (run / "checkpoints" / "epoch_0002-1").mkdir(parents=True)
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
run = pathlib.Path(sys.argv[1]).name
error = 10 * ("pool" in run) + int(run[-1]) / 10
pathlib.Path(sys.argv[3]).write_text(json.dumps({"X -> Y": {"error": error}}))
"""


@pytest.fixture
def output(tmp_path, monkeypatch):
    """Replace the programs; return the output folder."""
    for name, text in (("TRAIN", TRAIN), ("SCORE", SCORE)):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setattr(ablation, name, tmp_path / f"{name}.py")

    def read_state(checkpoint):
        return TrainState(epoch=2, step=10 + int(checkpoint.parents[1].name[-1]))  # and the seed

    monkeypatch.setattr(ablation, "read_state", read_state)
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
    assert [(run["setting"], run["seed"], run["steps"]) for run in results] == [
        ("default", 0, 10), ("no pool", 0, 10), ("default", 1, 11), ("no pool", 1, 11)
    ]  # fmt: skip
    assert all("--batch_size 2" in run["command"] for run in results)
    saved = json.loads((output / "ablation.json").read_text())
    assert saved["results"] == results and saved["minutes"] == 0.002 and saved["commit"]
    assert (output / "ablation.md").read_text().splitlines()[2:4] == [
        "| default | `` | 2 | 10 | 0.05 ± 0.07 | - | - |",
        "| no pool | `--pool_size 0` | 2 | 10 | **10.05 ± 0.07** | - | - |",
    ]
    monkeypatch.setattr(ablation, "train_for", None)  # finished runs are not trained again
    assert ablation.main([*flags, "--", "--batch_size", "2", "--verbose", "0"]) == results
    with pytest.raises(UserError, match="runs of another dataset, wall time, commit or flags"):
        ablation.main(flags)


def test_a_failed_run_does_not_stop_the_others(output):
    flags = ["--seeds", "1", "--minutes", "0.002", "--settings", "hinge", "paired share 0.1", "--output", str(output)]
    with pytest.raises(TrainingError, match="1 of 2 runs failed: .* ended with code 1: --adversarial: not today"):
        ablation.main(flags)
    saved = json.loads((output / "ablation.json").read_text())["results"]
    assert [run["setting"] for run in saved] == ["paired share 0.1"]
