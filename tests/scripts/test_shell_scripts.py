"""Run scripts/setup.sh with fake interpreters and a fake nvidia-smi; parse the other shell scripts."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Fake Python: answers setup.sh, makes a "virtual environment" with itself in it, and records what pip installs.
PYTHON = """#!/bin/bash
case "$*" in
  *"print("*) echo {version} ;;
  *"sys.exit"*) exit {works} ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip "*" check") cat conflicts; exit 1 ;;
  "-m pip "*) echo "$*" >> {log}; exit {pip} ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Fake a bare clone on a machine that has only the commands of a test and the system's own tools."""

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
            text = f'#!/bin/bash\n[ "$1" = -L ] && echo "GPU 0: NVIDIA (UUID: 1)" || echo {capability}\n'
            self.command("nvidia-smi", text)

        def setup(self, **environment):
            environment = {"PATH": str(self.bin), "HOME": str(tmp_path), **environment}
            command = ["bash", "scripts/setup.sh"]
            return subprocess.run(command, cwd=self.clone, env=environment, capture_output=True, text=True)

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
    conflicts = machine.clone / "conflicts"
    for package, times in (("torch", 2), ("tensorflow-cpu", 3)):  # another NumPy breaks TensorFlow
        conflicts.write_text(f"{package} 2.15.1 has requirement numpy<2, but you have numpy 2.2.6.\n")
        assert machine.setup().returncode == 0 and len(machine.installed()) == times


def test_setup_retries_a_failed_installation(machine):
    machine.python("python3", "3.11", pip=1)
    failed = machine.setup()
    assert failed.returncode == 2 and "pip could not install requirements.txt" in failed.stderr
    machine.python("python3", "3.11")
    shutil.copy(machine.bin / "python3", machine.clone / ".venv" / "bin" / "python")
    assert machine.setup().returncode == 0 and machine.installed()[-1] == "requirements.txt"


@pytest.mark.parametrize("capability, chosen", [("8.6", "python3"), ("8.9", "python3.12")])
def test_newer_gpu_prefers_python_3_12(machine, capability, chosen):
    machine.gpu(capability)
    machine.python("python3", "3.11")
    machine.python("python3.12", "3.12")
    result = machine.setup()
    assert f"with {chosen} " in result.stdout, result.stderr
    assert machine.installed() == ["requirements-gpu.txt"]


def test_python_can_be_chosen(machine):
    machine.python("python3", "3.11")
    machine.python("python3.12", "3.12")
    assert "Making .venv with python3.12 " in machine.setup(PYTHON="python3.12").stdout
    other = machine.setup(PYTHON="python3")
    assert other.returncode == 2 and other.stderr.count("\n") == 1
    assert ".venv holds Python 3.12, PYTHON=python3 is 3.11: remove .venv, or name another with" in other.stderr
    assert "Making mine with python3 " in machine.setup(PYTHON="python3", VENV="mine").stdout


def test_refuses_unsupported_python_in_one_line(machine):
    machine.python("python3", "3.14", works=False)
    for environment, text in (
        ({}, "no Python 3.9 to 3.13 with the venv module found (python3 is 3.14)"),
        ({"PYTHON": "nowhere"}, "PYTHON=nowhere (does not run): expected Python 3.9 to 3.13"),
    ):
        result = machine.setup(**environment)
        assert result.returncode == 2 and result.stdout == "" and result.stderr.count("\n") == 1
        assert text in result.stderr
    assert not (machine.clone / ".venv").exists()


def test_the_demo_refuses_arguments_in_one_line(machine):
    shutil.copy(ROOT / "scripts" / "demo.sh", machine.clone / "scripts")
    command = ["bash", "scripts/demo.sh", "--epochs", "1"]
    done = subprocess.run(command, cwd=machine.clone, env={"PATH": str(machine.bin)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("demo.sh: received --epochs 1; expected no arguments: python train.py --preset demo")


def test_shell_scripts_parse():
    for path in (*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci" / "run"):
        assert os.access(path, os.X_OK) and subprocess.run(["bash", "-n", str(path)]).returncode == 0, path
