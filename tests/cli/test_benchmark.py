import pathlib
import subprocess
import sys

import pytest

from cyclegan.benchmarking import command_line, forms
from cyclegan.cli import benchmark
from cyclegan.distribution import hardware
from tests.benchmarking.flags import TINY

ROOT = pathlib.Path(__file__).resolve().parents[2]


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
        (["--data", "--elsewhere", "1e300"], "argument --elsewhere: 1e300: expected a number from 0 to 60,000"),
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
