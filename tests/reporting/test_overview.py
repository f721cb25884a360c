from types import SimpleNamespace

from cyclegan.checkpointing.train_state import TrainState
from cyclegan.config.command_line import parse_args
from cyclegan.reporting import overview


def told(tmp_path, *flags, restored=None, epoch=0, peak=0.0):
    """The lines about one device and a small data set."""
    team = SimpleNamespace(
        count=1,
        strategy=SimpleNamespace(
            extended=SimpleNamespace(worker_devices=("/job:localhost/replica:0/task:0/device:CPU:0",)),
            num_replicas_in_sync=1,
        ),
    )
    pairs = SimpleNamespace(global_batch_size=1, steps_per_call=2, steps=3, pairs=3)
    gan, run = SimpleNamespace(parameters=lambda: (1234, 56)), SimpleNamespace(path=tmp_path)
    config, domains = parse_args(flags), SimpleNamespace(notes=("No testA",))
    return [*overview.lines(config, domains, team, gan, pairs, pairs, peak, run, restored, TrainState(epoch=epoch))]


def test_a_preset_is_printed_as_what_of_it_is_in_effect(tmp_path):
    first, *rest = told(tmp_path, "--preset", "demo", "--epochs", "9")
    assert first == "Preset demo: --dataset stripes --plot_every 1 --output_dir runs/demo"
    assert not any("Preset" in line for line in [*rest, *told(tmp_path)])


def test_what_there_is_and_where_it_goes_are_said(tmp_path):
    lines = told(tmp_path, "--channels_x", "1", "--epochs", "4", restored="epoch_0004", epoch=4, peak=2e12)
    for text in (
        "No testA",
        "No identity losses: X and Y have different numbers of channels",
        "Number of devices: 1 (CPU)",
        "Peak of a matrix product: 2 TFLOP/s",
        "Parameters: 1,234 in each generator, 56 in each discriminator",
        f"Writing to {tmp_path} (tensorboard --logdir {tmp_path})",
        "Resumed from epoch_0004: 4 of 4 epochs are done",
        "Nothing is left to do: ask for more with --epochs",
    ):
        assert text in lines
