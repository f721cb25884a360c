"""The shell scripts, with interpreters and an nvidia-smi that only pretend."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from cyclegan import gan, sources
from cyclegan.checkpoint import Checkpoints
from cyclegan.config import Config
from cyclegan.errors import UserError
from cyclegan.progress import Progress
from scripts import benchmark, score_stripes

ROOT = pathlib.Path(__file__).resolve().parents[1]

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


@pytest.fixture
def stripes_run(tmp_path, stripes_dir):
    """A run on the embedded data set that has a checkpoint of untrained networks."""
    config = Config(dataset="stripes", image_size=32, filters=4, residual_blocks=0, data_dir=stripes_dir)
    config.save(tmp_path / "config.json", {}, {})
    Checkpoints(tmp_path / "checkpoints", gan.CycleGAN(1, 4, 0).state()).save(Progress(epoch=1, step=1))
    return tmp_path


def test_the_scores_of_an_untrained_run_stand_beside_those_of_the_identity(stripes_run, capsys):
    result = score_stripes.score(stripes_run)
    assert set(result) == {"X -> Y", "Y -> X"}
    for trained, identity in result.values():
        assert identity["outside"] < 1 and identity["inside"] > 40 and identity["coat"] > 40
        assert trained["outside"] > 20  # grey everywhere
    score_stripes.main([str(stripes_run)])
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 8 and table[0].split()[-2:] == ["trained", "identity"]
    assert f"{result['Y -> X'][0]['inside']:.1f}" in next(line for line in table if "Y -> X: inside" in line)


def test_scores_are_of_the_run(stripes_run, monkeypatch):
    """Networks that answer with the truth score best: the pictures and directions are not mixed up."""
    domains = sources.load("stripes", 32, 32, Config.load(stripes_run / "config.json")[0].data_dir)
    truth = {"G": domains.test_y.images, "F": domains.test_x.images}

    def perfect(self, source, **kwargs):
        expected = {"G": domains.test_x.images, "F": domains.test_y.images}[self.name]
        np.testing.assert_allclose(source, expected / 127.5 - 1, atol=1e-6)
        return truth[self.name] / 127.5 - 1

    monkeypatch.setattr(type(gan.CycleGAN(1, 4, 0).G), "predict", perfect)
    for trained, _ in score_stripes.score(stripes_run).values():
        assert max(trained.values()) < 1


def test_what_cannot_be_scored_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such file; expected the config.json of a run"):
        score_stripes.score(tmp_path)
    Config(dataset="photos").save(tmp_path / "config.json", {}, {})
    with pytest.raises(UserError, match="was trained on photos; expected a run on stripes"):
        score_stripes.score(tmp_path)
    Config(dataset="stripes", image_size=32, filters=4, residual_blocks=0).save(tmp_path / "config.json", {}, {})
    with pytest.raises(UserError, match="no checkpoint; expected a run that has finished an epoch"):
        score_stripes.score(tmp_path)


@pytest.mark.parametrize("name", ["setup.sh", "demo.sh", "test.sh", "../.ci/run"])
def test_shell_scripts_parse(name):
    assert os.access(ROOT / "scripts" / name, os.X_OK)
    assert subprocess.run(["bash", "-n", str(ROOT / "scripts" / name)]).returncode == 0


@pytest.mark.slow
def test_the_demo_beats_the_identity(tmp_path):
    """The real one, in a copy of the repository, with the environment that the tests run in."""
    ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache")
    shutil.copytree(
        ROOT, tmp_path / "clone", ignore=lambda folder, names: {*ignored(folder, names), "demo"} & set(names)
    )
    environment = {**os.environ, "VENV": sys.prefix, "HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [str(tmp_path / "clone" / "scripts" / "demo.sh")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0, result.stderr[-2000:]
    rows = [line.rsplit(None, 2) for line in result.stdout.splitlines() if line.startswith(("X -> Y:", "Y -> X:"))]
    assert len(rows) == 7
    for what, trained, identity in rows:
        if "outside the animal" in what:
            assert float(trained) < 20  # of 255: stays small
        else:
            assert float(trained) < float(identity), what
    picture = next(line for line in result.stdout.splitlines() if line.startswith("The picture:")).split(":", 1)[1]
    assert pathlib.Path(picture.strip()).read_bytes().startswith(b"\x89PNG")


def test_the_benchmark_times_each_form_in_turns(tmp_path, capsys):
    flags = [
        "--size",
        "16",
        "--batch",
        "2",
        "--replicas",
        "1",
        "2",
        "--filters",
        "1",
        "--residual_blocks",
        "0",
        "--runs",
        "2",
    ]
    rows = benchmark.main([*flags, "--json", str(tmp_path / "rows.json")])
    assert [(row["form"], row["replicas"]) for row in rows] == [("plain", 1), ("default", 1), ("default", 2)]
    assert rows[0]["ratio"] == 1 and all(
        row["ms"] > 0 and row["trace_seconds"] > 0.01 * row["ms"] / 1000 for row in rows
    )
    assert rows[1]["images_per_second"] == pytest.approx(2 * 2 / (rows[1]["ms"] / 1000))
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 5 and printed[0].startswith("| form | size |") and "| plain | 16 | 2 |" in printed[2]
    saved = json.loads((tmp_path / "rows.json").read_text())
    assert saved["rows"] == rows and saved["machine"]["tensorflow"] == tf.__version__
    with pytest.raises(SystemExit, match="--batch 1 on --replicas 2: expected a multiple"):
        benchmark.main(["--batch", "1", "--replicas", "2"])


def test_the_benchmarks_plain_form_trains_the_same_networks(strategies, pictures_of):
    step = benchmark.plain_step(strategies[1], 2, 5.0, 2, 0)
    inputs = (tf.constant(pictures_of(2, 16, 1)), tf.constant(pictures_of(2, 16, 2)), tf.ones([2]))
    losses = [float(step(inputs)) for _ in range(3)]
    assert len(set(losses)) == 3 and all(np.isfinite(losses))


@pytest.mark.slow
def test_the_soak_finds_a_disturbed_run_equal():
    command = [sys.executable, str(ROOT / "scripts" / "soak.py"), "--kills", "2", "--epochs", "6", "--seed", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 starts, 1 SIGKILL, 1 SIGTERM" in result.stdout
    assert "0 differ" in result.stdout and "lines, equal" in result.stdout
