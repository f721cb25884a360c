import os
import stat

import pytest
import tensorflow as tf

from cyclegan.distribution.gpus import explain_unseen_gpus, select_gpus
from cyclegan.distribution.strategy import make_strategy
from cyclegan.errors import UserError


def test_more_gpus_than_present_are_refused(monkeypatch):
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: ["gpu 0", "gpu 1"] if kind == "GPU" else ["cpu"]
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with pytest.raises(UserError, match=r"--devices 3: TensorFlow sees 2 GPUs \(CUDA_VISIBLE_DEVICES=3,5\)"):
        make_strategy(3)


def test_the_first_gpus_are_used(monkeypatch):
    calls = []
    monkeypatch.setenv("TF_GPU_THREAD_MODE", "global")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["gpu 0", "gpu 1", "gpu 2"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda devices, kind: calls.append((devices, kind)))
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, on: calls.append((gpu, on)))
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda devices: devices)
    assert make_strategy(2) == ["GPU:0", "GPU:1"]
    assert calls == [(["gpu 0", "gpu 1"], "GPU"), ("gpu 0", True), ("gpu 1", True)]
    assert make_strategy() == ["GPU:0", "GPU:1", "GPU:2"]


@pytest.mark.parametrize("before, devices, after", [(None, 1, None), (None, 2, "gpu_private"), ("global", 2, "global")])
def test_several_gpus_launch_kernels_in_threads_of_their_own(monkeypatch, before, devices, after):
    monkeypatch.setenv("TF_GPU_THREAD_MODE", before or "")  # restores it at the end
    if before is None:
        monkeypatch.delenv("TF_GPU_THREAD_MODE")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["gpu 0", "gpu 1"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda devices, kind: None)
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, on: None)
    assert len(select_gpus(devices)) == devices
    assert os.environ.get("TF_GPU_THREAD_MODE") == after


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Return a function that puts an nvidia-smi with a script of its own first on the PATH."""

    def install(script):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    return install


def test_unseen_gpus_are_explained_with_the_fix(nvidia_smi):
    nvidia_smi('echo "GPU 0: NVIDIA A100 (UUID: GPU-1)"; echo "GPU 1: NVIDIA A100 (UUID: GPU-2)"')
    text = explain_unseen_gpus(__file__)
    assert "2 GPU(s) (NVIDIA A100)" in text and text.endswith(f"-m pip install -r {__file__}")
    installed = explain_unseen_gpus("missing.txt")
    assert installed.endswith(f"-m pip install 'tensorflow[and-cuda]=={tf.__version__}'")


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_need_no_explanation(nvidia_smi, monkeypatch, hidden):
    nvidia_smi('echo "GPU 0: NVIDIA A100 (UUID: GPU-1)"')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert explain_unseen_gpus("requirements-gpu.txt") is None


@pytest.mark.parametrize("script", ["echo 'No devices were found'", "echo 'GPU 0: half'; exit 9"])
def test_nvidia_smi_without_gpus_needs_no_explanation(nvidia_smi, script):
    nvidia_smi(script)
    assert explain_unseen_gpus("requirements-gpu.txt") is None
