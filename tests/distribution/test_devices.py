"""Devices of this machine: strategies over them, what they can, and how fast they are."""

import os
import types

import pytest
import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.distribution.strategy import explain_unseen_gpus, make_strategy, select_gpus
from cyclegan.errors import UserError

NEITHER = "flags : fpu avx2 avx512f my_amx_bf16_not\n"
AMX = "flags\t\t: fpu avx512f amx_bf16 amx_tile\n"


def test_strategies_have_the_requested_replicas(strategies):
    assert {n: strategy.num_replicas_in_sync for n, strategy in strategies.items()} == {1: 1, 2: 2, 3: 3}
    assert make_strategy().num_replicas_in_sync == 1
    assert isinstance(make_strategy(kind="one"), tf.distribute.OneDeviceStrategy)


@pytest.mark.parametrize(
    "devices, kind, text",
    [
        (9, "mirrored", "--devices 9: TensorFlow has started with 8 CPU devices"),
        (100000, "mirrored", "--devices 100000: without a GPU, expected at most 64 logical CPU devices"),
        (2, "one", "--devices 2: expected no such flag, or 1, with --strategy one"),
        (8, "tpu", "--devices 8: expected no such flag: all cores are used"),
        (None, "tpu", r"--strategy tpu: no TPU local \(.+\): expected TensorFlow with libtpu"),
    ],
)
def test_devices_that_do_not_exist_are_refused(devices, kind, text, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(UserError, match=text):
        make_strategy(devices, kind)


@pytest.fixture
def three_gpus(monkeypatch):
    """Make TensorFlow list three GPUs; return what is called for them."""
    calls = []
    monkeypatch.setenv("TF_GPU_THREAD_MODE", "")  # restores it at the end
    monkeypatch.delenv("TF_GPU_THREAD_MODE")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["gpu 0", "gpu 1", "gpu 2"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda devices, kind: calls.append((devices, kind)))
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, on: calls.append((gpu, on)))
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda devices: devices)
    return calls


def test_the_first_gpus_are_used(three_gpus):
    assert make_strategy(2) == ["GPU:0", "GPU:1"]
    assert three_gpus == [(["gpu 0", "gpu 1"], "GPU"), ("gpu 0", True), ("gpu 1", True)]
    assert make_strategy() == ["GPU:0", "GPU:1", "GPU:2"]


