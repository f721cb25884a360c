import re

import pytest

from cyclegan.benchmarking import command_line
from cyclegan.errors import UserError

VALUES = {
    "objective": "cut",
    "precision": "float32",
    "xla": "off",
    "cache": "none",
    "variant": "paper",
    "architecture": "9.0",
    "size": "64",
}


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
