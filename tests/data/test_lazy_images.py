"""Images that are decoded on demand."""

import concurrent.futures
import re
import threading

import numpy as np
import pytest

from cyclegan.data.lazy_images import LazyImages
from cyclegan.errors import TrainingError
from tests.data.noise_source import SIZE, Source, assert_right, lazy_images, resident_bytes


def test_without_a_store_images_are_decoded_at_every_use(source):
    images = source.images(3)
    assert not source.decoded
    for _ in range(2):
        assert_right(images, source)
    assert sorted(source.decoded) == sorted(4 * [0, 1, 2])


def test_with_a_store_images_are_decoded_once(source, store, caplog):
    images = source.images(5, store)
    for i in (3, np.int64(3), 1, -2, 3):
        np.testing.assert_array_equal(images[i], source.image(i % 5))
    assert source.decoded == [3, 1]
    assert_right(images, source)
    assert sorted(source.decoded) == list(range(5)) and not caplog.records
    with pytest.raises(IndexError):
        images[5]


def test_domains_of_different_sizes_share_a_store(source, store):
    large = Source(SIZE + 5)
    one, other = source.images(4, store), large.images(4, store)
    for i in range(4):
        one[i], other[i]
    assert_right(one, source)
    assert_right(other, large)
    assert source.decoded == large.decoded == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_images_keep_their_sizes_and_depth(store, dtype):
    sizes = np.array([(3, 5), (7, 2), (4, 4)])
    arrays = [
        np.random.default_rng(i).integers(0, np.iinfo(dtype).max, (*size, 5)).astype(dtype)
        for i, size in enumerate(sizes)
    ]
    calls = []
    images = LazyImages(lambda i: calls.append(i) or arrays[i], (3, None, None, 5), sizes, dtype, store)
    assert images.dtype == dtype and images.shape == (3, None, None, 5)
    for i in (0, 2, 1, 1, 0, 2):
        assert images[i].dtype == dtype
        np.testing.assert_array_equal(images[i], arrays[i])
    assert calls == [0, 2, 1]


def test_threads_decode_each_image_once_and_several_at_a_time(source, store):
    together = threading.Barrier(2, timeout=60)

    def decode(index):
        if index < 2:
            together.wait()  # breaks if images are decoded one at a time
        return source(index)

    images = lazy_images(decode, 50, SIZE, store)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda i: images[i % 50], range(400)))
    for i, image in enumerate(read):
        np.testing.assert_array_equal(image, source.image(i % 50))
    assert sorted(source.decoded) == list(range(50))


@pytest.mark.parametrize("keep", [False, True])
def test_an_image_that_cannot_be_decoded_ends_training(source, store, keep):
    gone = {1: "b.png (gone)", 2: "c.png (gone too)"}

    def decode(index):
        if index in gone:
            raise ValueError(gone[index])
        return source(index)

    images = lazy_images(decode, 3, SIZE, store if keep else None)
    images[0]
    assert images.failure is None
    for i in (1, 2, 1):
        text = re.escape(f"an image cannot be decoded: {gone[i]}; repair it or put it back")
        with pytest.raises(TrainingError, match=f"{text}.*then the same command resumes"):
            images[i]
    assert "b.png (gone)" in images.failure
    np.testing.assert_array_equal(images[0], source.image(0))


def test_memory_does_not_grow_with_the_images(store):
    side = 128
    images = lazy_images(lambda i: np.full((side, side, 3), i % 256, np.uint8), 1500, side, store)
    for i in range(50):
        images[i]
    before = resident_bytes()
    for _ in range(2):
        assert all(images[i][-1, -1, -1] == i % 256 for i in range(len(images)))
    assert resident_bytes() - before < 15e6  # 74 MB are written and read
