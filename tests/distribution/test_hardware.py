import types

import pytest
import tensorflow as tf

from cyclegan.distribution import hardware

CPUS = {
    "a CPU with AMX": "processor : 0\nflags\t\t: fpu avx512f amx_bf16 amx_tile\n",
    "a CPU with AVX512-BF16": "flags : avx512f avx512_bf16\n",
    "a CPU with both precisions": "flags : amx_bf16 avx512_fp16\n",
    "a CPU with neither": "flags : fpu avx2 avx512f my_amx_bf16_not\n",
}


@pytest.fixture(autouse=True)
def empty_cache():
    """Clear the cache of CPU instructions for each test."""
    hardware.has_instructions_for.cache_clear()
    yield
    hardware.has_instructions_for.cache_clear()


@pytest.fixture
def cpu(tmp_path, monkeypatch):
    """Return a function that replaces /proc/cpuinfo by a text."""
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)

    def install(text):
        (tmp_path / "cpuinfo").write_text(text)
        monkeypatch.setattr(hardware, "CPU_INFO", tmp_path / "cpuinfo")

    return install


@pytest.fixture
def gpus(monkeypatch):
    """Return a function that makes TensorFlow list GPUs with these details, and peaks of memory in bytes."""

    def install(*details, peaks=()):
        names = [types.SimpleNamespace(name=f"/device:GPU:{i}") for i in range(max(len(details), len(peaks)))]
        memory = {f"GPU:{i}": {"current": 1, "peak": peak} for i, peak in enumerate(peaks)}
        known = dict(zip((gpu.name for gpu in names), details))
        for name in ("get_visible_devices", "list_logical_devices"):
            monkeypatch.setattr(tf.config, name, lambda kind: names if kind == "GPU" else [])
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: known[gpu.name])
        monkeypatch.setattr(tf.config.experimental, "get_memory_info", memory.__getitem__)

    return install


@pytest.mark.parametrize(
    "capabilities, precision",
    [
        ([(6, 1)], "float32"),
        ([(7, 0)], "float32"),
        ([(7, 5)], "float32"),
        ([(8, 0)], "bfloat16"),
        ([(9, 0)], "bfloat16"),
        ([(10, 0), (12, 0)], "bfloat16"),
        ([(8, 6), (7, 5)], "float32"),
        ([(6, 1), (9, 0)], "float32"),
        ([None], "float32"),
        ([(9, 0), None], "float32"),
    ],
    ids=str,
)
def test_best_precision_of_the_oldest_gpu(gpus, cpu, capabilities, precision):
    cpu(CPUS["a CPU with AMX"])  # a GPU decides
    gpus(*({"compute_capability": capability} if capability else {} for capability in capabilities))
    assert hardware.best_precision() == precision
    assert (
        hardware.has_accelerator()
        and hardware.has_instructions_for("bfloat16")
        and hardware.has_instructions_for("float16")
    )


@pytest.mark.parametrize(
    "precision, capabilities, is_on, expected",
    [
        ("float32", [(8, 0), (9, 0)], True, True),
        ("float32", [(8, 0), (7, 5)], True, False),
        ("float32", [(8, 0)], False, False),
        ("bfloat16", [(8, 0)], True, False),
        ("float32", [], True, False),
    ],
)
def test_tf32_needs_new_gpus_and_float32(gpus, monkeypatch, precision, capabilities, is_on, expected):
    gpus(*({"compute_capability": capability} for capability in capabilities))
    monkeypatch.setattr(tf.config.experimental, "tensor_float_32_execution_enabled", lambda: is_on)
    assert hardware.multiplies_in_tf32(precision) == expected
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")  # the libraries of CUDA read this variable
    assert not hardware.multiplies_in_tf32(precision)


