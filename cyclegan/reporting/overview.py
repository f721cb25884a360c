"""What the user is told before training begins: on what, with what, from where."""

import shlex


def lines(config, domains, team, gan, train, test, peak, run, restored, progress):
    """The lines of it, one after the other.

    Args:
        config: the `Config`.
        domains: the `sources.Domains`.
        team: the `workers.Workers`.
        gan: the `CycleGAN`.
        train, test: `data.UnpairedDataset`.
        peak: FLOP/s of all devices, 0 if not measured.
        run: the `RunDirectory`.
        restored: the checkpoint's folder that training goes on from; `None` for a new run.
        progress: the `TrainState`.
    """
    generator, discriminator = gan.parameters()
    local, *_ = devices = team.strategy.extended.worker_devices
    replicas = team.strategy.num_replicas_in_sync
    if config.preset:
        yield f"Preset {config.preset}: {config.preset_flags}"
    yield from domains.notes
    if config.channels_x != config.channels_y:
        yield "No identity losses: X and Y have different numbers of channels"
    if team.count > 1:
        yield f"Workers: {team.count} ({', '.join(team.members.addresses)})"
    each = " in each worker" if team.count > 1 else ""
    yield f"Number of devices: {len(devices)} ({local.split(':')[-2]}){each}"
    yield f"Replicas: {replicas}, global batch: {replicas} x {config.batch_size} = {train.global_batch_size}"
    if peak:
        yield f"Peak of a matrix product: {peak / 1e12:.3g} TFLOP/s"
    compiled = ", XLA" if config.xla == "on" else ""
    yield f"Precision: {config.precision}{compiled}, steps per call: {train.steps_per_call}"
    yield (
        f"Steps per epoch: {train.steps} for training ({train.pairs} pairs), {test.steps} for testing ({test.pairs} pairs)"
    )
    yield f"Parameters: {generator:,} in each generator, {discriminator:,} in each discriminator"
    yield f"Writing to {run.path} (tensorboard --logdir {shlex.quote(str(run.path))})"
    if restored:
        part = f" and {progress.train.pairs} of {train.pairs} pairs of the next" if progress.train.pairs else ""
        yield f"Resumed from {restored}: {progress.epoch} of {config.epochs} epochs{part} are done"
    if progress.epoch >= config.epochs:
        yield f"Nothing is left to do{' or to profile' if config.profile else ''}: ask for more with --epochs"
