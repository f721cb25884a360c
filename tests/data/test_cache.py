import concurrent.futures
import errno
import os
import pathlib
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from cyclegan.data import cache
from cyclegan.errors import TrainingError

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZE = 16


class Source:
    """Pictures of noise, by index, and which of them were decoded."""

    def __init__(self, size=SIZE):
        self.size = size
        self.decoded = []

    def images(self, count, store=None):
        return on_demand(self, count, self.size, store)

    def __call__(self, index):
        self.decoded.append(index)
        return self.picture(index)

    def picture(self, index):
        return np.random.default_rng(index).integers(0, 256, (self.size, self.size, 3)).astype(np.uint8)


def on_demand(decode, count, size, store=None):
    """Square pictures of 3 channels of 8 bits."""
    return cache.OnDemand(decode, (count, size, size, 3), np.full((count, 2), size), np.uint8, store)


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def said():
    return []


@pytest.fixture
def store(tmp_path, said, monkeypatch):
    monkeypatch.setattr(cache, "RESERVED", 0)  # however full the disk is that this is tested on
    return cache.Store(tmp_path, said.append)


def assert_right(images, source):
    assert len(images) == images.shape[0] and images.shape[1:] == (source.size, source.size, 3)
    for i in range(len(images)):
        assert images[i].dtype == np.uint8
        np.testing.assert_array_equal(images[i], source.picture(i))


def test_without_a_store_each_is_decoded_each_time(source):
    images = source.images(3)
    assert not source.decoded
    for _ in range(2):
        assert_right(images, source)
    assert sorted(source.decoded) == sorted(4 * [0, 1, 2])


def test_with_a_store_each_is_decoded_once_when_it_is_asked_for(source, store, said):
    images = source.images(5, store)
    for i in (3, np.int64(3), 1, -2, 3):
        np.testing.assert_array_equal(images[i], source.picture(i % 5))
    assert source.decoded == [3, 1]
    assert_right(images, source)
    assert sorted(source.decoded) == list(range(5)) and not said
    with pytest.raises(IndexError):
        images[5]


def test_domains_of_unlike_sizes_share_a_store(source, store):
    large = Source(SIZE + 5)
    one, other = source.images(4, store), large.images(4, store)
    for i in range(4):
        one[i], other[i]
    assert_right(one, source)
    assert_right(other, large)
    assert source.decoded == large.decoded == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_pictures_of_their_own_sizes_and_depths(store, dtype):
    sizes = np.array([(3, 5), (7, 2), (4, 4)])
    pictures = [
        np.random.default_rng(i).integers(0, np.iinfo(dtype).max, (*size, 5)).astype(dtype)
        for i, size in enumerate(sizes)
    ]
    calls = []
    images = cache.OnDemand(lambda i: calls.append(i) or pictures[i], (3, None, None, 5), sizes, dtype, store)
    assert images.dtype == dtype and images.shape == (3, None, None, 5)
    for i in (0, 2, 1, 1, 0, 2):
        assert images[i].dtype == dtype
        np.testing.assert_array_equal(images[i], pictures[i])
    assert calls == [0, 2, 1]


def test_eight_threads_decode_each_once_and_several_at_a_time(source, store):
    together = threading.Barrier(2, timeout=60)

    def decode(index):
        if index < 2:
            together.wait()  # breaks where decoding one keeps the others waiting
        return source(index)

    images = on_demand(decode, 50, SIZE, store)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda i: images[i % 50], range(400)))
    for i, picture in enumerate(read):
        np.testing.assert_array_equal(picture, source.picture(i % 50))
    assert sorted(source.decoded) == list(range(50))


@pytest.mark.parametrize("kept", [0, 2])
def test_a_full_disk_is_said_once_and_the_pictures_stay_right(source, store, said, tmp_path, monkeypatch, kept):
    real = os.pwrite
    room = [kept * SIZE * SIZE * 3 + 100]  # a part of the next one is written

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
    (text,) = said
    assert (
        f"can't be kept in {tmp_path} any more ([Errno 28] No space left on device)" in text and "--output_dir" in text
    )


def test_the_end_of_the_disk_is_left_to_the_checkpoints(source, store, said, monkeypatch):
    monkeypatch.setattr(cache, "RESERVED", 10**18)
    images = source.images(3, store)
    for _ in range(2):
        assert_right(images, source)
    assert len(said) == 1 and "GB are left free for checkpoints" in said[0]


def test_a_folder_that_is_not_there_is_a_full_disk(source, said, tmp_path):
    images = source.images(3, cache.Store(tmp_path / "gone", said.append))
    assert_right(images, source)
    assert len(said) == 1 and "No such file or directory" in said[0]


def test_what_can_not_be_read_back_is_decoded_again(source, store, said, monkeypatch):
    images = source.images(3, store)
    assert_right(images, source)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda file, length, at: real(file, length, at)[:-1])
    assert_right(images, source)
    assert not said

    def broken(file, length, at):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", broken)
    assert_right(images, source)
    assert len(said) == 1 and "Input/output error" in said[0]


def test_nothing_is_made_before_the_first_picture_and_nothing_is_left(source, store, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    images = source.images(3, store)
    store.folder = tmp_path / "run"  # made when training begins
    (tmp_path / "run").mkdir()
    assert_right(images, source)
    assert len(os.listdir("/proc/self/fd")) == before + 1 and not list((tmp_path / "run").iterdir())


KILLED = """
import os, pathlib, signal, sys
import numpy as np
from cyclegan.data.cache import Store
store = Store(sys.argv[1], print)
store.write(np.zeros((64, 64, 3), np.uint8))
print(store.read(0, 9) == bytes(9), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_leaves_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    assert done.returncode == -9 and done.stdout == b"True\n" and not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", [False, True])
def test_a_picture_that_does_not_decode_any_more_ends_training(source, store, keep):
    gone = {1: "b.png (gone)", 2: "c.png (gone too)"}

    def decode(index):
        if index in gone:
            raise ValueError(gone[index])
        return source(index)

    images = on_demand(decode, 3, SIZE, store if keep else None)
    images[0]
    assert images.failure is None
    for i in (1, 2, 1):
        text = re.escape(f"a picture does not decode any more: {gone[i]}; repair it or put it back")
        with pytest.raises(TrainingError, match=f"{text}.*then the same command resumes"):
            images[i]
    assert "b.png (gone)" in images.failure
    np.testing.assert_array_equal(images[0], source.picture(0))


def resident():
    return int(pathlib.Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) * 1024


def test_memory_does_not_grow_with_the_pictures(store):
    side = 128
    images = on_demand(lambda i: np.full((side, side, 3), i % 256, np.uint8), 1500, side, store)
    for i in range(50):
        images[i]
    before = resident()
    for _ in range(2):
        assert all(images[i][-1, -1, -1] == i % 256 for i in range(len(images)))
    assert resident() - before < 15e6  # of 74 MB that were written and read
