"""What the devices that TensorFlow computes on are good at, measured or looked up."""

import functools
import os
import pathlib
import resource
import sys
import time

import tensorflow as tf

CPU_INFO = pathlib.Path("/proc/cpuinfo")
INSTRUCTIONS = {"bfloat16": {"amx_bf16", "avx512_bf16"}, "float16": {"amx_fp16", "avx512_fp16"}}  # of x86
PEAK_SECONDS = 0.6  # spent on looking for the peak
MODEST_PEAK = 1e13  # FLOP/s, of a GPU or a TPU whose own is not known


def accelerated():
    """Whether the networks are on GPUs or a TPU."""
    return bool(tf.config.list_logical_devices("GPU")) or on_tpu()


def on_tpu():
    """Whether the networks are on a TPU."""
    return bool(tf.config.list_logical_devices("TPU"))


@functools.cache
def is_native(precision):
    """Whether the devices multiply numbers of a precision themselves: "float32", "bfloat16" or "float16"."""
    if precision == "float32" or accelerated():
        return True
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1").lower() in ("0", "false"):
        return False  # only its kernels use these instructions
    try:
        return bool(INSTRUCTIONS[precision] & set(CPU_INFO.read_text().split()))
    except OSError:
        return False  # not Linux


def best_precision():
    """What networks compute in on the devices that there are: "float32" or "bfloat16".

    bfloat16 on TPUs, NVIDIA GPUs from compute capability 8.0 on and CPUs with instructions for it (AMX, AVX512-BF16); float32
    elsewhere. Never float16, which GPUs of capability 7 multiply as fast: see docs/performance.md for what it does to quality.
    """
    gpus = tf.config.get_visible_devices("GPU")
    if on_tpu():
        return "bfloat16"
    if gpus:
        details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
        major = min(detail.get("compute_capability", (0, 0))[0] for detail in details)
        return "bfloat16" if major >= 8 else "float32"
    return "bfloat16" if is_native("bfloat16") else "float32"


def peak(precision):
    """FLOP/s of the first device in a product of square matrices: the best of what half a second allows.

    In a precision, or in float32 where that stands in for it, see `layers.Convolution`. 0 where there is no room for it, and on a
    TPU, which is not the device that it would be measured on.
    """
    if on_tpu():
        return 0.0
    try:
        return _peak(precision if is_native(precision) else "float32")
    finally:
        for gpu in tf.config.list_logical_devices("GPU"):  # what it took is no part of training
            tf.config.experimental.reset_memory_stats(gpu.name[len("/device:") :])


def _peak(precision):
    began, best, side = time.perf_counter(), 0.0, 512
    multiply = tf.function(lambda a, b: tf.reduce_sum(tf.cast(a @ b, tf.float32)), autograph=False)
    while True:
        try:
            a = tf.cast(tf.random.stateless_uniform([side, side], seed=[0, 0]), precision)
            multiply(a, a).numpy()  # traces
            for _ in range(3):
                start = time.perf_counter()
                multiply(a, a).numpy()
                seconds = time.perf_counter() - start
                best = max(best, 2.0 * side**3 / seconds)
        except tf.errors.OpError:  # no room for larger ones
            return best
        if time.perf_counter() - began + 8 * 4 * seconds > PEAK_SECONDS or side >= 16384:
            return best
        side *= 2


def pace(peak):
    """FLOP/s of a device to reckon with, given its `peak`: that, or a modest guess where it was not measured; 0 for a CPU then."""
    return peak or (MODEST_PEAK if accelerated() else 0.0)


def memory():
    """The most memory that any device has used so far, in bytes: of a GPU its own, of the CPU that of the process."""
    gpus = tf.config.list_logical_devices("GPU")
    if gpus:
        return max(tf.config.experimental.get_memory_info(gpu.name[len("/device:") :])["peak"] for gpu in gpus)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