def test_more_gpus_than_present_are_refused(three_gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6")
    with pytest.raises(UserError, match=r"--devices 4: TensorFlow sees 3 GPUs \(CUDA_VISIBLE_DEVICES=3,5,6\)"):
        make_strategy(4)


@pytest.mark.parametrize("before, devices, after", [(None, 1, None), (None, 2, "gpu_private"), ("global", 2, "global")])
def test_several_gpus_launch_kernels_in_threads_of_their_own(three_gpus, monkeypatch, before, devices, after):
    if before:
        monkeypatch.setenv("TF_GPU_THREAD_MODE", before)
    select_gpus(devices)
    assert os.environ.get("TF_GPU_THREAD_MODE") == after


@pytest.mark.parametrize(
    "script, visible, text",
    [
        ('echo "GPU 0: NVIDIA A100 (UUID: GPU-1)"; echo "GPU 1: A100 (UUID: GPU-2)"', "0", "2 GPU(s) (NVIDIA A100)"),
        ('echo "GPU 0: NVIDIA A100 (UUID: GPU-1)"', "", None),
        ('echo "GPU 0: NVIDIA A100 (UUID: GPU-1)"', "-1", None),
        (
            "echo 'No devices were found'",
            "0,1",
            "CUDA_VISIBLE_DEVICES=0,1, but there is no GPU to see: training runs on",
        ),
        ("echo 'GPU 0: half'; exit 9", "0", "CUDA_VISIBLE_DEVICES=0, but there is no GPU to see: training runs on"),
        ("exit 9", "-1", None),
    ],
)
def test_gpus_that_tensorflow_does_not_see_are_explained(tmp_path, monkeypatch, script, visible, text):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = explain_unseen_gpus()
    if text is None:
        assert found is None
    else:
        assert text in found
        assert found.endswith((f"-m pip install 'tensorflow[and-cuda]=={tf.__version__}'", "training runs on the CPU"))


@pytest.fixture
def cpu(tmp_path, monkeypatch):
    """Return a function that replaces /proc/cpuinfo by a text."""
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    hardware._words_of_cpu.cache_clear()

    def install(text):
        (tmp_path / "cpuinfo").write_text(text)
        monkeypatch.setattr(hardware, "CPU_INFO", tmp_path / "cpuinfo")

    yield install
    hardware._words_of_cpu.cache_clear()


@pytest.fixture
def gpus(monkeypatch):
    """Return a function that makes TensorFlow list GPUs of these compute capabilities."""

    def install(*capabilities):
        named = {f"GPU:{i}": capability for i, capability in enumerate(capabilities)}
        devices = [types.SimpleNamespace(name=f"/device:{name}") for name in named]
        for name in ("get_visible_devices", "list_logical_devices"):
            monkeypatch.setattr(tf.config, name, lambda kind: devices if kind == "GPU" else [])
        details = {
            gpu.name: {"compute_capability": named[gpu.name[8:]]} if named[gpu.name[8:]] else {} for gpu in devices
        }
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details[gpu.name])
        memory = {name: {"current": 1, "peak": 3 + i} for i, name in enumerate(named)}
        monkeypatch.setattr(tf.config.experimental, "get_memory_info", memory.__getitem__)

    return install


@pytest.mark.parametrize(
    "capabilities, precision",
    [
        ([(7, 5)], "float32"),
        ([(8, 0)], "bfloat16"),
        ([(8, 6), (7, 5)], "float32"),
        ([(9, 0), None], "float32"),
    ],
    ids=str,
)
def test_best_precision_of_the_oldest_gpu(gpus, cpu, capabilities, precision):
    cpu(AMX)  # a GPU decides
    gpus(*capabilities)
    assert hardware.best_precision() == precision
    assert hardware.has_accelerator() and hardware.has_instructions_for("float16")


@pytest.mark.parametrize(
    "info, onednn, best, float16",
    [
        (AMX, "1", "bfloat16", False),
        ("flags : amx_bf16 avx512_fp16\n", "1", "bfloat16", True),
        (NEITHER, "1", "float32", False),
        (AMX, "0", "float32", False),
    ],
)
def test_best_precision_of_a_cpu(cpu, monkeypatch, info, onednn, best, float16):
    cpu(info)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", onednn)
    assert hardware.best_precision() == best and not hardware.has_accelerator()
    assert hardware.has_instructions_for("float16") == float16 and hardware.has_instructions_for("float32")


@pytest.mark.parametrize(
    "precision, capabilities, is_on, expected",
    [
        ("float32", [(8, 0), (9, 0)], True, True),
        ("float32", [(8, 0)], False, False),
        ("bfloat16", [(8, 0)], True, False),
        ("float32", [], True, False),
    ],
)
def test_tf32_needs_new_gpus_and_float32(gpus, monkeypatch, precision, capabilities, is_on, expected):
    gpus(*capabilities)
    monkeypatch.setattr(tf.config.experimental, "tensor_float_32_execution_enabled", lambda: is_on)
    assert hardware.multiplies_in_tf32(precision) == expected
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")  # the libraries of CUDA read this variable
    assert not hardware.multiplies_in_tf32(precision)


def test_peak_of_this_device_is_plausible():
    assert 1e8 < hardware.measure_peak("float32") < 1e17


def test_peak_memory(gpus):
    assert 1e7 < hardware.peak_memory() < 1e13  # of this process
    gpus((8, 0), (8, 0))
    assert hardware.peak_memory() == 4  # of the GPU that used most
