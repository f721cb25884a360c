"""Train a CycleGAN between two unpaired sets of images, on every GPU there is: `cyclegan-train --help`."""

from __future__ import annotations

import functools
import logging
import pathlib
from collections.abc import Sequence
from typing import NoReturn

from cyclegan import terminal
from cyclegan.config.command_line import parse_args
from cyclegan.run.trackers import check_packages

logger = logging.getLogger("cyclegan.train")


def main(argv: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Train as the command line says; return the metrics of the last epoch, by split and name.

    Raises:
        UserError: The request can't work, or training failed. A run that had begun keeps its last checkpoint.
    """
    config = parse_args(argv)
    terminal.configure_logging(config.run.verbose)
    check_packages(config.run)
    from cyclegan.run.run_directory import describe_last

    last_checkpoint = functools.partial(describe_last, pathlib.Path(config.run.output_dir).expanduser())
    # Not earlier: --help and wrong flags need not wait for TensorFlow.
    with terminal.phase("Starting TensorFlow"), terminal.start():
        from cyclegan.distribution.startup import start_workers
        from cyclegan.distribution.strategy import explain_unseen_gpus
        from cyclegan.evaluation.evaluator import make_evaluator
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
        trainer = make_trainer(config, workers, run, data, make_evaluator)
        return trainer.fit()


def program() -> NoReturn:
    """Run the command in a terminal and end the process."""
    terminal.prepare_training()
    terminal.leave(terminal.run(main))
