"""Ctrl-C while the modules of a program are imported."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Send SIGINT when a module is imported.
SITE = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.sampled
@pytest.mark.parametrize(
    "program, module",
    [
        ("train.py", "logging"),
        ("train.py", "cyclegan.terminal"),
        ("train.py", "cyclegan.config"),
        ("scripts/evaluate.py", "cyclegan.terminal"),
        ("scripts/translate.py", "PIL"),
        ("scripts/export.py", "cyclegan.config"),
        ("scripts/benchmark.py", "cyclegan.benchmarking"),
        ("scripts/import_torch.py", "cyclegan.interop"),
        ("scripts/score_stripes.py", "numpy"),
        ("scripts/inspect_data.py", "cyclegan.config"),
        ("scripts/compare.py", "cyclegan.run"),
        ("scripts/soak.py", "scripts.soaking"),
        ("scripts/tutorials/linear_keras.py", "numpy"),
        ("scripts/tutorials/linear_keras.py", "tensorflow"),
        ("scripts/tutorials/fashion_mnist.py", "scripts.tutorials"),
        ("scripts/tutorials/fashion_mnist.py", "tensorflow"),
    ],
)
def test_ctrl_c_during_imports_is_one_line(tmp_path, program, module):
    (tmp_path / "sitecustomize.py").write_text(SITE)
    done = subprocess.run(
        [sys.executable, str(ROOT / program), "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "INTERRUPTED": module},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 130
    assert re.fullmatch(rf"\n{os.path.basename(program)}: stopped.*\n", done.stderr)


def destroy(error):
    """Run a program whose destructor raises an error, and which then sleeps."""
    program = (
        f"import cyclegan.interrupt, time\nclass A:\n    def __del__(self):\n        raise {error}\n"
        "del [A()][0]\ntime.sleep(0.5)\nprint('slept')"
    )
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)


def test_ctrl_c_inside_a_destructor_ends_the_program():
    done = destroy("KeyboardInterrupt")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\n-c: stopped\n")


def test_another_error_inside_a_destructor_is_shown():
    done = destroy("ValueError")
    assert (done.returncode, done.stdout) == (0, "slept\n") and "Traceback" in done.stderr


def test_ctrl_c_that_a_module_hides_while_it_is_imported_is_one_line(tmp_path):
    (tmp_path / "hides.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    pass\nraise ImportError\n"
    )
    program = "import cyclegan.interrupt\nimport hides"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\n-c: stopped\n")
