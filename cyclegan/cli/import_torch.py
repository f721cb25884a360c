"""Make a run from networks that pytorch-CycleGAN-and-pix2pix, or the code of CUT, has trained.

    cyclegan-import-torch latest_net_G_A.pth latest_net_G_B.pth \
        --discriminators latest_net_D_A.pth latest_net_D_B.pth --output_dir runs/mine

    cyclegan-import-torch latest_net_G.pth --discriminators latest_net_D.pth --preset cut --output_dir runs/mine

G_A translates from X to Y, G_B back; D_A is the discriminator of Y, D_B of X. Networks that are not given begin with
random weights. The files determine the architecture; flags of train.py set how training continues. PyTorch reads the
files, and nothing in them is executed.
"""

from __future__ import annotations

import argparse
import functools
import logging
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from cyclegan import terminal
from cyclegan.config import Config, command_line
from cyclegan.config.config import all_settings
from cyclegan.errors import UserError
from cyclegan.interop.torch_networks import TorchNetwork, combined_settings, read_networks

logger = logging.getLogger("cyclegan.import_torch")

MEANING = {
    "G": "G, the generator from X to Y",
    "F": "F, the generator from Y to X",
    "D_Y": "D_Y, the discriminator of Y",
    "D_X": "D_X, the discriminator of X",
}


def parse(argv: Sequence[str] | None) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the files by the name of the network, and the values of the given flags of train.py by name."""
    parser = command_line.ArgumentParser(
        usage="%(prog)s G_A [G_B] [--discriminators D_A [D_B]] [FLAG ...]",
        description="Make a run from networks that pytorch-CycleGAN-and-pix2pix, or the code of CUT, has trained.",
        epilog="--dataset and --image_size choose the images for further training.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("g_a", help="latest_net_G_A.pth, the generator from X to Y")
    parser.add_argument("g_b", nargs="?", help="latest_net_G_B.pth, the generator from Y to X (default: a new one)")
    parser.add_argument(
        "--discriminators",
        nargs="+",
        metavar=("D_A", "D_B"),
        help="latest_net_D_A.pth and latest_net_D_B.pth, the discriminators of Y and of X (default: new ones)",
    )
    command_line.add_flags(parser, all_settings())
    given = vars(parser.parse_args(argv))
    discriminators = given.pop("discriminators", [])
    if len(discriminators) > 2:
        parser.error("--discriminators: expected at most 2 files")
    generators = [given.pop(name) for name in ("g_a", "g_b") if given.get(name)]
    return {**dict(zip("GF", generators)), **dict(zip(("D_Y", "D_X"), discriminators))}, given


def configure(flags: Mapping[str, Any], networks: Mapping[str, TorchNetwork]) -> Config:
    """Return the configuration of the run from the settings of the networks and the flags.

    Raises:
        UserError: A flag contradicts the networks, or asks for a run that can't be made.
    """
    config = command_line.configure(flags, combined_settings(networks))
    names = networks_of(config)
    if unused := [network.path for name, network in networks.items() if name not in names]:
        raise UserError(
            f"{unused[0]}: --objective {config.objective.objective} trains {' and '.join(names)} only; expected"
            " --objective cyclegan, or no such file"
        )
    if config.objective.pool_size and config.data.preprocess in ("none", "scale_width"):
        raise UserError(
            f"--preprocess {config.data.preprocess}: the image pools need the size of the images, which is not known"
            " yet; expected --pool_size 0, or --preprocess resize_and_crop"
        )
    output_dir = config.run.output_dir
    if (pathlib.Path(output_dir) / "config.json").exists() and not config.run.clear_output_dir:
        raise UserError(
            f"--output_dir {output_dir}: holds a run; expected another folder, or --clear_output_dir to remove it"
        )
    return config


def networks_of(config: Config) -> list[str]:
    """Return the names of the networks that a configuration trains."""
    return [name for pair in config.objective.adversaries for name in (pair.generator, f"D_{pair.domain}")]


def save_run(config: Config, networks: Mapping[str, TorchNetwork]) -> pathlib.Path:
    """Write the folder of a run with these networks; return its path.

    Raises:
        UserError: Weights do not fit, or the folder can't be written; no run is left then.
    """
    with terminal.start():
        from cyclegan.distribution import hardware
        from cyclegan.networks import compat
        from cyclegan.run.checkpoints import CheckpointManager
        from cyclegan.run.run_directory import RunDirectory
        from cyclegan.run.train_state import TrainState
        from cyclegan.training.step import GAN

    if config.performance.precision == "auto":
        config = config.replace(precision=hardware.best_precision())
    with RunDirectory(config, compat.stack()) as run:
        gan = GAN(config.optimization.batch_size, config)
        for name, network in networks.items():
            network.copy_to(gan.networks[name])
        gan.networks.reset_ema()
        run.start({})
        try:
            CheckpointManager(run.path / "checkpoints", gan.state(), config.run.keep).save(TrainState())
        except UserError:
            (run.path / "config.json").unlink(missing_ok=True)
            raise
    return run.path


def main(argv: Sequence[str] | None = None) -> pathlib.Path:
    """Read the files and write the folder of a run; return its path.

    Raises:
        UserError: A file, a flag or the folder can't be used; no run is left then.
    """
    files, flags = parse(argv)
    networks = read_networks(files)
    for network in networks.values():
        logger.info("%s is %s", network.path, network.layout)
    config = configure(flags, networks)
    path = save_run(config, networks)
    for name in networks_of(config):
        if name not in networks:
            logger.info("No file was given for %s: it begins with random weights", MEANING[name])
    logger.info("Train it with: %s --output_dir %s", terminal.command("train"), shlex.quote(str(path)))
    return path


program = functools.partial(terminal.run, main)
