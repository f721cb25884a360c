#!/usr/bin/env python
"""Train a CycleGAN between two unpaired sets of pictures, on every GPU there is: `python train.py --help`."""

import pathlib
import shlex
import sys

from cyclegan import quiet
from cyclegan.config import Config
from cyclegan.errors import UserError

HERE = pathlib.Path(__file__).resolve().parent


def main(argv=None):
    """Trains as the command line says. Returns the figures of the last epoch, see `loop.fit`.

    Raises:
        UserError: what was asked for can't work, or training has failed; the run's folder is as it was at the last checkpoint.
    """
    config = Config.from_args(argv)
    # Not earlier: --help and mistakes in the flags answer at once, TensorFlow takes seconds to start.
    with quiet.start():
        from cyclegan import data, distribute, layers, loop, sources
        from cyclegan.checkpoint import Checkpoints
        from cyclegan.gan import CycleGAN
        from cyclegan.run_folder import RunFolder
        from cyclegan.summaries import Summary

        run = RunFolder(config, layers.stack())
        notice = distribute.unseen_gpus(HERE / "requirements-gpu.txt")
        strategy = distribute.make_strategy(config.devices)
    if notice:
        warn(notice)
    domains = sources.load(config.dataset, config.image_size, config.load_size, config.data_dir, config.verbose > 0)
    run.check_data(domains.fingerprint())

    replicas = strategy.num_replicas_in_sync
    batch = replicas * config.batch_size
    train = data.Pairs(domains.train_x.images, domains.train_y.images, batch, config.image_size, config.seed)
    test = data.Pairs(domains.test_x.images, domains.test_y.images, batch, config.image_size)
    with strategy.scope():
        gan = CycleGAN(
            batch,
            config.filters,
            config.residual_blocks,
            config.lr,
            config.beta_1,
            config.beta_2,
            config.lambda_cycle,
            config.lambda_identity,
            config.adversarial,
            config.seed,
        )
        checkpoints = Checkpoints(run.path / "checkpoints", gan.state(), config.keep, warn)
        restored = None if config.clear_output_dir else checkpoints.restore()
        if restored:
            gan.learning_rate = config.lr
    done = restored["epoch"] if restored else 0

    def describe():
        generator, discriminator = gan.parameters()
        yield from domains.notes
        yield f"Number of devices: {replicas} ({strategy.extended.worker_devices[0].split(':')[-2]})"
        yield f"Replicas: {replicas}, global batch: {replicas} x {config.batch_size} = {batch}"
        yield f"Steps per epoch: {train.steps} for training ({train.pairs} pairs), {test.steps} for testing ({test.pairs} pairs)"
        yield f"Parameters: {generator:,} in each generator, {discriminator:,} in each discriminator"
        yield f"Writing to {run.path} (tensorboard --logdir {shlex.quote(str(run.path))})"
        if restored:
            yield f"Resumed from {restored['folder']}: {done} of {config.epochs} epochs are done"
        if done >= config.epochs:
            yield "Nothing is left to do: ask for more with --epochs"

    if config.verbose:
        print("\n".join(describe()), flush=True)
    if done >= config.epochs:
        return {}
    for text in run.warnings if restored else ():
        warn(text)
    if batch > train.pairs:
        warn(f"the global batch of {batch} is larger than an epoch of {train.pairs} pairs: most of every step is idle")
    run.start(domains.fingerprint())
    summary = Summary(run.path, done)
    try:
        return loop.fit(
            gan,
            train,
            test,
            distribute.accumulate(strategy, gan.train_step),
            distribute.accumulate(strategy, gan.test_step),
            strategy,
            summary,
            checkpoints,
            config.epochs,
            config.plot_every,
            config.checkpoint_every,
            config.verbose,
        )
    finally:
        summary.close()


def warn(text):
    """Prints what a user should not miss, whatever --verbose says."""
    print(f"Warning: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        print(f"train.py: {error}".replace("\n", "\\n"), file=sys.stderr)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        print(
            f"train.py: {error}: make the environment with scripts/setup.sh, then: . .venv/bin/activate",
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:
        cleared = any(flag.replace("-", "_") == "__clear_output_dir" for flag in sys.argv)
        same = "The same command" + (" without --clear_output_dir" if cleared else "")
        print(f"\nStopped. {same} resumes from the last checkpoint, if there is one.", file=sys.stderr)
        sys.exit(130)
