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
from cyclegan.cli import describe_path, runs_in
from cyclegan.config import Config, command_line, serialization
from cyclegan.errors import UserError, similar_folder
from cyclegan.run.run_directory import (
    RunDirectory,
    check_output_dir,
    describe_last,
    read_config,
    refuse_lost_checkpoints,
    saved_checkpoints,
    split_checkpoint,
    written_paths,
)
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
    """Train with the result of `configure`, and call callbacks after the checkpoint of each epoch; see `main`."""
    terminal.configure_logging(config.run.verbose)
    check_packages(config.run)
    from cyclegan.data.sources import check_dataset, find
    from cyclegan.evaluation.options import split_features

    folder = pathlib.Path(config.run.output_dir)
    is_own = _own_settings(folder).get("dataset") == config.data.dataset  # nobody typed it
    check_dataset(config.data, folder if is_own else "")
    check_output_dir(config)
    _refuse_images(folder)
    if config.evaluation.evaluate_every:
        split_features(config.evaluation.evaluate_features)
    found = find(config.data, bars=config.run.verbose > 0) if config.data.folder else None

    last_checkpoint = functools.partial(describe_last, folder)
    # Not earlier: --help and wrong flags need not wait for TensorFlow.
    with terminal.phase("Starting TensorFlow"), terminal.start():
        from cyclegan.distribution.startup import start_workers
        from cyclegan.distribution.strategy import explain_unseen_gpus
        from cyclegan.networks import compat
        from cyclegan.training.setup import config_of_worker, load_data, make_trainer

        workers = start_workers(config.distribution)
    config = config_of_worker(config, workers)
    terminal.configure_logging(config.run.verbose, workers.index)
    if notice := explain_unseen_gpus():
        logger.warning(notice)
    with workers.report_lost(last_checkpoint), RunDirectory(config, compat.stack(), workers.is_chief) as run:
        data = load_data(config, workers, run, found)
        copies = {name: network.copy_to for name, network in weights.items()}
        trainer = make_trainer(config, workers, run, data, copies)
        trainer.observers += callbacks
        metrics = trainer.fit()
        if workers.is_chief:
            logger.info(f"Curves, samples and settings: {run.path / 'index.html'}")
            logger.info(
                f"To translate images: {terminal.command('translate')} {shlex.quote(f'{run.path}')} INPUT OUTPUT"
            )
        return metrics


def configure(argv: Sequence[str] | None, **settings: Any) -> tuple[Config, Mapping[str, TorchNetwork]]:
    """Return the configuration, and the networks of PyTorch with which --init_from begins a new run.

    `settings` win over the flags of the command line, which win over the settings of the run in --output_dir that
    resumes. This needs the files of --init_from no more.

    Raises:
        UserError: A value cannot work, or flags contradict the networks of --init_from, or these cannot be read; or
            --output_dir holds no run to resume, and there is no --dataset for a new one.
    """
    typed = {**command_line.parse_flags(argv), **settings}
    given = {**command_line.settings_below(typed), **typed}
    paths = Config.from_settings(**{name: given.get(name) for name in ("dataset", "output_dir", "init_from")}).run
    if not given.get("clear_output_dir") and (own := _own_settings(pathlib.Path(paths.output_dir))):
        return command_line.configure({**typed, "output_dir": paths.output_dir}, own=own), {}
    if "output_dir" in typed and "dataset" not in given:
        _refuse_absent_run(pathlib.Path(paths.output_dir), bool(given.get("clear_output_dir")))
    if not paths.init_from:
        return command_line.configure(typed), {}
    from cyclegan.cli.import_torch import networks_of
    from cyclegan.interop.torch_networks import combined_settings, find_files, read_networks

    source, _ = split_checkpoint(paths.init_from)
    weights: dict[str, TorchNetwork] = {}
    if (source / "config.json").exists():
        saved = serialization.load(source / "config.json").config
        channels = {"channels_x": saved.data.channels_x, "channels_y": saved.data.channels_y}
        networks = {**dataclasses.asdict(saved.networks), **channels}
        fixed: dict[str, tuple[Any, str]] = {name: (value, os.fspath(source)) for name, value in networks.items()}
        names = networks_of(saved)
    else:
        weights = read_networks(find_files(paths.init_from))
        fixed, names = combined_settings(weights), list(weights)
    config = command_line.configure(typed, fixed)
    if "discriminator_warmup" not in typed and any(
        pair.generator in names and f"D_{pair.domain}" not in names for pair in config.objective.adversaries
    ):
        config = config.replace(discriminator_warmup=WARMUP)
    return config, {name: weights[name] for name in networks_of(config) if name in weights}


def _own_settings(folder: pathlib.Path) -> dict[str, Any]:
    """Return the settings of the run in a folder that resumes; none if a new one begins."""
    if saved_checkpoints(folder / "checkpoints"):
        with contextlib.suppress(UserError):  # `RunDirectory` reports a damaged file
            return serialization.load(folder / "config.json").config.chosen_settings()
    return {}


def _refuse_absent_run(folder: pathlib.Path, clear: bool) -> None:
    """Raise `UserError` if a folder, perhaps a mistyped one, has no run to resume, or its run starts over."""
    has_config = (folder / "config.json").exists()
    if saved_checkpoints(folder / "checkpoints") and not clear:
        return
    if not clear:
        refuse_lost_checkpoints(folder, read_config(folder))
        if not has_config and (inside := runs_in(folder)):
            raise UserError(f"{folder} holds no run; expected {inside}; or --dataset for a new run")
    what = "starts over" if has_config and clear else f"holds no run{' with a checkpoint' * has_config}"
    what += similar_folder(folder, "config.json")
    dataset = f" {folder}" if (folder / "trainA").is_dir() else ""
    raise UserError(f"{folder} {what}; a new run needs --dataset{dataset}")


def _refuse_images(folder: pathlib.Path) -> None:
    """Raise `UserError` if the folder of a run holds images, but no run."""
    if describe_path(folder) == "a folder of images" and not written_paths(folder):
        raise UserError(
            f"--output_dir {folder}: is a folder of images; expected a run, or a folder that is new or has no images:"
            f" use another one, such as {os.path.abspath(folder)}_run"
        )


def program() -> NoReturn:
    """Run the command in a terminal and end the process."""
    terminal.prepare_training()
    terminal.leave(terminal.run(main))
