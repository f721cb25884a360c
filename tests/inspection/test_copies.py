import tracemalloc

import numpy as np
import pytest

from cyclegan.inspection import copies


def near_groups(hashes, colors=None, miniatures=None):
    """Return the groups; colors and miniatures are equal if not given."""
    same = np.zeros((len(hashes), 1), np.uint8)
    return copies.near_groups(hashes, same if colors is None else colors, 8, same if miniatures is None else miniatures)


def flip_bits(value, *bits):
    """Return a hash with other bits."""
    return np.uint64(int(value) ^ sum(1 << bit for bit in bits))


def test_equal_keys_are_grouped_in_order():
    assert copies.equal_groups(np.array([5, 3, 9, 3, 5, 5], np.uint64)) == [[0, 4, 5], [1, 3]]
    assert copies.equal_groups(np.zeros(0, np.uint64)) == []


def test_hashes_that_differ_in_up_to_four_bits_are_near():
    base = np.random.default_rng(0).integers(0, 2**64, 3, np.uint64, endpoint=False)
    hashes = np.array([*base, flip_bits(base[1], 0, 20, 40, 60), flip_bits(base[2], 1, 21, 41, 61, 62)])
    assert near_groups(hashes) == [[1, 3]]
    assert near_groups(hashes, np.array([[0, 0, 0, 9, 0]]).T) == []
    assert near_groups(hashes[:1]) == near_groups(hashes[:0]) == []


def test_pixels_differ_little_compared_to_the_contrast():
    miniatures = np.array([[0, 100], [10, 100], [0, 120], [90, 92], [92, 94], [90, 95]], np.uint8)
    hashes = np.zeros(6, np.uint64)
    assert near_groups(hashes[:3], miniatures=miniatures[:3]) == [[0, 1, 2]]  # 5 and 10 of a deviation of 45 to 60
    assert near_groups(hashes[3:], miniatures=miniatures[3:]) == []  # 1.5 and 2 of a deviation of 1 to 2.5


def test_miniatures_are_compared_in_blocks():
    """All hashes are equal, so every offset has about as many pairs as there are images; every second image is alike."""
    count, size = 5 * copies.BLOCK + 3, 64
    miniatures = np.random.default_rng(0).integers(0, 256, (count, size)).astype(np.uint8)
    miniatures[::2] = miniatures[0]
    pairs = np.stack([np.arange(count - 2), np.arange(2, count)])
    tracemalloc.start()
    similar = copies._have_similar_pixels(miniatures, pairs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(similar, np.arange(count - 2) % 2 == 0)
    assert peak < 2 * count * size * 4  # bytes of all pairs as float32


def test_chains_are_one_group():
    steps = [np.uint64(0)]
    for bit in range(0, 60, 10):
        steps.append(flip_bits(steps[-1], bit, bit + 1, bit + 2))
    assert near_groups(np.array(steps)) == [[*range(7)]]


@pytest.mark.parametrize("count", [300])
def test_all_pairs_are_found(count):
    rng = np.random.default_rng(1)
    hashes = rng.integers(0, 2**64, count, np.uint64, endpoint=False)
    bits = [rng.choice(64, copies.MAX_DISTANCE, replace=False).tolist() for _ in range(count)]
    other = np.array([flip_bits(value, *part) for value, part in zip(hashes, bits)])
    groups = near_groups(np.concatenate([hashes, other]))
    assert groups == [[i, count + i] for i in range(count)]


@pytest.mark.parametrize("between, groups", [(copies.MAX_NEIGHBORS - 1, [[0, 1]]), (copies.MAX_NEIGHBORS, [])])
def test_a_hash_is_compared_with_the_next_ones_of_a_band(between, groups):
    first = np.uint64(0)
    last = flip_bits(first, 51, 33, 23, 3)  # agrees in the first band only, and lies behind the others there
    others = np.random.default_rng(2).integers(1, 2**51, between, np.uint64)
    hashes = np.array([first, last, *others])
    assert near_groups(hashes) == groups


def test_many_equal_hashes_are_one_group():
    assert near_groups(np.zeros(1000, np.uint64)) == [[*range(1000)]]
