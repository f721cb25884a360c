"""Stores of decoded images."""

import errno
import os
import pathlib
import subprocess
import sys

import pytest

from cyclegan.data import cache
from tests.data.noise_source import SIZE, assert_right

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kept", [0, 2])
def test_a_full_disk_is_logged_once_and_the_images_stay_right(source, store, caplog, tmp_path, monkeypatch, kept):
    real = os.pwrite
    room = [kept * SIZE * SIZE * 3 + 100]  # the next image is written in part

    def pwrite(file, data, at):
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(file, data[: room[0]], at)
        room[0] -= written
        return written

    monkeypatch.setattr(os, "pwrite", pwrite)
    images = source.images(6, store)
    for _ in range(3):
        assert_right(images, source)
    assert [source.decoded.count(i) for i in range(6)] == [1] * kept + [6] * (6 - kept)
    (text,) = caplog.messages
    assert (
        f"cannot be kept in {tmp_path} any more ([Errno 28] No space left on device)" in text and "--output_dir" in text
    )


def test_the_end_of_the_disk_is_left_to_checkpoints(source, store, caplog, monkeypatch):
    monkeypatch.setattr(cache, "RESERVED_BYTES", 10**18)
    images = source.images(3, store)
    for _ in range(2):
        assert_right(images, source)
    assert len(caplog.messages) == 1 and "GB are left free for checkpoints" in caplog.text


def test_a_missing_folder_is_a_full_disk(source, caplog, tmp_path):
    images = source.images(3, cache.DiskStore(tmp_path / "gone"))
    assert_right(images, source)
    assert len(caplog.messages) == 1 and "No such file or directory" in caplog.text


def test_images_that_cannot_be_read_back_are_decoded_again(source, store, caplog, monkeypatch):
    images = source.images(3, store)
    assert_right(images, source)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda file, length, at: real(file, length, at)[:-1])
    assert_right(images, source)
    assert not caplog.messages

    def broken(file, length, at):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", broken)
    assert_right(images, source)
    assert len(caplog.messages) == 1 and "Input/output error" in caplog.text


def test_the_file_is_made_with_the_first_image_and_leaves_nothing(source, store, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    images = source.images(3, store)
    store.folder = tmp_path / "run"  # training makes it before the first image
    (tmp_path / "run").mkdir()
    assert_right(images, source)
    assert len(os.listdir("/proc/self/fd")) == before + 1 and not list((tmp_path / "run").iterdir())


KILLED = """
import os, pathlib, signal, sys
import numpy as np
from cyclegan.data.cache import DiskStore
store = DiskStore(sys.argv[1])
store.write(np.zeros((64, 64, 3), np.uint8))
print(store.read(0, 9) == bytes(9), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    assert done.returncode == -9 and done.stdout == b"True\n" and not list(tmp_path.iterdir())
