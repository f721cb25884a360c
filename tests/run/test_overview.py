from types import SimpleNamespace

import pytest

from cyclegan.config import Config
from cyclegan.config.command_line import parse_args
from cyclegan.run import overview


@pytest.fixture
def lines(tmp_path, caplog):
    """Return a function that returns the lines about one device and a small dataset."""
    caplog.set_level("INFO")
    pairs = SimpleNamespace(global_batch_size=1, steps_per_call=2, steps_per_epoch=3, epoch_size=3)
    facts = {"notes": ("No testA",), "devices": ("/job:localhost/replica:0/task:0/device:CPU:0",), "workers": ()}
    facts.update(train=pairs, test=pairs, parameters=(1234, 56, 0), peak=0.0, folder=tmp_path)

    def log(*flags, **changes):
        caplog.clear()
        overview.log(parse_args(flags), overview.Facts(**{**facts, **changes}))
        return caplog.messages

    return log


def test_preset_is_listed_as_its_effective_flags(lines):
    first, *rest = list(lines("--preset", "demo", "--epochs", "9"))
    assert first == "Preset demo: --dataset stripes --plot_every 1 --output_dir runs/demo"
    assert not any("Preset" in line for line in [*rest, *lines()])


def test_facts(lines, tmp_path):
    found = lines("--channels_x", "1", "--epochs", "4", checkpoint="epoch_0004", epochs_done=4, peak=2e12)
    for text in (
        "No testA",
        "No identity losses: X and Y have different numbers of channels",
        "Number of devices: 1 (CPU)",
        "Replicas: 1, global batch: 1 x 1 = 1 image pairs",
        "Peak speed of a matrix product: 2 TFLOP/s",
        "Parameters: 1,234 in each generator, 56 in each discriminator",
        f"Writing to {tmp_path} (tensorboard --logdir {tmp_path})",
        "Resumed from epoch_0004: 4 of 4 epochs are done",
        "Nothing is left to do: raise --epochs to train longer",
    ):
        assert text in found


def test_one_generator(lines):
    found = lines("--objective", "cut", parameters=(1234, 56, 7890))
    assert "Parameters: 1,234 in the generator, 56 in the discriminator, 7,890 in the heads of the features" in found
    assert "Objective cut: one generator, X -> Y; there is none for Y -> X" in found


def test_precision_line_names_the_arithmetic(lines):
    assert "Precision: float32, steps per call: 2" in lines("--precision", "float32")
    found = lines("--precision", "float32", "--xla", "on", "--deterministic", uses_tf32=True)
    assert "Precision: float32, products in TF32, XLA, deterministic, steps per call: 2" in found


def test_several_workers_and_a_partial_epoch(lines):
    found = lines(workers=("a:1", "b:1"), checkpoint="epoch_0001_pair_2", epochs_done=1, pairs_done=2)
    assert "Workers: 2 (a:1, b:1)" in found and "Number of devices: 1 (CPU) in each worker" in found
    assert "Resumed from epoch_0001_pair_2: 1 of 200 epochs and 2 of 3 pairs of the next are done" in found


def test_preset_flags_in_effect():
    config = parse_args(["--preset", "tutorial", "--pool_size", "3"])
    assert "--beta_2 0.9" in overview.preset_flags(config) and "pool_size" not in overview.preset_flags(config)
    assert overview.preset_flags(Config.from_settings()) == ""
