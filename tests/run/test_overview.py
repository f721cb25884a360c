from types import SimpleNamespace

import pytest

from cyclegan.config.command_line import parse_args
from cyclegan.distribution import hardware
from cyclegan.distribution.cluster import Cluster
from cyclegan.run import overview
from tests.run.saves import at


@pytest.fixture
def lines(caplog):
    """Return a function that returns the lines about one device and a small dataset."""
    caplog.set_level("INFO")
    pairs = SimpleNamespace(global_batch_size=1, steps_per_call=2, steps_per_epoch=3, epoch_size=3)
    extended = SimpleNamespace(worker_devices=("/job:localhost/replica:0/task:0/device:CPU:0",))

    def log(*flags, count=3, cluster=None, state=None, checkpoint=None, peak=0.0, parameters=(1234, 56, 0)):
        caplog.clear()
        pairs.epoch_size = count
        workers = SimpleNamespace(cluster=cluster, strategy=SimpleNamespace(extended=extended))
        split = SimpleNamespace(dataset=pairs, throughput=SimpleNamespace(peak=peak))
        overview.log(parse_args(flags), workers, (split, split), state or at(0), checkpoint, ["No testA"], parameters)
        return caplog.messages

    return log


def test_the_flags_of_a_preset_that_are_in_effect_are_listed(lines):
    first, *rest = list(lines("--preset", "demo", "--epochs", "9"))
    assert first == "Preset demo: --dataset stripes --plot_every 1 --upsample resize --output_dir runs/demo"
    assert not any("Preset" in line for line in [*rest, *lines()])
    others = ("--image_size", "64", "--generator", "resnet_9blocks", "--filters", "8", "--epochs", "9")
    assert lines("--preset", "fast", *others)[0] == "Preset fast: all its flags are overridden"


def test_a_resumed_run(lines):
    found = lines(
        "--channels_x", "1", "--epochs", "4", "--output_dir", "my runs", checkpoint="epoch_0004", state=at(4), peak=2e12
    )
    fewer = "Resumed from epoch_0004: 4 epochs (more than --epochs 2) are done"
    assert fewer in lines("--epochs", "2", checkpoint="epoch_0004", state=at(4))
    for text in (
        "No testA",
        "No identity losses: X and Y have different numbers of channels",
        "Number of devices: 1 (CPU)",
        "Replicas: 1, global batch: 1 x 1 = 1 image pairs",
        "Peak speed of a matrix product: 2 TFLOP/s",
        "Parameters: 1,234 in each generator, 56 in each discriminator",
        "Writing to my runs (tensorboard --logdir 'my runs')",
        "Resumed from epoch_0004: 4 of 4 epochs are done",
        "Settings of the run: --channels_x 1 --epochs 4",
        "Nothing is left to do: raise --epochs to train longer; another --output_dir begins a new run",
    ):
        assert text in found


def test_arithmetic_and_several_workers(lines, monkeypatch):
    monkeypatch.setattr(hardware, "multiplies_in_tf32", lambda precision: True)
    flags = ["--objective", "cut", "--precision", "float32", "--xla", "on", "--deterministic"]
    changes = {"cluster": Cluster(("a:1", "b:1"), 0), "parameters": (1234, 56, 7890)}
    found = lines(*flags, **changes, checkpoint="epoch_0001_pair_2", state=at(1, 2))
    for text in (
        "Workers: 2 (a:1, b:1)",
        "Number of devices: 1 (CPU) in each worker",
        "Precision: float32, products in TF32, XLA, deterministic, steps per call: 2",
        "Parameters: 1,234 in the generator, 56 in the discriminator, 7,890 in the heads of the features",
        "Objective cut: one generator, X -> Y; there is none for Y -> X",
        "Resumed from epoch_0001_pair_2: 1 of 200 epochs and 2 of 3 pairs of the next are done",
    ):
        assert text in found


@pytest.mark.parametrize("count, hints", [(1, 1), (3, 0)])
def test_an_epoch_of_one_pair_gets_a_hint(lines, count, hints):
    assert sum("--preprocess crop --epoch_size 500" in line for line in lines(count=count)) == hints
