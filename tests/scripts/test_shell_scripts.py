"""The shell scripts, with interpreters and an nvidia-smi that only pretend."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.networks import instance_normalization
from cyclegan.networks.convolution import Convolution
from cyclegan.networks.transposed_convolution import TransposedConvolution
from cyclegan.training.compiled_steps import compile_train_step
from cyclegan.training.gan import GAN
from scripts import benchmark, tutorial_step

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Answers what setup.sh asks a Python for, makes a "virtual environment" with itself in it, and writes down what pip installs.
PYTHON = """#!/bin/bash
case "$*" in
  *"print("*) echo {version} ;;
  *"sys.exit"*) exit {works} ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip "*) echo "$*" >> {log}; exit {pip} ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A bare clone on a machine with the commands that a test gives it, and nothing else but the system's own tools."""

    class Machine:
        clone = tmp_path / "clone"
        bin = tmp_path / "bin"
        log = tmp_path / "installed"

        def command(self, name, text):
            path = self.bin / name
            path.write_text(text)
            path.chmod(0o755)

        def python(self, name, version, works=True, pip=0):
            self.command(name, PYTHON.format(version=version, works=0 if works else 1, log=self.log, pip=pip))

        def gpu(self, capability):
            self.command(
                "nvidia-smi",
                f'#!/bin/bash\n[ "$1" = -L ] && echo "GPU 0: NVIDIA (UUID: 1)" || echo {capability}\n',
            )

        def setup(self, **environment):
            environment = {"PATH": str(self.bin), "HOME": str(tmp_path), **environment}
            return subprocess.run(
                ["bash", "scripts/setup.sh"], cwd=self.clone, env=environment, capture_output=True, text=True
            )

        def installed(self):
            return [line.split()[-1] for line in self.log.read_text().splitlines() if " -r " in line]

    machine = Machine()
    machine.bin.mkdir()
    (machine.clone / "scripts").mkdir(parents=True)
    for name in ("scripts/setup.sh", "requirements.txt", "requirements-gpu.txt"):
        shutil.copy(ROOT / name, machine.clone / name)
    tools = ["bash", "cat", "cksum", "cp", "dirname", "grep", "head", "mkdir", "sed", "sort", "tail", "uname"]
    for tool in tools:
        machine.bin.joinpath(tool).symlink_to(shutil.which(tool))
    return machine


def test_setup_makes_the_environment_once(machine):
    machine.python("python3", "3.11")
    first = machine.setup()
    assert first.returncode == 0, first.stderr
    assert "Making .venv with python3 (Python 3.11)" in first.stdout and machine.installed() == ["requirements.txt"]
    second = machine.setup()
    assert second.returncode == 0 and second.stdout == "" and machine.installed() == ["requirements.txt"]
    (machine.clone / "requirements.txt").write_text("something else\n")
    assert machine.setup().returncode == 0 and len(machine.installed()) == 2


def test_an_installation_that_failed_is_tried_again(machine):
    machine.python("python3", "3.11", pip=1)
    failed = machine.setup()
    assert failed.returncode == 2 and "pip could not install requirements.txt" in failed.stderr
    machine.python("python3", "3.11")
    shutil.copy(machine.bin / "python3", machine.clone / ".venv" / "bin" / "python")
    assert machine.setup().returncode == 0 and machine.installed()[-1] == "requirements.txt"


@pytest.mark.parametrize(
    "capability, chosen", [("8.6", "python3"), ("8.9", "python3.12"), ("9.0", "python3.12"), ("12.0", "python3.12")]
)
def test_a_newer_gpu_takes_python_3_12(machine, capability, chosen):
    machine.gpu(capability)
    machine.python("python3", "3.11")
    machine.python("python3.12", "3.12")
    result = machine.setup()
    assert f"with {chosen} " in result.stdout, result.stderr
    assert machine.installed() == ["requirements-gpu.txt"]


def test_a_newer_gpu_takes_the_python_there_is(machine):
    machine.gpu("9.0")
    machine.python("python3", "3.11")
    assert "with python3 (Python 3.11)" in machine.setup().stdout


def test_an_interpreter_can_be_named(machine):
    machine.python("python3", "3.11")
    machine.python("python3.12", "3.12")
    assert "Making .venv with python3.12 " in machine.setup(PYTHON="python3.12").stdout
    other = machine.setup(PYTHON="python3")
    assert other.returncode == 2 and other.stderr.count("\n") == 1
    assert (
        ".venv holds Python 3.12, PYTHON=python3 is 3.11: remove .venv, or name another with VENV=.venv-3.11"
        in other.stderr
    )
    assert "Making mine with python3 " in machine.setup(PYTHON="python3", VENV="mine").stdout


def test_a_python_that_cannot_work_gets_one_line_that_says_which_do(machine):
    machine.python("python3", "3.14", works=False)
    for environment, text in (
        ({}, "no Python 3.9 to 3.13 with the venv module found (python3 is 3.14)"),
        ({"PYTHON": "python3"}, "PYTHON=python3 (3.14): expected Python 3.9 to 3.13"),
        ({"PYTHON": "nowhere"}, "PYTHON=nowhere (does not run): expected Python 3.9 to 3.13"),
    ):
        result = machine.setup(**environment)
        assert result.returncode == 2 and result.stdout == "" and result.stderr.count("\n") == 1
        assert text in result.stderr
    assert not (machine.clone / ".venv").exists()


