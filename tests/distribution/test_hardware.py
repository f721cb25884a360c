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
def nothing_is_remembered():
    """What a CPU can do is looked up once per process: here, once per test."""
    hardware.is_native.cache_clear()
    yield
    hardware.is_native.cache_clear()


@pytest.fixture
def cpu(tmp_path, monkeypatch):
    """A function that puts a text in place of /proc/cpuinfo."""
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)

    def install(text):
        (tmp_path / "cpuinfo").write_text(text)
        monkeypatch.setattr(hardware, "CPU_INFO", tmp_path / "cpuinfo")

    return install


@pytest.fixture
def gpus(monkeypatch):
    """A function that makes TensorFlow list GPUs with these details, and peaks of memory in bytes."""

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
def test_the_best_precision_is_what_the_oldest_gpu_is_good_at(gpus, cpu, capabilities, precision):
    cpu(CPUS["a CPU with AMX"])  # which does not matter
    gpus(*({"compute_capability": capability} if capability else {} for capability in capabilities))
    assert hardware.best_precision() == precision
    assert hardware.accelerated() and hardware.is_native("bfloat16") and hardware.is_native("float16")


@pytest.mark.parametrize(
    "kind, best, bfloat16, float16",
    [
        ("a CPU with AMX", "bfloat16", True, False),
        ("a CPU with AVX512-BF16", "bfloat16", True, False),
        ("a CPU with both precisions", "bfloat16", True, True),
        ("a CPU with neither", "float32", False, False),
    ],
)
def test_the_best_precision_of_a_cpu_depends_on_its_instructions(cpu, kind, best, bfloat16, float16):
    cpu(CPUS[kind])
    assert hardware.best_precision() == best and not hardware.accelerated()
    assert hardware.is_native("bfloat16") == bfloat16 and hardware.is_native("float16") == float16
    assert hardware.is_native("float32")


def test_where_nothing_is_known_of_the_cpu_it_computes_in_float32(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "CPU_INFO", tmp_path / "no such file")
    assert hardware.best_precision() == "float32" and hardware.is_native("float32")
    assert not hardware.is_native("bfloat16") and not hardware.is_native("float16")


@pytest.fixture
def computer(monkeypatch):
    """A function that puts a computer of so many FLOP/s in a precision in place of the device, of which only products take time.

    It returns its clock in seconds, [now], and the sides of the matrices that it has multiplied, which grow while it does so.
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
def test_the_peak_is_looked_for_in_products_that_are_as_large_as_time_allows(computer, cpu, flops, largest):
    cpu(CPUS["a CPU with AMX"])
    clock, products = computer(flops, "bfloat16")
    assert hardware.peak("bfloat16") == pytest.approx(flops)
    assert max(products) == largest and len(products) == 4 * len(set(products))
    assert clock[0] < max(hardware.PEAK_SECONDS, 4.1 * 2 * 512**3 / flops)


def test_the_peak_in_a_precision_without_instructions_is_that_of_float32_which_stands_in_for_it(computer, cpu):
    cpu(CPUS["a CPU with neither"])
    computer(1e12, "float32")
    assert hardware.peak("bfloat16") == pytest.approx(1e12)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_peak_of_this_device_is_a_number_that_it_can_have(precision):
    assert 1e8 < hardware.peak(precision) < 1e17


def test_the_peak_of_smaller_products_counts_where_there_is_no_room_for_larger_ones(computer, cpu, monkeypatch):
    cpu(CPUS["a CPU with AMX"])
    _, products = computer(1e15, "float32")
    cast = tf.cast

    def scarce(x, kind):
        if x.shape[0] > 1024:
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return cast(x, kind)

    monkeypatch.setattr(tf, "cast", scarce)
    assert hardware.peak("float32") == pytest.approx(1e15) and max(products) == 1024


@pytest.mark.parametrize("value, bfloat16", [("0", False), ("false", False), ("1", True)])
def test_instructions_that_tensorflow_was_told_not_to_use_do_not_count(cpu, monkeypatch, value, bfloat16):
    cpu(CPUS["a CPU with AMX"])
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", value)
    assert hardware.is_native("bfloat16") == bfloat16
    assert hardware.best_precision() == ("bfloat16" if bfloat16 else "float32")


def test_the_pace_of_a_gpu_is_guessed_where_it_was_not_measured(gpus):
    assert hardware.pace(0.0) == 0.0 and hardware.pace(5.0) == 5.0
    gpus({})
    assert hardware.pace(0.0) == hardware.MODEST_PEAK and hardware.pace(5.0) == 5.0


def test_memory_is_what_the_process_has_used():
    now = hardware.memory()
    assert 1e7 < now < 1e13
    held = b"1" * 20_000_000
    assert hardware.memory() >= now and held


def test_memory_is_that_of_the_gpu_that_used_most(gpus):
    gpus(peaks=(3, 7, 5))
    assert hardware.memory() == 7
