"""Train a CycleGAN between two unpaired sets of images, on every GPU there is: `cyclegan-train --help`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from cyclegan import terminal
from cyclegan.config import Config, command_line, serialization
from cyclegan.errors import UserError
from cyclegan.run.trackers import check_packages

if TYPE_CHECKING:
    from cyclegan.interop.torch_networks import TorchNetwork
    from cyclegan.training.callbacks import Callback

logger = logging.getLogger("cyclegan.train")

WARMUP = 500  # steps of discriminators that begin with random weights beside generators that do not


def main(argv: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Train as the command line says; return the metrics of the last epoch, by split and name.

    Raises:
        UserError: The request can't work, or training failed. A run that had begun keeps its last checkpoint.
    """
    return train(*configure(argv))


def train(
    config: Config, weights: Mapping[str, TorchNetwork], callbacks: Sequence[Callback] = ()
) -> dict[str, dict[str, float]]:
    """Train with the result of `configure`, and with callbacks beside those of every run; see `main`."""
    terminal.configure_logging(config.run.verbose)
    check_packages(config.run)
    from cyclegan.data.sources import check_dataset
    from cyclegan.run.run_directory import check_output_dir, describe_last

    check_dataset(config.data)
    check_output_dir(config)

    last_checkpoint = functools.partial(describe_last, pathlib.Path(config.run.output_dir).expanduser())
    # Not earlier: --help and wrong flags need not wait for TensorFlow.
    with terminal.phase("Starting TensorFlow"), terminal.start():
        from cyclegan.distribution.startup import start_workers
        from cyclegan.distribution.strategy import explain_unseen_gpus
        from cyclegan.networks import compat
        from cyclegan.run.run_directory import RunDirectory
        from cyclegan.training.setup import config_of_worker, load_data, make_trainer

        workers = start_workers(config.distribution)
    config = config_of_worker(config, workers)
    terminal.configure_logging(config.run.verbose, workers.index)
    if notice := explain_unseen_gpus():
        logger.warning(notice)
    with workers.report_lost(last_checkpoint), RunDirectory(config, compat.stack(), workers.is_chief) as run:
        data = load_data(config, workers, run)
        copies = {name: network.copy_to for name, network in weights.items()}
        trainer = make_trainer(config, workers, run, data, copies)
        trainer.callbacks += callbacks
        metrics = trainer.fit()
        if workers.is_chief:
            logger.info(f"Curves, samples and settings: {run.path / 'index.html'}")
            logger.info(
                f"To translate images: {terminal.command('translate')} {shlex.quote(f'{run.path}')} INPUT OUTPUT"
            )
        return metrics


def configure(argv: Sequence[str] | None, **settings: Any) -> tuple[Config, Mapping[str, TorchNetwork]]:
    """Return the configuration, and the networks of PyTorch with which --init_from begins a new run.

    `settings` win over the flags of the command line.

    A resumed run has its own networks and, without --epochs, its own number of epochs. So the files of --init_from may
    have been deleted, and a finished run stays finished.

    Raises:
        UserError: A value cannot work, or flags contradict the networks of --init_from, or these cannot be read.
    """
    typed = {**command_line.parse_flags(argv), **settings}
    given = {**command_line.settings_below(typed), **typed}
    from cyclegan.run.run_directory import saved_checkpoints, split_checkpoint

    folder = {name: given[name] for name in ("dataset", "output_dir") if name in given}
    own = pathlib.Path(Config.from_settings(**folder).run.output_dir)
    resumes = saved_checkpoints(own / "checkpoints") and not given.get("clear_output_dir")
    so_far: dict[str, tuple[Any, str]] = {}
    if resumes and "epochs" not in given:
        with contextlib.suppress(UserError):  # `RunDirectory` reports a damaged file
            saved = serialization.load(own / "config.json").config
            so_far["epochs"] = saved.optimization.epochs, os.fspath(own)
    if not given.get("init_from"):
        return command_line.configure(typed, so_far), {}
    from cyclegan.cli.import_torch import networks_of
    from cyclegan.interop.torch_networks import combined_settings, find_files, read_networks

    source = own if resumes else split_checkpoint(given["init_from"])[0]
    weights: dict[str, TorchNetwork] = {}
    if resumes or (source / "config.json").exists():
        saved = serialization.load(source / "config.json").config
        channels = {"channels_x": saved.data.channels_x, "channels_y": saved.data.channels_y}
        networks = {**dataclasses.asdict(saved.networks), **channels}
        fixed: dict[str, tuple[Any, str]] = {name: (value, os.fspath(source)) for name, value in networks.items()}
        names = networks_of(saved)
    else:
        weights = read_networks(find_files(given["init_from"]))
        fixed, names = combined_settings(weights), list(weights)
    config = command_line.configure(typed, {**fixed, **so_far})
    needed = networks_of(config)
    if "discriminator_warmup" not in typed and resumes:
        config = config.replace(discriminator_warmup=saved.optimization.discriminator_warmup)
    elif "discriminator_warmup" not in typed and any(
        pair.generator in names and f"D_{pair.domain}" not in names for pair in config.objective.adversaries
    ):
        config = config.replace(discriminator_warmup=WARMUP)
    return config, {name: weights[name] for name in needed if name in weights}


def program() -> NoReturn:
    """Run the command in a terminal and end the process."""
    terminal.prepare_training()
    terminal.leave(terminal.run(main))
