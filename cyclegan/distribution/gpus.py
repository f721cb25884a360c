"""Choose the GPUs of this process and how TensorFlow takes their memory."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable

import tensorflow as tf

from cyclegan.errors import UserError


def select_gpus(devices: int | None = None) -> list[tf.config.PhysicalDevice]:
    """Make TensorFlow use the first GPUs only, with memory that grows as needed, and return them.

    Args:
        devices: Number of GPUs; `None` selects all.

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
        # TensorFlow's guide to GPU performance: so each GPU has its own threads that launch kernels, and none waits for another.
        os.environ.setdefault("TF_GPU_THREAD_MODE", "gpu_private")
    if selected:
        with contextlib.suppress(RuntimeError):  # TensorFlow has started already and keeps its devices
            tf.config.set_visible_devices(selected, "GPU")
    allow_memory_growth(selected)
    return selected


def allow_memory_growth(gpus: Iterable[tf.config.PhysicalDevice] | None = None) -> None:
    """Make TensorFlow take the memory of GPUs as needed, unless it has started or the program has configured them.

    Args:
        gpus: The GPUs; by default all that TensorFlow may use.
    """
    for gpu in tf.config.get_visible_devices("GPU") if gpus is None else gpus:
        with contextlib.suppress(RuntimeError, ValueError):
            tf.config.experimental.set_memory_growth(gpu, True)


def explain_unseen_gpus(requirements: str | pathlib.Path) -> str | None:
    """Return a warning if this machine has NVIDIA GPUs that TensorFlow does not see; else `None`.

    Args:
        requirements: Path of the requirements file that installs the CUDA libraries; an installed package has none.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1")
    if hidden or tf.config.list_physical_devices("GPU") or not shutil.which("nvidia-smi"):
        return None
    names = _names_by_nvidia_smi()
    if not names:
        return None
    exists = os.path.exists(requirements)
    packages = f"-r {shlex.quote(str(requirements))}" if exists else f"'tensorflow[and-cuda]=={tf.__version__}'"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    where = "" if visible is None else f" with CUDA_VISIBLE_DEVICES={visible}"
    return (
        f"nvidia-smi lists {len(names)} GPU(s) ({names[0]}), but TensorFlow {tf.__version__} sees none{where}, so training would"
        f" run on the CPU. Its CUDA libraries are probably missing: {shlex.quote(sys.executable)} -m pip install"
        f" {packages}"
    )


def _names_by_nvidia_smi() -> list[str]:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    return [] if listed.returncode else [line.split(":", 1)[1].split("(UUID")[0].strip() for line in lines]