@pytest.mark.parametrize(
    "kind, best, bfloat16, float16",
    [
        ("a CPU with AMX", "bfloat16", True, False),
        ("a CPU with AVX512-BF16", "bfloat16", True, False),
        ("a CPU with both precisions", "bfloat16", True, True),
        ("a CPU with neither", "float32", False, False),
    ],
)
def test_best_precision_of_a_cpu(cpu, kind, best, bfloat16, float16):
    cpu(CPUS[kind])
    assert hardware.best_precision() == best and not hardware.has_accelerator()
    assert hardware.has_instructions_for("bfloat16") == bfloat16 and hardware.has_instructions_for("float16") == float16
    assert hardware.has_instructions_for("float32")


def test_best_precision_of_an_unknown_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "CPU_INFO", tmp_path / "no such file")
    assert hardware.best_precision() == "float32" and hardware.has_instructions_for("float32")
    assert not hardware.has_instructions_for("bfloat16") and not hardware.has_instructions_for("float16")


@pytest.fixture
def computer(monkeypatch):
    """Return a function that fakes a device with a speed in FLOP/s per precision, on which only matrix products take time.

    The function returns ([seconds now], sides of the matrices multiplied so far).
    """

    def install(flops, precision):
        clock, products = [0.0], []

        def multiply(a, b):
            assert a.shape == b.shape == (a.shape[0],) * 2 and a.dtype == precision
            side = a.shape[0]
            clock[0] += 2.0 * side**3 / flops
            products.append(side)
            return types.SimpleNamespace(numpy=lambda: None)

        monkeypatch.setattr(hardware.time, "perf_counter", lambda: clock[0])
        monkeypatch.setattr(tf, "function", lambda call, autograph: multiply)
        monkeypatch.setattr(tf.random, "stateless_uniform", lambda shape, seed: tf.TensorSpec(shape))
        monkeypatch.setattr(tf, "cast", lambda x, kind: tf.TensorSpec(x.shape, kind))
        return clock, products

    return install


@pytest.mark.parametrize(
    "flops, largest", [(1e9, 512), (50e9, 1024), (1e12, 2048), (50e12, 8192), (1e15, 16384), (1e18, 16384)]
)
def test_peak_is_measured_in_products_as_large_as_time_allows(computer, cpu, flops, largest):
    cpu(CPUS["a CPU with AMX"])
    clock, products = computer(flops, "bfloat16")
    assert hardware.measure_peak("bfloat16") == pytest.approx(flops)
    assert max(products) == largest and len(products) == 4 * len(set(products))
    assert clock[0] < max(hardware.PEAK_SECONDS, 4.1 * 2 * 512**3 / flops)


def test_peak_without_instructions_is_measured_in_float32(computer, cpu):
    cpu(CPUS["a CPU with neither"])
    computer(1e12, "float32")
    assert hardware.measure_peak("bfloat16") == pytest.approx(1e12)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_peak_of_this_device_is_plausible(precision):
    assert 1e8 < hardware.measure_peak(precision) < 1e17


def test_peak_of_smaller_products_counts_when_memory_is_short(computer, cpu, monkeypatch):
    cpu(CPUS["a CPU with AMX"])
    _, products = computer(1e15, "float32")
    cast = tf.cast

    def scarce(x, kind):
        if x.shape[0] > 1024:
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return cast(x, kind)

    monkeypatch.setattr(tf, "cast", scarce)
    assert hardware.measure_peak("float32") == pytest.approx(1e15) and max(products) == 1024


@pytest.mark.parametrize("value, bfloat16", [("0", False), ("false", False), ("1", True)])
def test_switched_off_instructions_do_not_count(cpu, monkeypatch, value, bfloat16):
    cpu(CPUS["a CPU with AMX"])
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", value)
    assert hardware.has_instructions_for("bfloat16") == bfloat16
    assert hardware.best_precision() == ("bfloat16" if bfloat16 else "float32")


def test_peak_memory_of_the_process():
    now = hardware.peak_memory()
    assert 1e7 < now < 1e13
    held = b"1" * 20_000_000
    assert hardware.peak_memory() >= now and held


def test_peak_memory_of_the_gpu_that_used_most(gpus):
    gpus(peaks=(3, 7, 5))
    assert hardware.peak_memory() == 7
