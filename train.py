#!/usr/bin/env python
"""Train a CycleGAN between two unpaired sets of pictures, on every GPU there is: `python train.py --help`."""

import functools
import logging
import pathlib
import sys
import tempfile
import traceback

from cyclegan import console
from cyclegan.config.command_line import parse_args
from cyclegan.errors import ENVIRONMENT, UserError, printable
from cyclegan.training import signals

HERE = pathlib.Path(__file__).resolve().parent
logger = logging.getLogger("cyclegan.train")


def main(argv=None):
    """Trains as the command line says. Returns the figures of the last epoch, see `loop.fit`.

    Raises:
        UserError: what was asked for can't work, or training has failed; the run's folder is as it was at the last checkpoint.
    """
    config = parse_args(argv)
    console.configure_logging(config.run.verbose)
    signals.nothing_to_save_yet()
    # Not earlier: --help and mistakes in the flags answer at once, TensorFlow takes seconds to start.
    with console.start():
        from cyclegan.checkpointing.manager import CheckpointManager
        from cyclegan.checkpointing.run_directory import RunDirectory
        from cyclegan.checkpointing.train_state import TrainState
        from cyclegan.data import sources
        from cyclegan.data.unpaired import UnpairedDataset
        from cyclegan.distribution import hardware
        from cyclegan.distribution.gpus import explain_unseen_gpus
        from cyclegan.distribution.startup import start_workers
        from cyclegan.networks import compat
        from cyclegan.reporting import overview
        from cyclegan.reporting.summaries import NullSummaryWriter, SummaryWriter
        from cyclegan.training import resume_warnings, schedule
        from cyclegan.training.compiled_steps import compile_test_step, compile_train_step
        from cyclegan.training.gan import GAN
        from cyclegan.training.trainer import Trainer

        workers = start_workers(config.distribution)
        if (
            config.performance.precision == "auto"
        ):  # what it stands for is kept, so that another machine can say what changes
            config = config.replace(precision=hardware.best_precision())
        if not workers.is_chief:
            config = config.replace(verbose=0)
    console.configure_logging(config.run.verbose, workers.index)
    if notice := explain_unseen_gpus(HERE / "requirements-gpu.txt"):
        logger.warning(notice)
    strategy = workers.strategy
    with workers.report_lost(), RunDirectory(config, compat.stack(), workers.is_chief) as run:
        cached = run.path if workers.count == 1 else tempfile.gettempdir()
        prepared = sources.is_tfds(config.data.dataset)
        workers.check_equal({**config.shared_settings, **compat.stack(), "dataset of TensorFlow Datasets": prepared})
        with workers.chief_first(prepared):
            domains = sources.load_domains(
                config.data,
                config.networks.multiple,
                cache_dir=cached,
                local_workers=workers.count_on_this_host(),
                bars=config.run.verbose > 0,
            )
        run.check_data(domains.fingerprint())
        workers.check_equal(domains.fingerprint())

        batch = strategy.num_replicas_in_sync * config.optimization.batch_size
        peak = 0.0 if config.performance.no_peak else hardware.measure_peak(config.performance.precision)
        pace, peak = hardware.expected_speed(peak) * workers.speedup(), peak * workers.speedup()
        train, test = (
            UnpairedDataset(
                x.images, y.images, batch, domains.size, seed, (x.names, y.names), flip=not config.data.no_flip
            )
            for x, y, seed in (
                (domains.train_x, domains.train_y, config.optimization.seed),
                (domains.test_x, domains.test_y, None),
            )
        )
        with strategy.scope():
            gan = GAN(batch, config, domains.size)
            checkpoints = CheckpointManager(run.path / "checkpoints", gan.state(), config.run.keep, workers)
            restored = None if config.run.clear_output_dir else checkpoints.restore()
        workers.keep_alive(gan, checkpoints)
        together = workers.broadcast_from_chief(
            config.performance.choose_steps_per_call(
                gan.flops(*domains.size) * batch, config.run.log_every, config.run.checkpoint_minutes, pace
            )
        )
        train.steps_per_call = test.steps_per_call = together
        evaluation = None
        if config.evaluation.evaluate_every and workers.is_chief:
            from cyclegan.evaluation.evaluator import Evaluator
            from cyclegan.evaluation.features import make_extractor

            channels = (config.data.channels_x, config.data.channels_y)
            evaluation = Evaluator(
                *gan.generators_in_use,
                domains.test_x.images,
                domains.test_y.images,
                domains.size,
                make_extractor(config.evaluation.evaluate_features, channels),
                paired=config.data.dataset == "stripes",
                bars=config.run.verbose > 0,
            )
        progress, folder = restored or (TrainState(), None)
        facts = overview.Facts(
            notes=domains.notes,
            devices=strategy.extended.worker_devices,
            workers=workers.cluster.addresses if workers.count > 1 else (),
            train=train,
            test=test,
            parameters=gan.networks.parameter_counts(),
            peak=peak,
            folder=run.path,
            checkpoint=folder,
            epochs_done=progress.epoch,
            pairs_done=progress.train.pairs_done,
        )
        overview.log(config, facts)
        if progress.epoch >= config.optimization.epochs:
            return {}
        inform = logger.warning if workers.is_chief else lambda text: None  # of what all workers know
        warnings = resume_warnings.batch_size_warnings(
            progress.global_batch_size, batch, strategy.num_replicas_in_sync, train.epoch_size
        )
        if run.saved_config:
            warnings += resume_warnings.learning_rate_warnings(run.saved_config, config, progress.epoch)
        for text in (*run.warnings, *warnings):
            inform(text)
        run.start(domains.fingerprint())
        summary = SummaryWriter(run.path) if workers.is_chief else NullSummaryWriter()
        summary.rewind(progress.log_bytes, progress.epoch, progress.step)
        loop = Trainer(
            gan,
            train,
            test,
            compile_train_step(strategy, gan),
            compile_test_step(strategy, gan),
            functools.partial(schedule.rates, config),
            strategy,
            summary,
            checkpoints,
            progress,
            epochs=config.optimization.epochs,
            plot_every=config.run.plot_every,
            checkpoint_every=config.run.checkpoint_every,
            checkpoint_minutes=config.run.checkpoint_minutes,
            log_every=config.run.log_every,
            max_bad_steps=config.optimization.max_bad_steps,
            verbose=config.run.verbose,
            say=inform,
            check=run.check,
            peak=peak,
            profile=config.performance.profile_steps,
            evaluation=evaluation,
            evaluate_every=config.evaluation.evaluate_every,
            workers=workers,
        )
        workers.keep_alive(loop)
        return loop.fit()


def run():
    """Trains, and says what went wrong. Returns the exit code."""
    cleared = any(flag.replace("-", "_") == "__clear_output_dir" for flag in sys.argv)
    same = "the same command" + (" without --clear_output_dir" if cleared else "")
    try:
        main()
        return 0
    except UserError as error:
        print(f"train.py: {printable(error)}".replace("the same command", same), file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        print(f"train.py: {error}: {ENVIRONMENT}", file=sys.stderr)
        return 2
    except Exception:  # a bug of ours
        traceback.print_exc()
        return 1
    except KeyboardInterrupt:
        print(f"\ntrain.py: stopped before the first step; {same} begins again, or resumes", file=sys.stderr)
        return 130


if __name__ == "__main__":
    console.outlive_the_terminal()
    with console.temporary_files():
        code = run()
    console.leave(code)
