"""Run the benchmark on tiny networks."""

import json
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf

from cyclegan.benchmarking import command_line, feeding, forms, turns
from cyclegan.benchmarking.settings import Setting
from cyclegan.benchmarking.timed_step import TimedStep, compare, spread
from cyclegan.commands import benchmark
from cyclegan.distribution import hardware
from cyclegan.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parents[2]
BRIEF = ["--size", "16", "--batch", "2", "--runs", "2"]
TINY = [*BRIEF, "--filters", "2", "--residual_blocks", "0"]
VALUES = {
    "objective": "cut",
    "precision": "float32",
    "xla": "off",
    "cache": "none",
    "variant": "paper",
    "architecture": "9.0",
    "size": "64",
}


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
def test_pipeline_and_fed_steps_are_timed(monkeypatch):
    monkeypatch.setattr(feeding, "DRAIN_SECONDS", 0.05)
    monkeypatch.setattr(feeding, "FEED_SECONDS", 0.05)
    result = benchmark.main([*TINY, "--precision", "float32", "--data", "--without", "ahead", "prefetch"])
    assert set(result) == {"command", "machine", "data"}
    assert [row["form"] for row in result["data"]] == ["default", "without ahead", "without prefetch"]
    (files,) = benchmark.main([*TINY, "--precision", "float32", "--data", "--cache", "none"])["data"]
    assert files["cache"] == "none"
    for row in (*result["data"], files):
        assert row["pipeline_images_per_second"] > row["step_images_per_second"] > 0 and row["traces"] == 1
        assert 0 < row["data_wait"] < 1 and row["spread"] >= 0 and row["ms"] >= row["best_ms"] > 0
    default, waiting, unread = result["data"]
    assert default["relative"] == 1 and waiting["relative"] > 0 and unread["relative"] > 0


def test_simulated_step_leaves_the_processor_free(monkeypatch):
    monkeypatch.setattr(feeding, "DRAIN_SECONDS", 0.05)
    monkeypatch.setattr(feeding, "FEED_SECONDS", 0.2)
    monkeypatch.setattr(forms, "default_form", None)
    flags = ["--steps_per_call", "2", "--data", "--elsewhere", "20", "--without", "ahead"]
    default, waiting = benchmark.main([*BRIEF, *flags])["data"]
    for row in (default, waiting):
        assert row["elsewhere"] == 20 and row["best_ms"] >= 20 and "traces" not in row
        assert row["step_images_per_second"] <= 2 * 2 / 0.020


@pytest.mark.sampled
@pytest.mark.parametrize("turn", [1, 2])  # the warm-up turn, the first timed turn
def test_failure_while_fed_ends_one_row_only(monkeypatch, turn):
    feed, turns = feeding.feed, []

    def without_memory(step, throughput):
        turns.append(step.setting.form)
        if turns.count("without ahead") == turn and turns[-1] == "without ahead":
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return feed(step, throughput)

    monkeypatch.setattr(feeding, "DRAIN_SECONDS", 0.05)
    monkeypatch.setattr(feeding, "FEED_SECONDS", 0.2)
    monkeypatch.setattr(feeding, "feed", without_memory)
    flags = ["--data", "--elsewhere", "20", "--without", "ahead"]
    default, failed = benchmark.main([*BRIEF, *flags])["data"]
    assert default["relative"] == 1 and default["ms"] >= 20
    assert failed["error"] == "ResourceExhaustedError: out of memory" and "ms" not in failed


@pytest.mark.slow
def test_scaling_is_relative_to_the_fewest_devices(capsys):
    result = benchmark.main([*TINY, "--precision", "float32", "--scaling", "--replicas", "2", "1"])
    assert set(result) == {"command", "machine", "scaling"}
    two, one = result["scaling"]
    assert (two["replicas"], one["replicas"]) == (2, 1) and one["relative"] == 1 and two["relative"] > 0
    assert two["batch"] == one["batch"] == 2 and two["traces"] == one["traces"] == 1
    assert "| relative |" in capsys.readouterr().out


@pytest.mark.slow
def test_retracing_fails(monkeypatch):
    make, calls = forms.default_form, iter(range(100))  # Python numbers

    def retracing(strategy, setting):
        gan, function, _ = make(strategy, setting)
        return forms.CompiledStep(gan, function, lambda batches: function(batches, {}, 1 + next(calls) % 2)[1])

    monkeypatch.setattr(forms, "default_form", retracing)
    with pytest.raises(SystemExit, match="a step was traced more than once, see the column traces"):
        benchmark.main([*TINY, "--precision", "float32", "--steps_per_call", "2", "--no_plain"])


