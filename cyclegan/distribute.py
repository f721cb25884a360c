"""Chooses the strategy; sums what the replicas return."""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys

import tensorflow as tf

from cyclegan.errors import UserError

LOGICAL_LIMIT = 64  # they share the cores; thousands of them only hang


def make_strategy(devices=None):
    """A `tf.distribute.MirroredStrategy` over the GPUs there are, or over the CPU.

    Args:
        devices: how many: the first N GPUs, or, where there is no GPU, N logical CPU devices (which share the cores: good
            for trying several replicas, no faster). `None` means every GPU, or the CPU once.

    Raises:
        UserError: more GPUs asked for than there are.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        if devices and devices > len(gpus):
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            where = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
            raise UserError(f"--devices {devices}: TensorFlow sees {len(gpus)} GPUs{where}: expected at most that many")
        used = gpus[:devices]
        _before_start(lambda: tf.config.set_visible_devices(used, "GPU"))
        for gpu in used:  # take memory as needed, so that what is used can be seen
            _before_start(lambda gpu=gpu: tf.config.experimental.set_memory_growth(gpu, True))
        return tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(len(used))])
    devices = devices or 1
    if devices > LOGICAL_LIMIT:
        raise UserError(f"--devices {devices}: without a GPU, expected at most {LOGICAL_LIMIT} logical CPU devices")
    if devices > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        logical = [tf.config.LogicalDeviceConfiguration()] * devices
        _before_start(lambda: tf.config.set_logical_device_configuration(cpu, logical))
    have = len(tf.config.list_logical_devices("CPU"))
    if devices > have:
        raise UserError(
            f"--devices {devices}: TensorFlow has started with {have} CPU devices: ask for them in a new process"
        )
    # Summed on one of them: all share one memory, so a ring of copies gains nothing, and strategies of different sizes get in
    # each other's way in TensorFlow's collective operations. Not with the default, add_n, whose order is not fixed.
    in_order = tf.distribute.ReductionToOneDevice(
        accumulation_fn=lambda values: tf.reduce_sum(tf.stack(values), axis=0)
    )
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)], cross_device_ops=in_order)


def _before_start(configure):
    """Calls `configure`; when TensorFlow has started already, what it started with stays."""
    with contextlib.suppress(RuntimeError):
        configure()


def unseen_gpus(requirements):
    """What to tell a user whose NVIDIA GPUs TensorFlow can't see; `None` where all is well.

    Args:
        requirements: path of the requirements file that brings the CUDA libraries.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1")
    if hidden or tf.config.list_physical_devices("GPU") or not shutil.which("nvidia-smi"):
        return None
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    names = [
        line.split(":", 1)[1].split("(UUID")[0].strip()
        for line in listed.stdout.splitlines()
        if line.startswith("GPU ")
    ]
    if listed.returncode or not names:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    where = "" if visible is None else f" with CUDA_VISIBLE_DEVICES={visible}"
    return (
        f"nvidia-smi lists {len(names)} GPU(s) ({names[0]}), but TensorFlow {tf.__version__} sees none{where}, so training would"
        f" run on the CPU. Its CUDA libraries are probably missing: {shlex.quote(sys.executable)} -m pip install"
        f" -r {shlex.quote(str(requirements))}"
    )


def reduce_dict(strategy, per_replica):
    """The sum over the replicas of each value. A new dict of scalars; the argument is not changed."""
    return {key: strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None) for key, value in per_replica.items()}


def accumulate(strategy, step, global_batch_size, update=None):
    """The compiled function that runs a replica's `step` everywhere and adds up what it returns.

    Args:
        step: called on each replica with its share of a batch; returns (figures, gradients): a dict of scalars, its share of
            each mean over the global batch, and whatever `update` takes.
        global_batch_size: what the figures have been divided by.
        update: called on each replica with its gradients, but only if every figure, and every sum, is finite: otherwise
            nothing is updated.

    Returns:
        f(batch, totals) -> (totals, good, figures): `totals`, a dict of those figures that are wanted, with the sums over the
        samples added if the step was good; whether it was, a bool scalar; and the step's own figures, reduced. All stay on
        the device, so that the host need not wait for a step.
    """

    @tf.function(autograph=False)
    def run(batch, totals):
        figures, gradients = strategy.run(step, args=batch)
        figures = reduce_dict(strategy, figures)
        sums = {key: total + figures[key] * global_batch_size for key, total in totals.items()}
        good = tf.reduce_all(tf.math.is_finite(tf.stack([*figures.values(), *sums.values()])))
        if update:

            def apply():
                strategy.run(update, args=(gradients,))
                return tf.constant(True)

            good = tf.cond(good, apply, lambda: tf.constant(False))
        return {key: tf.where(good, sums[key], total) for key, total in totals.items()}, good, figures

    return run