def test_the_real_check_takes_this_python(machine):
    machine.bin.joinpath("python3").symlink_to(sys.executable)
    text = (ROOT / "scripts" / "setup.sh").read_text()
    check = text[text.index("works() {") : text.index("requirements=")]
    command = f"oldest=9 newest=13; {check} works python3 && newest=8 && ! works python3"
    assert subprocess.run(["bash", "-c", command], env={"PATH": str(machine.bin)}).returncode == 0


@pytest.mark.parametrize("name", ["setup.sh", "demo.sh", "test.sh", "../.ci/run"])
def test_shell_scripts_parse(name):
    assert os.access(ROOT / "scripts" / name, os.X_OK)
    assert subprocess.run(["bash", "-n", str(ROOT / "scripts" / name)]).returncode == 0


TINY = ["--size", "16", "--batch", "2", "--filters", "2", "--residual_blocks", "0", "--runs", "2"]


def test_the_benchmark_times_each_form_in_turns(tmp_path, capsys, monkeypatch):
    made = benchmark.default_form

    def without_float16(strategy, setting):
        if setting.precision == "float16":
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory\nand a long story")
        return made(strategy, setting)

    monkeypatch.setattr(benchmark, "default_form", without_float16)
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


def test_what_the_benchmark_has_measured_is_kept_when_it_is_cut_off(tmp_path, monkeypatch):
    take_turn, turns = benchmark.Timed.take_turn, []

    def cut_off(self, counts):
        turns.append(counts)
        if len(turns) == 4:  # after one that does not count
            raise KeyboardInterrupt
        take_turn(self, counts)

    monkeypatch.setattr(benchmark.Timed, "take_turn", cut_off)
    path = tmp_path / "rows.json"
    with pytest.raises(KeyboardInterrupt):
        benchmark.main([*TINY, "--runs", "9", "--precision", "float32", "--no_plain", "--json", str(path)])
    (row,) = json.loads(path.read_text())["steps"]
    assert row["runs"] == 2 and row["ms"] > 0 and row["traces"] == 1
    assert [each.name for each in tmp_path.iterdir()] == ["rows.json"]


def test_the_benchmark_measures_the_pipeline(monkeypatch):
    monkeypatch.setattr(benchmark, "DRAINED", 0.05)
    monkeypatch.setattr(benchmark, "FED", 0.05)
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


def test_the_benchmark_feeds_a_stand_in_for_a_device_that_leaves_the_processor_free(monkeypatch):
    monkeypatch.setattr(benchmark, "DRAINED", 0.05)
    monkeypatch.setattr(benchmark, "FED", 0.2)
    monkeypatch.setattr(benchmark, "default_form", None)
    flags = ["--precision", "float32", "float16", "--steps_per_call", "2"]
    flags += ["--data", "--elsewhere", "20", "--without", "ahead"]
    default, waiting = benchmark.main([*TINY, *flags])["data"]
    for row in (default, waiting):
        assert row["elsewhere"] == 20 and row["best_ms"] >= 20 and "traces" not in row
        assert row["step_images_per_second"] <= 2 * 2 / 0.020


@pytest.mark.parametrize("turn", [1, 2])  # one that does not count, the first one that does
def test_the_benchmark_goes_on_where_a_form_fails_while_it_is_fed(monkeypatch, turn):
    feed, turns = benchmark.feed, []

    def without_memory(timed, counter):
        turns.append(timed.setting.form)
        if turns.count("without ahead") == turn and turns[-1] == "without ahead":
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return feed(timed, counter)

    monkeypatch.setattr(benchmark, "DRAINED", 0.05)
    monkeypatch.setattr(benchmark, "FED", 0.2)
    monkeypatch.setattr(benchmark, "feed", without_memory)
    flags = ["--precision", "float32", "--data", "--elsewhere", "20", "--without", "ahead"]
    default, failed = benchmark.main([*TINY, *flags])["data"]
    assert default["relative"] == 1 and default["ms"] >= 20
    assert failed["error"] == "ResourceExhaustedError: out of memory" and "ms" not in failed


@pytest.mark.slow
def test_the_benchmark_measures_what_distribution_costs(capsys):
    result = benchmark.main([*TINY, "--precision", "float32", "--scaling", "--replicas", "2", "1"])
    assert set(result) == {"command", "machine", "scaling"}
    two, one = result["scaling"]
    assert (two["replicas"], one["replicas"]) == (2, 1) and one["relative"] == 1 and two["relative"] > 0
    assert two["batch"] == one["batch"] == 2 and two["traces"] == one["traces"] == 1
    assert "| relative |" in capsys.readouterr().out