@pytest.mark.parametrize(
    "flags, text",
    [
        (["--scaling", "--batch", "4"], "--batch 4 on --replicas 3: expected a multiple"),
        (
            ["--json", "/nowhere/rows.json"],
            "--json /nowhere/rows.json: no folder /nowhere; expected an existing one: make it, or name another",
        ),
        (["--size", "30"], "argument --size: 30: expected at least 16 and a multiple of 4"),
        (["--runs", "0"], "argument --runs: 0: expected at least 1"),
        (["--data", "--no_plain"], "--no_plain has no effect with --data; add --steps, or drop the flag"),
        (
            ["--scaling", "--without", "few"],
            "--without few has no effect with --scaling; add --steps, or drop the flag",
        ),
        (
            ["--steps", "--without", "both", "ahead"],
            "--without ahead has no effect with --steps; add --data, or drop the flag",
        ),
        (["--scaling", "--cache", "none"], "--cache has no effect with --scaling; add --data, or drop the flag"),
        (["--data", "--elsewhere", "1e300"], "argument --elsewhere: 1e300: expected milliseconds, from 0 to 60000"),
        (["--variant", "paper"], "--variant has no effect with --steps; add --census, or drop the flag"),
        (["--steps", "--elsewhere", "5"], "--elsewhere has no effect with --steps; add --data, or drop the flag"),
        (["--data", "--without", "prefetch", "--replicas", "2"], "--without prefetch on --replicas 2: expected 1"),
        (["--without", "packed"], "--without packed has no effect with --replicas 1; name several replicas, or"),
    ],
)
def test_refuses_impossible_settings(flags, text):
    command = [sys.executable, str(ROOT / "scripts" / "benchmark.py"), *flags]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2 and result.stdout == "" and text in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("flags, calls", [([], []), (["--deterministic"], [(True, True)])])
def test_operations_are_deterministic_if_asked(monkeypatch, flags, calls):
    found = []
    monkeypatch.setattr(hardware, "set_arithmetic", lambda tf32, deterministic: found.append((tf32, deterministic)))
    options = command_line.parse(flags)
    benchmark.start_tensorflow(options, command_line.plan_parts(options))
    assert found == calls


def has_effect(part, name):
    """Return whether the benchmark accepts a flag for a part."""
    value = [] if name in ("no_plain", "deterministic") else [VALUES.get(name, "1")]
    try:
        command_line.parse([f"--{part}", f"--{name}", *value])
    except UserError as error:
        assert re.match(f"--{name} has no effect with --{part}", str(error))
        return False
    return True


def test_flags_without_effect_are_refused_for_each_part():
    parts = ("steps", "data", "scaling", "census", "gpu_day")
    names = vars(command_line.parse([])).keys() - {*parts, "json", "without"}
    accepted = {part: {name for name in names if has_effect(part, name)} for part in parts}
    alike = {"size", "batch", "precision", "identity", "filters", "residual_blocks"}
    timed = {*alike, "xla", "replicas", "steps_per_call", "runs", "warmup", "deterministic"}
    assert accepted == {
        "steps": {*timed, "no_plain", "objective"},
        "data": {*timed, "cache", "elsewhere"},
        "scaling": timed,
        "census": {*alike, "variant", "architecture"},
        "gpu_day": {"budget"},
    }
    assert set().union(*accepted.values()) == names
    command_line.parse(["--census", "--steps", "--runs", "3", "--variant", "paper"])  # each has an effect on a part


@pytest.mark.parametrize(
    "flag",
    ["--precision float32", "--xla on", "--identity 0", "--filters 2", "--residual_blocks 0", "--deterministic"],
)
def test_a_simulated_step_has_no_networks(flag):
    with pytest.raises(UserError, match=f"{flag.split()[0]} has no effect with --elsewhere"):
        command_line.parse(["--data", "--elsewhere", "5", *flag.split()])
    command_line.parse(["--data", "--elsewhere", "0", "5", *flag.split()])


def test_compares_turn_by_turn():
    def timed(replicas, seconds, **row):
        setting = Setting("default", 16, 6, "float32", "off", replicas, 5.0, 1, 2, 0)
        result = TimedStep(setting)
        result.seconds, result.row = seconds, row
        return result

    rows = [timed(1, [1.0, 2.0, 8.0]), timed(2, [2.0, 2.0, 8.8]), timed(3, [], error="no memory")]
    compare(rows, "relative", {"replicas": 1}, lambda own, fewest: own / fewest)
    assert [each.row.get("relative") for each in rows] == [1.0, 1.1, None]
    compare(rows, "relative", {"replicas": 4}, lambda own, fewest: own / fewest)
    assert [each.row.get("relative") for each in rows] == [None, None, None]
    assert spread([1.0, 2.0, 3.0, 4.0, 500.0]) == pytest.approx(2 / 3) and spread([1.0]) is None


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
