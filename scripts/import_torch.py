#!/usr/bin/env python
"""Makes a run of trained generators: `python scripts/import_torch.py latest_net_G_A.pth latest_net_G_B.pth --output_dir runs/mine`.

They come from pytorch-CycleGAN-and-pix2pix, as G_A (X -> Y) and G_B (Y -> X). Without G_B, F begins with random weights; the
discriminators always do. What the networks are like is in the files; any flag of train.py says how training would go on. PyTorch
is not needed, and nothing in the files is executed.
"""

import argparse
import contextlib
import pathlib
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cyclegan import console
from cyclegan.config.command_line import parse_args, parse_flags
from cyclegan.errors import UserError
from cyclegan.interop import torch_file, torch_weights


def read(paths):
    """([state dict of G, of F if there is one], fields of `Config` that the networks want).

    Raises:
        UserError: a file holds no generator, or F is none that belongs to G.
    """
    states, found = [torch_file.load(path) for path in paths], []
    for path, state in zip(paths, states):
        with named(path):
            found.append(torch_weights.settings(state))
    fields, channels_x, channels_y = found[0]
    if found[1:] and found[1] != (fields, channels_y, channels_x):
        raise UserError(
            f"{paths[1]} is {describe(*found[1])}; expected one that goes back from what {paths[0]} makes, which is"
            f" {describe(*found[0])}"
        )
    print(f"{paths[0]} is {describe(*found[0])}")
    return states, {**fields, "channels_x": channels_x, "channels_y": channels_y}


@contextlib.contextmanager
def named(path):
    """Puts a file's name before what is said of it."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def describe(fields, inputs, outputs):
    """A network in words."""
    rest = ", ".join(f"{name} {value}" for name, value in fields.items() if name not in ("variant", "generator"))
    return f"{fields['generator']} from {inputs} to {outputs} channels with {rest}"


def main(argv=None):
    """Reads the files, makes the networks, and writes a run's folder. Returns the folder's path.

    Raises:
        UserError: that can't be; no run was made.
    """
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        description="Make a run of generators that pytorch-CycleGAN-and-pix2pix has trained.",
        epilog="All flags of train.py may follow. --dataset and --image_size say what the run is to be trained on.",
    )
    parser.add_argument("g_a", help="latest_net_G_A.pth, the generator from X to Y")
    parser.add_argument("g_b", nargs="?", help="latest_net_G_B.pth, the generator from Y to X (default: a new one)")
    first_flag = next((place for place, part in enumerate(argv) if part.startswith("-")), len(argv))
    wants_help = {"-h", "--help"} & set(argv)
    arguments = parser.parse_args(["--help"] if wants_help else argv[:first_flag])
    paths = [path for path in (arguments.g_a, arguments.g_b) if path]
    given = parse_flags(argv[first_flag:])
    states, fields = read(paths)
    fields = {name: value for name, value in fields.items() if name not in given or name != "dropout"}
    for name in sorted(set(fields) & set(given)):
        if given[name] != fields[name]:
            raise UserError(f"--{name} {given[name]}: {paths[0]} has {fields[name]}; expected no such flag")
    config = parse_args(argv[first_flag:], **fields)
    if config.pool_size and config.preprocess in ("none", "scale_width"):
        raise UserError(
            f"--preprocess {config.preprocess}: the size of the image pools is that of the pictures, which are not known yet;"
            " expected --pool_size 0 with it, or another one"
        )
    if (pathlib.Path(config.output_dir) / "config.json").exists() and not config.clear_output_dir:
        raise UserError(
            f"--output_dir {config.output_dir}: holds a run; expected another folder, or --clear_output_dir to remove it"
        )
    with console.start():
        from cyclegan.checkpointing.manager import CheckpointManager
        from cyclegan.checkpointing.run_directory import RunDirectory
        from cyclegan.checkpointing.train_state import TrainState
        from cyclegan.distribution import hardware
        from cyclegan.networks import compat
        from cyclegan.training.gan import CycleGAN

    if config.precision == "auto":
        config = config.replace(precision=hardware.best_precision())
    with RunDirectory(config, compat.stack()) as run:
        gan = CycleGAN(config.batch_size, config)
        for path, network, state in zip(paths, (gan.G, gan.F), states):
            with named(path):
                torch_weights.fill(network, state)
        gan.begin_averages()
        run.start({})
        try:
            CheckpointManager(run.path / "checkpoints", gan.state(), config.keep).save(TrainState())
        except UserError:
            (run.path / "config.json").unlink(missing_ok=True)
            raise
    if len(paths) == 1:
        print("No G_B was given: F, the generator from Y to X, begins with random weights")
    folder = shlex.quote(str(run.path))
    print(f"Train it with: python train.py --config {folder}/config.json --output_dir {folder}")
    return run.path


if __name__ == "__main__":
    sys.exit(console.run(main))
