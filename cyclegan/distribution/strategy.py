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


def make_strategy(devices=None, kind="mirrored"):
    """A strategy over the devices of this machine.

    Args:
        devices: how many: the first N GPUs, or, where there is no GPU, N logical CPU devices (which share the cores: good
            for trying several replicas, no faster). `None` means every GPU, or the CPU once.
        kind: "mirrored" or "auto": `tf.distribute.MirroredStrategy`; "one": `tf.distribute.OneDeviceStrategy`; "tpu":
            `tf.distribute.TPUStrategy` over all cores of the TPU that TPU_NAME names, or of this machine.

    Raises:
        UserError: there are not as many, or there is no TPU.
    """
    if kind in ("one", "tpu") and devices not in (None, 1):
        wanted = "no such flag, or 1" if kind == "one" else "no such flag: all cores are used"
        raise UserError(f"--devices {devices}: expected {wanted}, with --strategy {kind}")
    if kind == "tpu":
        return _tpu_strategy()
    gpus = use_gpus(1 if kind == "one" else devices)
    if kind == "one":
        return tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")
    if gpus:
        return tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(len(gpus))])
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
    # each other's way in TensorFlow's collective operations.
    in_order = tf.distribute.ReductionToOneDevice(accumulation_fn=_sum_in_order)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)], cross_device_ops=in_order)


def _sum_in_order(values):
    """The sum of tensors, from the first to the last, without a copy of all as stacking them would be.

    TensorFlow makes one operation of additions that follow each other, which begins with whichever number's memory is free; so
    after each the shape has one more axis of length 1, which keeps them apart.
    """
    total = values[0]
    for value in values[1:]:
        total = tf.expand_dims(total, 0)
        total = tf.raw_ops.AddN(inputs=[total, tf.reshape(value, tf.shape(total))])
    return tf.reshape(total, tf.shape(values[0]))


def use_gpus(devices=None):
    """Makes the first GPUs, or all, those that TensorFlow uses, and takes their memory as needed. Returns them, a list.

    Raises:
        UserError: more asked for than there are, and there are some.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and devices and devices > len(gpus):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        where = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
        raise UserError(f"--devices {devices}: TensorFlow sees {len(gpus)} GPUs{where}: expected at most that many")
    used = gpus[:devices]
    if used:
        _before_start(lambda: tf.config.set_visible_devices(used, "GPU"))
    grow_memory(used)
    return used


def grow_memory(gpus=None):
    """Makes TensorFlow take the memory of GPUs, by default of all that it may use, as needed; unless it has started already.

    What a program has laid down before for its own GPUs stays too.
    """
    for gpu in tf.config.get_visible_devices("GPU") if gpus is None else gpus:
        with contextlib.suppress(RuntimeError, ValueError):
            tf.config.experimental.set_memory_growth(gpu, True)


def _tpu_strategy():
    name = os.environ.get("TPU_NAME", "local")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        raise UserError(
            f"--strategy tpu: no TPU {name} ({str(error).strip().splitlines()[0]}): expected a TensorFlow with libtpu on a machine"
            " with a TPU, or its name in TPU_NAME"
        ) from error


def device_names(devices=None):
    """TensorFlow's names of the GPUs there are, or of the CPU; `devices` and what is raised as in `make_strategy`."""
    return list(make_strategy(devices).extended.worker_devices)


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
