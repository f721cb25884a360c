"""Capabilities of the devices that TensorFlow computes on, looked up or measured."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import pathlib
import resource
import sys
import time
from collections.abc import Iterator

from cyclegan.lazy_tensorflow import tf

CPU_INFO = pathlib.Path("/proc/cpuinfo")
INSTRUCTIONS = {"bfloat16": {"amx_bf16", "avx512_bf16"}, "float16": {"amx_fp16", "avx512_fp16"}}  # of x86
PEAK_SECONDS = 0.6  # spent on measuring the peak
_assumes_gpu = contextvars.ContextVar("assumes_gpu", default=False)


@contextlib.contextmanager
def assume_gpu() -> Iterator[None]:
    """Make the graphs of a GPU inside the context, although there may be none, to look at them."""
    token = _assumes_gpu.set(True)
    try:
        yield
    finally:
        _assumes_gpu.reset(token)


def has_accelerator() -> bool:
    """Return whether the networks run on GPUs or a TPU."""
    return _assumes_gpu.get() or bool(tf.config.list_logical_devices("GPU")) or has_tpu()


def has_tpu() -> bool:
    """Return whether the networks run on a TPU."""
    return bool(tf.config.list_logical_devices("TPU"))


def has_instructions_for(precision: str) -> bool:
    """Return whether the devices multiply "float32", "bfloat16" or "float16" numbers in hardware."""
    if precision == "float32" or has_accelerator():
        return True
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1").lower() in ("0", "false"):
        return False  # only the kernels of oneDNN use these instructions
    return bool(INSTRUCTIONS[precision] & _words_of_cpu())


@functools.cache
def _words_of_cpu() -> set[str]:
    return set(CPU_INFO.read_text().split()) if CPU_INFO.exists() else set()  # Linux only


def best_precision() -> str:
    """Return the precision in which networks train best on the devices present: "float32" or "bfloat16".

    bfloat16 on TPUs, NVIDIA GPUs from compute capability 8.0 on and CPUs with instructions for it (AMX, AVX512-BF16);
    float32 elsewhere. Never float16, although it is fast on GPUs of capability 7, too: docs/performance.md shows its
    effect on quality.
    """
    if has_tpu():
        return "bfloat16"
    if tf.config.get_visible_devices("GPU"):
        return "bfloat16" if _have_capability_8() else "float32"
    return "bfloat16" if has_instructions_for("bfloat16") else "float32"


def _have_capability_8() -> bool:
    """Return whether all GPUs have compute capability 8.0 or higher; false without a GPU."""
    details = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.get_visible_devices("GPU")]
    return min((detail.get("compute_capability", (0, 0))[0] for detail in details), default=0) >= 8


def set_arithmetic(tf32: bool, deterministic: bool) -> None:
    """Set whether GPUs may compute in TF32, and whether operations give the same bits each time; for the start."""
    tf.config.experimental.enable_tensor_float_32_execution(tf32)
    if deterministic:
        # The fast kernel that writes to an image pool is deterministic if the rows differ, as ours do. The other copies
        # the pool to the host and back in each step.
        os.environ.setdefault("TF_DISABLE_SCATTER_OP_DETERMINISM", "1")
        tf.config.experimental.enable_op_determinism()


def multiplies_in_tf32(precision: str) -> bool:
    """Return whether the GPUs compute products and convolutions of networks of this precision in TF32."""
    allowed = (
        tf.config.experimental.tensor_float_32_execution_enabled() and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
    )
    return precision == "float32" and allowed and _have_capability_8()


def measure_peak(precision: str) -> float:
    """Return the FLOP/s of the first device in its fastest product of square matrices within about half a second.

    A precision without instructions is measured as float32, in which its convolutions run. The result is 0 on a TPU,
    because the products would run on another device.
    """
    if has_tpu():
        return 0.0
    if not has_instructions_for(precision):
        precision = "float32"
    began, best, side = time.perf_counter(), 0.0, 512
    multiply = tf.function(lambda a, b: tf.reduce_sum(tf.cast(a @ b, tf.float32)), autograph=False)
    with contextlib.suppress(tf.errors.OpError):  # out of memory
        while side <= 16384:
            a = tf.cast(tf.random.stateless_uniform([side, side], seed=[0, 0]), precision)
            multiply(a, a).numpy()  # traces
            for _ in range(3):
                start = time.perf_counter()
                multiply(a, a).numpy()
                seconds = time.perf_counter() - start
                best = max(best, 2.0 * side**3 / seconds)
            if time.perf_counter() - began + 8 * 4 * seconds > PEAK_SECONDS:
                break
            side *= 2
    reset_peak_memory()  # memory of the measurement is no part of training
    return best


def peak_memory() -> int:
    """Return the peak memory use so far in bytes: the maximum over all GPUs, or of the process without a GPU."""
    if gpus := _gpu_names():
        return max(tf.config.experimental.get_memory_info(name)["peak"] for name in gpus)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def used_memory() -> int:
    """Return the bytes in use on the fullest GPU; 0 without a GPU."""
    return max((tf.config.experimental.get_memory_info(name)["current"] for name in _gpu_names()), default=0)


def reset_peak_memory() -> None:
    """Begin the measurement of the peak memory of GPUs anew; the peak of a process on a CPU stays."""
    for name in _gpu_names():
        tf.config.experimental.reset_memory_stats(name)


def _gpu_names() -> list[str]:
    return [gpu.name[len("/device:") :] for gpu in tf.config.list_logical_devices("GPU")]
