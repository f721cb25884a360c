import json

import pytest
import tensorflow as tf

from cyclegan.benchmarking import command_line, forms, turns
from cyclegan.benchmarking.timed_step import TimedStep
from cyclegan.cli import benchmark
from tests.benchmarking.flags import TINY


@pytest.mark.slow
def test_forms_take_turns_and_a_failed_row_is_reported(tmp_path, capsys, monkeypatch):
    make = forms.default_form

    def without_float16(strategy, setting):
        if setting.precision == "float16":
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory\nand a long story")
        return make(strategy, setting)

    monkeypatch.setattr(forms, "default_form", without_float16)
    flags = ["--precision", "float32", "float16", "--steps_per_call", "3", "--json", str(tmp_path / "rows.json")]
    result = benchmark.main([*TINY, *flags])
    plain, default, failed = rows = result["steps"]
    assert [(row["form"], row["precision"], row["steps_per_call"]) for row in rows] == [
        ("plain", "float32", 1),
        ("default", "float32", 3),
        ("default", "float16", 3),
    ]
    assert plain["ratio"] == 1 and default["ratio"] > 0
    for row in (plain, default):
        assert row["traces"] == 1 and row["runs"] == 2 and row["spread"] >= 0 and row["memory_GB"] > 0.1
        assert row["images_per_second"] == pytest.approx(2 * 2 / (row["ms"] / 1000))
        assert row["share_of_peak"] * row["peak_TFLOP_per_second"] == pytest.approx(row["TFLOP_per_second"])
        assert 1e-7 < row["share_of_peak"] < 1 and row["first_seconds"] > row["ms"] / 1000
    assert plain["TFLOP_per_second"] * plain["ms"] == pytest.approx(default["TFLOP_per_second"] * default["ms"])
    assert failed["error"] == "ResourceExhaustedError: out of memory" and "ms" not in failed
    printed = capsys.readouterr().out.strip().splitlines()
    assert len(printed) == 5 and printed[0].startswith("| form | size |") and "| plain | 16 | 2 |" in printed[2]
    assert printed[4].startswith("| default | 16 | 2 | float16 | off | 1 | 5 | 3 |  |")
    assert printed[4].endswith("| ResourceExhaustedError: out of memory |")
    saved = json.loads((tmp_path / "rows.json").read_text())
    assert saved == result and saved["machine"]["tensorflow"] == tf.__version__
    assert saved["command"].startswith("scripts/benchmark.py --size 16 --batch 2 ")
    with pytest.raises(SystemExit, match="nothing could be timed, see the errors in the table"):
        benchmark.main([*TINY, "--precision", "float16", "--no_plain"])


@pytest.mark.slow
def test_interrupted_measurement_is_kept(tmp_path, monkeypatch):
    take_turn, turns = TimedStep.take_turn, []

    def cut_off(self, counts):
        turns.append(counts)
        if len(turns) == 4:  # after a warm-up turn
            raise KeyboardInterrupt
        take_turn(self, counts)

    monkeypatch.setattr(TimedStep, "take_turn", cut_off)
    path = tmp_path / "rows.json"
    with pytest.raises(KeyboardInterrupt):
        benchmark.main([*TINY, "--runs", "9", "--precision", "float32", "--no_plain", "--json", str(path)])
    (row,) = json.loads(path.read_text())["steps"]
    assert row["runs"] == 2 and row["ms"] > 0 and row["traces"] == 1
    assert [each.name for each in tmp_path.iterdir()] == ["rows.json"]


@pytest.mark.slow
def test_scaling_is_relative_to_the_fewest_devices(capsys):
    result = benchmark.main([*TINY, "--precision", "float32", "--scaling", "--replicas", "2", "1"])
    assert set(result) == {"command", "machine", "scaling"}
    two, one = result["scaling"]
    assert (two["replicas"], one["replicas"]) == (2, 1) and one["relative"] == 1 and two["relative"] > 0
    assert two["batch"] == one["batch"] == 2 and two["traces"] == one["traces"] == 1
    assert "| relative |" in capsys.readouterr().out


def test_objectives_are_compared_with_cyclegan(monkeypatch):
    def timed(settings, plan, keep):
        steps = [TimedStep(setting) for setting in settings]
        for step in steps:
            step.seconds = {"cyclegan": [2.0, 3.0], "cut": [1.0, 1.8]}[step.setting.objective]
        return steps

    monkeypatch.setattr(turns, "measure", timed)
    (plan,) = command_line.plan_parts(command_line.parse(["--objective", "cyclegan", "cut", "--precision", "float32"]))
    steps = turns.measure_steps(plan, print)
    assert sorted((row["form"], row["objective"], row["of_cyclegan"]) for row in steps) == [
        ("default", "cut", 0.55),
        ("default", "cyclegan", 1.0),
        ("plain", "cyclegan", 1.0),
    ]