@pytest.mark.slow
def test_the_benchmark_fails_where_a_step_is_traced_again(monkeypatch):
    made, calls = benchmark.default_form, iter(range(100))

    def retracing(strategy, setting):
        gan, function, _ = made(strategy, setting)
        return gan, function, lambda batches: function(batches, {}, 1 + next(calls) % 2)[1]  # Python numbers

    monkeypatch.setattr(benchmark, "default_form", retracing)
    with pytest.raises(SystemExit, match="a step was traced more than once, see the column traces"):
        benchmark.main([*TINY, "--precision", "float32", "--steps_per_call", "2", "--no_plain"])


@pytest.mark.parametrize(
    "flags, text",
    [
        (["--scaling", "--batch", "4"], "--batch 4 on --replicas 3: expected a multiple"),
        (["--json", "/nowhere/rows.json"], "--json /nowhere/rows.json: no folder /nowhere: make it, or name another"),
        (["--size", "30"], "argument --size: 30: expected at least 16 and a multiple of 4"),
        (["--runs", "0"], "argument --runs: 0: expected at least 1"),
        (["--data", "--no_plain"], "--no_plain: does nothing here; expected it with --steps"),
        (["--scaling", "--without", "few"], "--without few: does nothing here; expected it with --steps"),
        (["--steps", "--without", "both", "ahead"], "--without ahead: does nothing here; expected it with --data"),
        (["--scaling", "--cache", "none"], "--cache: does nothing here; expected it with --data"),
        (["--data", "--elsewhere", "1e300"], "argument --elsewhere: 1e300: expected milliseconds, from 0 to 60000"),
        (["--steps", "--elsewhere", "5"], "--elsewhere: does nothing here; expected it with --data"),
        (["--data", "--without", "prefetch", "--replicas", "2"], "--without prefetch on --replicas 2: expected 1"),
        (["--without", "packed"], "--without packed: does nothing here; expected it with several --replicas"),
    ],
)
def test_the_benchmark_refuses_what_cannot_work(flags, text):
    command = [sys.executable, str(ROOT / "scripts" / "benchmark.py"), *flags]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2 and result.stdout == "" and text in result.stderr.splitlines()[-1]


def test_the_benchmark_compares_turn_by_turn():
    def timed(replicas, seconds, **row):
        setting = benchmark.Setting("default", 16, 6, "float32", "off", replicas, 5.0, 1, 2, 0)
        result = benchmark.Timed(setting)
        result.seconds, result.row = seconds, row
        return result

    rows = [timed(1, [1.0, 2.0, 8.0]), timed(2, [2.0, 2.0, 8.8]), timed(3, [], error="no memory")]
    benchmark.compare(rows, "relative", {"replicas": 1}, lambda own, fewest: own / fewest)
    assert [each.row.get("relative") for each in rows] == [1.0, 1.1, None]
    benchmark.compare(rows, "relative", {"replicas": 4}, lambda own, fewest: own / fewest)
    assert [each.row.get("relative") for each in rows] == [None, None, None]
    assert benchmark.spread([1.0, 2.0, 3.0, 4.0, 500.0]) == pytest.approx(2 / 3) and benchmark.spread([1.0]) is None


@pytest.mark.slow
def test_the_benchmarks_plain_form_is_the_tutorials(strategies, make_images, monkeypatch):
    """The same networks and losses as the package's step, in Keras's own convolutions, one input at a time."""
    monkeypatch.setattr(instance_normalization, "LARGE_SAMPLE", 1)  # as for pictures of a usual size
    inputs = (tf.constant(make_images(2, 16, 1))[None], tf.constant(make_images(2, 16, 2))[None], tf.ones([1, 2]))
    plain, function = tutorial_step.make(
        strategies[1], 2, Config.from_settings(filters=2, residual_blocks=0, image_size=16)
    )
    kinds = {
        type(layer)
        for network in (plain.networks.generators["G"], plain.networks.discriminators["D_X"])
        for layer in network.layers
    }
    assert {tf.keras.layers.Conv2D, tf.keras.layers.Conv2DTranspose} <= kinds
    assert not {Convolution, TransposedConvolution} & kinds
    with strategies[1].scope():
        package = GAN(2, Config.from_settings(filters=2, residual_blocks=0, image_size=16, pool_size=0))
    step = compile_train_step(strategies[1], package)
    figures = step(inputs, {}, 1)[2]
    totals = ("loss_G/total", "loss_F/total", "loss_X/loss", "loss_Y/loss")
    losses = [float(function(inputs)) for _ in range(3)]
    assert losses[0] == pytest.approx(sum(float(figures[name][0]) for name in totals), rel=1e-5)
    assert losses[2] < losses[1] < losses[0]
    operations = function.get_concrete_function(inputs).graph.get_operations()
    convolutions = [node for node in operations if node.type == "Conv2D"]
    assert not [node for node in operations if node.type == "FusedBatchNormV3"]
    assert convolutions and all(node.inputs[0].shape[0] in (2, None) for node in convolutions)  # no two batches joined


@pytest.mark.slow
def test_the_soak_finds_a_disturbed_run_equal():
    command = [sys.executable, str(ROOT / "scripts" / "soak.py"), "--kills", "2", "--epochs", "6", "--seed", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 starts, 1 SIGKILL, 1 SIGTERM" in result.stdout
    assert "0 differ" in result.stdout and "lines, equal" in result.stdout
