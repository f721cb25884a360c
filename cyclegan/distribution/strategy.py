"""Choose the devices of this machine, and make the distribution strategy over them."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence

import tensorflow as tf

from cyclegan.errors import UserError, first_line

LOGICAL_LIMIT = 64  # logical devices share the cores; thousands of them only hang


def make_strategy(devices: int | None = None, kind: str = "mirrored") -> tf.distribute.Strategy:
    """Return a strategy over the devices of this machine.

    Args:
        devices: Number of devices: the first N GPUs, or N logical CPU devices if there is no GPU. Logical devices share
            the cores: they are good for trying several replicas, but no faster. `None` means every GPU, or the CPU
            once.
        kind: "mirrored" or "auto": `tf.distribute.MirroredStrategy`; "one": `tf.distribute.OneDeviceStrategy`; "tpu":
            `tf.distribute.TPUStrategy` over all cores of the TPU that TPU_NAME names, or of this machine.

    Raises:
        UserError: The machine has fewer devices, or no TPU.
    """
    if kind in ("one", "tpu") and devices not in (None, 1):
        wanted = "no such flag, or 1" if kind == "one" else "no such flag: all cores are used"
        raise UserError(f"--devices {devices}: expected {wanted}, with --strategy {kind}")
    if kind == "tpu":
        return _tpu_strategy()
    gpus = select_gpus(1 if kind == "one" else devices)
    if kind == "one":
        return tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")
    if gpus:
        return tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(len(gpus))])
    return _cpu_strategy(devices or 1)


def device_names(devices: int | None = None) -> list[str]:
    """Return TensorFlow's names of the GPUs, or of the CPU; arguments and errors as for `make_strategy`."""
    return list(make_strategy(devices).extended.worker_devices)


def _cpu_strategy(devices: int) -> tf.distribute.Strategy:
    if devices > LOGICAL_LIMIT:
        raise UserError(f"--devices {devices}: without a GPU, expected at most {LOGICAL_LIMIT} logical CPU devices")
    if devices > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        with contextlib.suppress(RuntimeError):  # TensorFlow has started already and keeps its devices
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    started = len(tf.config.list_logical_devices("CPU"))
    if devices > started:
        raise UserError(
            f"--devices {devices}: TensorFlow has started with {started} CPU devices; expected at most that many:"
            " ask for more in a new process"
        )
    # Reduced on one device: the devices share one memory, so a ring of copies gains nothing. Also, strategies of
    # different sizes disturb each other in TensorFlow's collective operations.
    in_order = tf.distribute.ReductionToOneDevice(accumulation_fn=_sum_in_order)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)], cross_device_ops=in_order)


def _sum_in_order(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the sum of tensors, added from the first to the last without a stacked copy of all.

    TensorFlow merges consecutive additions and may add in any order; an extra axis of length 1 prevents this.
    """
    total = values[0]
    for value in values[1:]:
        total = tf.expand_dims(total, 0)
        total = tf.raw_ops.AddN(inputs=[total, tf.reshape(value, tf.shape(total))])
    return tf.reshape(total, tf.shape(values[0]))


def _tpu_strategy() -> tf.distribute.Strategy:
    name = os.environ.get("TPU_NAME", "local")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        raise UserError(
            f"--strategy tpu: no TPU {name} ({first_line(error)}): expected TensorFlow with libtpu on a machine"
            " with a TPU, or the name of a TPU in the environment variable TPU_NAME"
        ) from error


def select_gpus(devices: int | None = None) -> list[tf.config.PhysicalDevice]:
    """Make TensorFlow use the first GPUs only, with memory that grows as needed, and return them.

    Raises:
        UserError: There are GPUs, but fewer than `devices`.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and devices and devices > len(gpus):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        where = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
        raise UserError(f"--devices {devices}: TensorFlow sees {len(gpus)} GPUs{where}: expected at most that many")
    selected = gpus[:devices]
    if len(selected) > 1:
        # TensorFlow's guide to GPU performance: so each GPU has its own threads that launch kernels, and none waits for
        # another.
        os.environ.setdefault("TF_GPU_THREAD_MODE", "gpu_private")
    if selected:
        with contextlib.suppress(RuntimeError):  # TensorFlow has started already and keeps its devices
            tf.config.set_visible_devices(selected, "GPU")
    allow_memory_growth(selected)
    return selected


def allow_memory_growth(gpus: Iterable[tf.config.PhysicalDevice] | None = None) -> None:
    """Make TensorFlow take the memory of GPUs as needed, unless it has started or the program has configured them."""
    for gpu in tf.config.get_visible_devices("GPU") if gpus is None else gpus:
        with contextlib.suppress(RuntimeError, ValueError):
            tf.config.experimental.set_memory_growth(gpu, True)


def explain_unseen_gpus() -> str | None:
    """Return a warning if this machine has, or CUDA_VISIBLE_DEVICES names, GPUs that TensorFlow does not see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible in ("", "-1") or tf.config.list_physical_devices("GPU"):
        return None
    listed = ""
    if shutil.which("nvidia-smi"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
    names = re.findall(r"^GPU .*?: (.*?) *(?:\(UUID.*)?$", listed, re.MULTILINE)
    if not names:
        return visible and f"CUDA_VISIBLE_DEVICES={visible}, but there is no GPU to see: training runs on the CPU"
    where = "" if visible is None else f" with CUDA_VISIBLE_DEVICES={visible}"
    return (
        f"nvidia-smi lists {len(names)} GPU(s) ({names[0]}), but TensorFlow {tf.__version__} sees none{where}, so"
        f" training would run on the CPU. Its CUDA libraries are probably missing: {shlex.quote(sys.executable)} -m"
        f" pip install 'tensorflow[and-cuda]=={tf.__version__}'"
    )
