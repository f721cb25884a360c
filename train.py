#!/usr/bin/env python
"""Train a CycleGAN between two unpaired sets of pictures, on every GPU there is: `python train.py --help`."""

import dataclasses
import functools
import pathlib
import shlex
import sys

from cyclegan import quiet, signals
from cyclegan.config import Config
from cyclegan.errors import UserError, printable

HERE = pathlib.Path(__file__).resolve().parent


def main(argv=None):
    """Trains as the command line says. Returns the figures of the last epoch, see `loop.fit`.

    Raises:
        UserError: what was asked for can't work, or training has failed; the run's folder is as it was at the last checkpoint.
    """
    config = Config.from_args(argv)
    signals.nothing_to_save_yet()
    # Not earlier: --help and mistakes in the flags answer at once, TensorFlow takes seconds to start.
    with quiet.start():
        from cyclegan import data, devices, distribute, evaluate, layers, schedule, sources
        from cyclegan.checkpoint import Checkpoints
        from cyclegan.gan import CycleGAN
        from cyclegan.loop import Loop
        from cyclegan.progress import Progress
        from cyclegan.run_folder import RunFolder
        from cyclegan.summaries import Summary

        notice = distribute.unseen_gpus(HERE / "requirements-gpu.txt")
        strategy = distribute.make_strategy(config.devices)
        if config.precision == "auto":  # what it stands for is kept, so that another machine can say what changes
            config = dataclasses.replace(config, precision=devices.best_precision())
        run = RunFolder(config, layers.stack())
    with run:
        if notice:
            warn(notice)
        domains = sources.load(config, run.path, config.verbose > 0, warn)
        run.check_data(domains.fingerprint())

        replicas = strategy.num_replicas_in_sync
        batch = replicas * config.batch_size
        peak = 0.0 if config.no_peak else devices.peak(config.precision) * distribute.shares(strategy)
        train, test = (
            data.Pairs(x.images, y.images, batch, domains.size, seed, (x.names, y.names), flip=not config.no_flip)
            for x, y, seed in ((domains.train_x, domains.train_y, config.seed), (domains.test_x, domains.test_y, None))
        )
        with strategy.scope():
            gan = CycleGAN(batch, config, domains.size)
            checkpoints = Checkpoints(run.path / "checkpoints", gan.state(), config.keep, warn)
            restored = None if config.clear_output_dir else checkpoints.restore()
        together = config.steps_together(gan.flops(*domains.size) * batch, peak)
        train.steps_per_call = test.steps_per_call = together
        evaluation = evaluate.of_training(gan, domains, config) if config.evaluate_every else None
        progress, folder = restored or (Progress(), None)

        def describe():
            generator, discriminator = gan.parameters()
            if config.preset:
                yield f"Preset {config.preset}: {config.preset_flags}"
            yield from domains.notes
            if config.channels_x != config.channels_y:
                yield "No identity losses: X and Y have different numbers of channels"
            yield f"Number of devices: {replicas} ({strategy.extended.worker_devices[0].split(':')[-2]})"
            yield f"Replicas: {replicas}, global batch: {replicas} x {config.batch_size} = {batch}"
            pairs = f"{train.steps} for training ({train.pairs} pairs), {test.steps} for testing ({test.pairs} pairs)"
            if peak:
                yield f"Peak of a matrix product: {peak / 1e12:.3g} TFLOP/s"
            yield f"Precision: {config.precision}{', XLA' if config.xla == 'on' else ''}, steps per call: {together}"
            yield f"Steps per epoch: {pairs}"
            yield f"Parameters: {generator:,} in each generator, {discriminator:,} in each discriminator"
            yield f"Writing to {run.path} (tensorboard --logdir {shlex.quote(str(run.path))})"
            if restored:
                part = f" and {progress.train.pairs} of {train.pairs} pairs of the next" if progress.train.pairs else ""
                yield f"Resumed from {folder}: {progress.epoch} of {config.epochs} epochs{part} are done"
            if progress.epoch >= config.epochs:
                yield "Nothing is left to do: ask for more with --epochs"

        if config.verbose:
            print(*map(printable, describe()), sep="\n", flush=True)
        if progress.epoch >= config.epochs:
            return {}
        for text in (*run.warnings, *progress.batch_warnings(replicas, batch, train.pairs)):
            warn(text)
        run.start(domains.fingerprint())
        summary = Summary(run.path, warn)
        summary.rewind(progress.log_bytes, progress.epoch, progress.step)
        return Loop(
            gan,
            train,
            test,
            distribute.accumulate(strategy, gan.train_step, batch, gan.update),
            distribute.accumulate(strategy, gan.test_step, batch),
            functools.partial(schedule.rates, config),
            strategy,
            summary,
            checkpoints,
            progress,
            epochs=config.epochs,
            plot_every=config.plot_every,
            checkpoint_every=config.checkpoint_every,
            checkpoint_minutes=config.checkpoint_minutes,
            log_every=config.log_every,
            max_bad_steps=config.max_bad_steps,
            verbose=config.verbose,
            say=warn,
            check=run.check,
            peak=peak,
            profile=config.profile_steps,
            evaluation=evaluation,
            evaluate_every=config.evaluate_every,
        ).fit()


def warn(text):
    """Prints what a user should not miss, whatever --verbose says."""
    from tqdm import tqdm  # knows how to write beside a bar

    tqdm.write(f"Warning: {printable(text)}", file=sys.stderr)
    sys.stderr.flush()


if __name__ == "__main__":
    cleared = any(flag.replace("-", "_") == "__clear_output_dir" for flag in sys.argv)
    same = "the same command" + (" without --clear_output_dir" if cleared else "")
    quiet.outlive_the_terminal()
    try:
        main()
    except UserError as error:
        print(f"train.py: {printable(error)}".replace("the same command", same), file=sys.stderr)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        help = "make the environment with scripts/setup.sh, then: . .venv/bin/activate"
        print(f"train.py: {error}: {help}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"\ntrain.py: stopped before the first step; {same} begins again, or resumes", file=sys.stderr)
        sys.exit(130)
