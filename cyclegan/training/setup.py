"""Set-up of a training run: its images, networks, position, compilation, and the trainer with its callbacks."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Mapping

import tensorflow as tf

from cyclegan import terminal
from cyclegan.config import Config, serialization
from cyclegan.config.sections import DIRECTIONS, OptimizationConfig, choose_steps_per_call
from cyclegan.data import sources
from cyclegan.data.folder_source import Found
from cyclegan.data.sources import Domains
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import hardware
from cyclegan.distribution.train_function import explain_out_of_memory
from cyclegan.distribution.workers import Watchdog, Workers
from cyclegan.errors import UserError, counted, first_line
from cyclegan.evaluation.evaluator import Evaluator
from cyclegan.evaluation.features import make_extractor
from cyclegan.inspection import report as inspection_report
from cyclegan.methods.objective import DESCRIPTIONS, SAMPLES
from cyclegan.networks import compat
from cyclegan.run import overview, trackers
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.run_directory import RunDirectory, refuse_other_stack, split_checkpoint
from cyclegan.run.summaries import NullSummaryWriter, SummaryWriter
from cyclegan.run.throughput import Throughput
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks import Summary, make_callbacks
from cyclegan.training.checkpoint_policy import REQUESTS
from cyclegan.training.schedule import learning_rates
from cyclegan.training.step import GAN, compile_test_step, compile_train_step
from cyclegan.training.trainer import ASSUMED_SHARE, Split, Trainer, make_watchdog

logger = logging.getLogger(__name__)

Copies = Mapping[str, Callable[[tf.keras.Model], None]]

NETWORKS = ("G", "F", "D_X", "D_Y", "heads", "heads_F")  # names in a checkpoint
RUNS = 3  # timed calls for --xla auto; the fastest counts


def config_of_worker(config: Config, workers: Workers) -> Config:
    """Return the configuration of a worker, with the precision of its devices; only the chief shows progress."""
    if config.performance.precision == "auto":
        # config.json records the choice, so that training warns if another machine chooses differently.
        config = config.replace(precision=hardware.best_precision())
    return config if workers.is_chief else config.replace(verbose=0)


def load_data(config: Config, workers: Workers, run: RunDirectory, found: Found | None = None) -> Domains:
    """Load the images on every worker; check that all workers, and the run so far, have the same images.

    Images of a folder may have been `found` before.

    Raises:
        UserError: Images are missing, can't be used or differ from the run's images so far, or the workers differ.
    """
    is_tfds = config.data.is_tfds
    same = {"dataset of TensorFlow Datasets": is_tfds, "output_dir": os.path.abspath(config.run.output_dir)}
    workers.check_equal({**config.shared_settings, **compat.stack(), **same})
    with workers.chief_first(is_tfds):  # the others read what the chief has prepared
        local_workers, bars = workers.count_on_this_host(), config.run.verbose > 0
        data = sources.load_domains(
            run.config.data, config.networks.multiple, local_workers=local_workers, bars=bars, found=found
        )
    run.check_data(data.fingerprint())
    with terminal.phase("Waiting for the other workers", if_slow=True):
        workers.check_equal({**data.fingerprint(), **data.value_ranges})
        if workers.count > 1:
            workers.check_equal(data.checksums())
    run.config = run.config.replace(**data.value_ranges)
    return data


@tf.autograph.experimental.do_not_convert  # Keras 2 would convert every layer, which takes a second
def make_trainer(
    config: Config, workers: Workers, run: RunDirectory, data: Domains, copies: Copies | None = None
) -> Trainer:
    """Return a trainer with new networks, or with the networks of the newest checkpoint; log the overview of the run.

    If no epochs are left, the folder of the run is not written to, and no network for scores is loaded. New networks
    begin with the weights of --init_from: a run, or what the functions `copies` copy into the networks of these names.

    Raises:
        UserError: There are checkpoints, but none can be read; or the folder can't be written to.
    """
    hardware.set_arithmetic(config.performance.tf32 == "on", config.performance.deterministic)
    with terminal.phase("Building the networks"):
        peak = 0.0 if config.performance.no_peak else hardware.measure_peak(config.performance.precision)
        peak *= workers.speedup()
        with workers.strategy.scope():
            global_batch_size = workers.strategy.num_replicas_in_sync * config.optimization.batch_size
            model = workers.keep_alive(GAN(global_batch_size, config, data.size))
            checkpoints = CheckpointManager(
                run.path / "checkpoints", model.state(), config.run.keep, workers, config.run.keep_every
            )
            workers.keep_alive(checkpoints)
            restored = None if config.run.clear_output_dir else checkpoints.restore()
            if config.run.init_from and not restored:
                load_weights(config, workers, model, copies or {})
        state = restored[0] if restored else TrainState()
        splits = train, test = make_splits(config, workers, model, data, peak)
    is_done = state.is_done(config.optimization.epochs, config.evaluation.patience)
    if not is_done:
        functions = {xla: compile_train_step(workers.strategy, model, xla == "on") for xla in ("off", "on")}
        earlier = run.saved_config.performance.xla if run.saved_config else None
        watchdog = make_watchdog(config, workers, checkpoints)
        xla = choose_xla(config, earlier, workers, model, functions, train.dataset, watchdog)
        train.function = functions["on" if xla == "on" else "off"]
        config, run.config = config.replace(xla=xla), run.config.replace(xla=xla)
    evaluator = None
    if workers.is_chief and config.evaluation.evaluate_every and not is_done:
        generators = dict(zip(DIRECTIONS, model.networks.in_use.generators.values()))
        images, channels = (data.test_x, data.test_y), (config.data.channels_x, config.data.channels_y)
        with terminal.phase("Loading the network for FID and KID", if_slow=True):
            extractor = make_extractor(config.evaluation.evaluate_features, channels)
        bars, paired = config.run.verbose > 0, config.data.is_embedded
        evaluator = Evaluator(generators, *images, data.size, extractor, paired=paired, bars=bars)
    with terminal.phase("Comparing the images", if_slow=True):
        notes = [*data.notes, *inspection_report.short_lines(config.data, config.networks.multiple, data)]
    notes.append("The networks see {1} x {0} pixels at once".format(*data.size))
    if config.evaluation.evaluate_every:
        notes.append(config.evaluation.meaning)
    overview.log(config, workers, splits, state, checkpoints.newest, notes, model.networks.parameter_counts())
    summary = NullSummaryWriter() if is_done else start_run(workers, run, data, state, train.dataset, bool(model.pools))
    if workers.is_chief and not is_done:
        with run.writing():
            checkpoints.make_partial()
    callbacks = make_callbacks(config, workers, model, test.dataset, summary, evaluator)
    return workers.keep_alive(Trainer(config, workers, splits, state, checkpoints, summary, callbacks, run))


def load_weights(config: Config, workers: Workers, model: GAN, copies: Copies) -> None:
    """Load the weights that --init_from names into new networks; collective, in the scope of the strategy.

    Generators get the EMA weights of a run with --ema, because it translates with them. Optimizers and image pools
    begin anew.

    Raises:
        UserError: They can't be read, or do not fit.
    """
    parts = {name: part for name, part in model.state().items() if name in NETWORKS}
    path, names = config.run.init_from or "", {*copies}
    if copies:
        for name, copy_to in copies.items():
            copy_to(parts[name])
    else:
        folder, checkpoint = split_checkpoint(path)
        saved = serialization.load(folder / "config.json")
        refuse_other_stack(folder, saved.stack, compat.stack())
        before, now = saved.config.objective, config.objective
        names = {each for pair in before.adversaries for each in (pair.generator, f"D_{pair.domain}")}
        if before.compares_features and before.compares_images == now.compares_images:
            names |= {"heads", "heads_F"}
        names &= {*parts}
        is_ema = saved.config.optimization.ema > 0
        state = {name + "_ema" * (is_ema and name in "GF"): parts[name] for name in names}
        found = CheckpointManager(folder / "checkpoints", state, workers=workers).restore(checkpoint, strict=False)
        if not found:
            raise UserError(f"--init_from {path}: no checkpoint yet; expected a run that has begun to train")
        path = f"{found.path}{', the EMA weights of generators' if is_ema else ''}"
    model.networks.reset_ema()
    new = "".join(f"; {name} begins with random weights" for name in sorted({*parts} - names))
    logger.info(f"Weights of {', '.join(sorted(names))} from {path}{new}")
    if steps := config.optimization.discriminator_warmup:
        logger.info(f"The first {steps} steps update only the discriminators (--discriminator_warmup)")


def make_splits(config: Config, workers: Workers, model: GAN, data: Domains, peak: float) -> tuple[Split, Split]:
    """Return the training and the held-out pairs with their steps; `peak` is the FLOP/s of all devices, or 0."""
    flops = model.objective.flops(model.networks, *data.size) * model.global_batch_size
    steps_per_call = config.performance.steps_per_call or 1
    if not config.performance.steps_per_call and peak and config.run.checkpoint_minutes:
        steps_per_call = choose_steps_per_call(flops / (ASSUMED_SHARE * peak), config.run.log_every)
        steps_per_call = workers.broadcast_from_chief(steps_per_call)
    assert data.train_x is not None and data.train_y is not None
    shape = (model.global_batch_size, data.size)
    train = UnpairedDataset(
        data.train_x,
        data.train_y,
        *shape,
        config.optimization.seed,
        steps_per_call=steps_per_call,
        flip=not config.data.no_flip,
        epoch_size=config.data.epoch_size,
    )
    test = UnpairedDataset(data.test_x, data.test_y, *shape, steps_per_call=steps_per_call)
    if config.uses_pairs and data.pairs is not None:
        train.set_pairs(data.pairs, config.data.paired_share)
    if data.in_decay and hasattr(config.optimization, "decay_from"):
        train.set_later(data.in_decay, config.optimization.decay_from)
    train_step, test_step = compile_train_step(workers.strategy, model), compile_test_step(workers.strategy, model)
    return (
        Split("train", train, train_step, model.metric_names["train"], Throughput(flops, peak)),
        Split("test", test, test_step, model.metric_names["test"], Throughput()),
    )


def choose_xla(
    config: Config,
    earlier: str | None,
    workers: Workers,
    model: GAN,
    functions: Mapping[str, Callable],
    dataset: UnpairedDataset,
    watchdog: Watchdog,
) -> str:
    """Return the value of --xla from here on; collective. A result of "auto" means that XLA is off for now.

    On GPUs "auto" becomes the choice of the run so far or else the faster one. Nothing is timed with --deterministic,
    because times differ between two runs, with --dropout, because XLA would make other masks, or with --norm batch:
    there XLA is off.

    `earlier` is --xla of the run so far, or `None`. `functions` are train functions without ("off") and with XLA
    ("on").
    """
    xla: str = config.performance.xla
    xla = earlier if xla == "auto" and earlier else xla
    if xla == "auto" and config.performance.deterministic:
        xla = "off"
    if xla != "auto" or not hardware.has_accelerator() or config.networks.norm == "batch" or config.networks.dropout:
        return xla
    with terminal.phase("Timing the training step with and without XLA"), explain_out_of_memory(), watchdog:
        seconds = time_steps(functions, model, dataset, workers, watchdog.beat)
    xla = "on" if workers.broadcast_from_chief(int(seconds["on"] < seconds["off"])) else "off"
    off, on = (f"{1000 * seconds[name]:.1f} ms" for name in ("off", "on"))
    logger.info(f"--xla {xla} from here on: a step takes {off} without XLA, {on} with XLA")
    return xla


def time_steps(
    functions: Mapping[str, Callable], model: GAN, dataset: UnpairedDataset, workers: Workers, beat: Callable[[], None]
) -> dict[str, float]:
    """Return the seconds of a step by name of the function, infinity for a step that XLA can't compile.

    The samples have weights of NaN, so that no step is finite, and none changes the state. Arguments as for
    `choose_xla`.
    """
    x, y, *others = next(dataset.distributed(workers.strategy))
    spoiled = tf.function(lambda *parts: workers.strategy.run(lambda *each: [p * math.nan for p in each], args=parts))
    totals = {name: tf.constant(0.0, tf.float64) for name in (*model.metric_names["train"], SAMPLES)}
    steps = dataset.call(0, 0, 0).steps
    rates = tf.zeros([dataset.steps_per_call, 3])
    arguments = (x, y, *spoiled(*others)), totals, tf.constant(steps), tf.constant(0), rates
    requests = {"requests": {name: tf.constant(0.0) for name in REQUESTS}} if workers.count > 1 else {}
    scale, seconds = [(variable, variable.numpy()) for variable in model.loss_scale.state.variables], {}
    for name, function in functions.items():
        times = []
        try:
            for _ in range(1 + RUNS):  # the first one compiles
                start = time.perf_counter()
                function(*arguments, **requests)[1].numpy()  # waits for the devices
                times.append((time.perf_counter() - start) / steps)
                beat()
        except tf.errors.OpError as error:  # XLA can't compile the step, or the memory is too small
            if name == "off":
                raise
            logger.warning(f"XLA failed, and is not used: {first_line(error)}")
        seconds[name] = min(times[1:]) if workers.all_true(len(times) > RUNS) else math.inf
    for variable, value in scale:
        variable.assign(value)  # a step that is not finite halves it
    hardware.reset_peak_memory()  # memory of the timing is no part of training
    return seconds


def start_run(
    workers: Workers, run: RunDirectory, data: Domains, state: TrainState, dataset: UnpairedDataset, has_pools: bool
) -> Summary:
    """Write the folder of a run, warn of the changes in a resumed one, and return the writer of its log."""
    replicas, batch = workers.strategy.num_replicas_in_sync, dataset.global_batch_size
    before, config = dataclasses.replace(state), run.config
    state.settings, state.images = serialization.settings_of_training(config), data.fingerprint()
    with terminal.phase("Preparing the folder of the run", if_slow=True):
        run.start(state.images)
    if not workers.is_chief:
        return NullSummaryWriter()
    started = trackers.start(config.run, config.settings(), run.path)
    with terminal.phase("Preparing the logs of the run", if_slow=True), run.writing():
        summary = SummaryWriter(run.path, started, DESCRIPTIONS, config)
        before.settings = before.settings or serialization.settings_of_training(run.saved_config or config)
        changes = before.changes(dataclasses.replace(state, global_batch_size=batch))
        if run.saved_config:
            summary.rewind(before, changes, dataset.epoch_size)
        else:
            summary.flush()  # a new run removes nothing
    repaired = (f"{text}: the same names, but other files; training continues with these" for text in changes.images)
    batches = batch_size_warnings(before.global_batch_size, batch, replicas, dataset.epoch_size, has_pools)
    for text in (*repaired, *batches, *undecayed(config.optimization)):
        logger.warning(text)
    typed = [f"{change} from here on" for change in changes.settings]
    if changes.epochs:
        saved = Config.from_settings(**before.settings).optimization
        typed += learning_rate_warnings(saved, config.optimization, state.epoch)
    for text in typed:  # the summary shows them in the log of the page, not among its warnings
        logger.warning(text, extra={"is_passing": True})
    return summary


def batch_size_warnings(
    before: int, now: int, replicas: int, pairs: int = sys.maxsize, has_pools: bool = False
) -> list[str]:
    """Describe the effect of a global batch that is larger than an epoch, or that differs from the batch so far.

    `before` is the global batch of the run so far, 0 before its first step, and `pairs` the training pairs of an epoch.
    """
    idle = f"the global batch of {now} is larger than an epoch of {counted(pairs, 'pair')}: most of each step is idle"
    warnings = [idle] if now > pairs else []
    if before in (0, now):
        return warnings
    devices = max(n for n in range(1, replicas + 1) if before % n == 0)
    pools = " image pools begin anew," if has_pools else ""
    fewer = f"--devices {devices} " if devices < replicas else ""
    return [
        *warnings,
        f"the global batch is {counted(now, 'pair')} instead of {before} from here on: an epoch has"
        f" {'fewer' if now > before else 'more'} steps, the noise in their gradients changes,{pools}"
        " so the result will differ from a run with the former batch, and --lr may have to change, too. For the same"
        f" batch use {fewer}--batch_size {before // devices}",
    ]


def undecayed(optimization: OptimizationConfig) -> list[str]:
    """Return a warning if the schedule has a decay that training does not reach, as with a preset of more epochs."""
    start, epochs = getattr(optimization, "decay_from", 0), optimization.epochs
    return [f"--decay_from {start} is not below --epochs {epochs}: the learning rate never decays"] * (start >= epochs)


def learning_rate_warnings(saved: OptimizationConfig, present: OptimizationConfig, epochs_done: int) -> list[str]:
    """Return a warning if the learning rate jumps because a run resumes with other --epochs; otherwise nothing."""
    before, now = (each.decay_factor(epochs_done) for each in (saved, present))
    if present.epochs == saved.epochs or math.isclose(before, now, abs_tol=1e-6):
        return []
    rate, rate_as_saved = (learning_rates(each, epochs_done)[0] for each in (present, saved))
    return [
        f"epochs {saved.epochs} -> {present.epochs} makes the learning rate jump after epoch {epochs_done}: from"
        f" {rate_as_saved:.3g} (schedule of {saved.epochs} epochs) to {rate:.3g} (schedule of {present.epochs} epochs)"
    ]
