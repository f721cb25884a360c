"""Run scripts/soak.py once."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_disturbed_run_is_equal():
    command = [sys.executable, str(ROOT / "scripts" / "soak.py"), "--kills", "2", "--epochs", "6", "--seed", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 starts, 1 SIGKILL, 1 SIGTERM" in result.stdout
    assert "0 differ" in result.stdout and "lines, equal" in result.stdout
