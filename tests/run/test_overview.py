from types import SimpleNamespace

import pytest

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


def test_the_flags_of_a_preset_that_are_in_effect_are_listed(lines):
    first, *rest = list(lines("--preset", "demo", "--epochs", "9"))
    assert first == "Preset demo: --dataset stripes --plot_every 1 --output_dir runs/demo"
    assert not any("Preset" in line for line in [*rest, *lines()])


def test_a_resumed_run(lines, tmp_path):
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


def test_arithmetic_and_several_workers(lines):
    flags = ["--objective", "cut", "--precision", "float32", "--xla", "on", "--deterministic"]
    changes = {"workers": ("a:1", "b:1"), "uses_tf32": True, "parameters": (1234, 56, 7890)}
    found = lines(*flags, **changes, checkpoint="epoch_0001_pair_2", epochs_done=1, pairs_done=2)
    for text in (
        "Workers: 2 (a:1, b:1)",
        "Number of devices: 1 (CPU) in each worker",
        "Precision: float32, products in TF32, XLA, deterministic, steps per call: 2",
        "Parameters: 1,234 in the generator, 56 in the discriminator, 7,890 in the heads of the features",
        "Objective cut: one generator, X -> Y; there is none for Y -> X",
        "Resumed from epoch_0001_pair_2: 1 of 200 epochs and 2 of 3 pairs of the next are done",
    ):
        assert text in found
