import itertools

import numpy as np
import pytest

from cyclegan.data.paired_sampler import PairedSampler
from cyclegan.data.sampler import UnpairedSampler

PAIRS = np.array([[0, 4], [2, 1], [5, 0], [6, 3]])


def order(sampler, epoch, reshuffles=0):
    """Return the indices of the images of X and of Y in an epoch, and where they are partners."""
    positions = np.arange(sampler.epoch_size)
    indices = (sampler.image_index(domain, epoch, positions, reshuffles).tolist() for domain in (0, 1))
    return [*indices, sampler.is_pair(epoch, positions, reshuffles).tolist()]


@pytest.mark.parametrize("counts", [(7, 11), (11, 7), (7, 7), (8, 7)])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_each_image_is_used_as_often_as_without_partners(counts, share):
    sampler, plain = PairedSampler(counts, 2, 3, PAIRS, share), UnpairedSampler(counts, 2, 3)
    partners, larger = dict(PAIRS.tolist()), int(counts[1] > counts[0])
    for epoch in range(6):
        *indices, together = order(sampler, epoch)
        expected = [plain.image_index(domain, epoch, np.arange(7)).tolist() for domain in (0, 1)]
        assert indices[larger] == expected[larger]
        assert sorted(indices[1 - larger]) == sorted(expected[1 - larger]) == list(range(7))
        for x, y, is_pair in zip(*indices, together):
            assert not is_pair or partners[x] == y
            assert share < 1 or is_pair == (indices[larger][indices[0].index(x)] in PAIRS[:, larger])
        alone = [[i for i, is_pair in zip(each, together) if not is_pair] for each in indices]
        assert alone[1 - larger] == [i for i in expected[1 - larger] if i in alone[1 - larger]]  # they keep their order


@pytest.mark.parametrize("share", [0.1, 0.7])
def test_the_share_is_the_probability_of_each_pair_in_each_epoch(share):
    pairs = np.stack([np.arange(20), np.arange(20)[::-1]], axis=1)
    sampler = PairedSampler((25, 25), 2, 0, pairs, share)
    drawn = np.zeros((200, 20), bool)
    for epoch in range(200):
        x, _, together = map(np.array, order(sampler, epoch))
        drawn[epoch, x[together.astype(bool)]] = True
    assert drawn.mean() == pytest.approx(share, abs=0.02)
    assert np.abs(drawn.mean(axis=0) - share).max() < 0.12


def test_partners_have_the_same_crop_and_flip():
    sampler, plain = PairedSampler((7, 7), 2, 1, PAIRS, 0.6), UnpairedSampler((7, 7), 2, 1)
    seen = set()
    for epoch, position in itertools.product(range(5), range(7)):
        is_pair = bool(sampler.is_pair(epoch, position))
        same = np.array_equal(*(sampler.augmentation(domain, epoch, position) for domain in (0, 1)))
        expected = plain.augmentation(0 if is_pair else 1, epoch, position)
        np.testing.assert_array_equal(sampler.augmentation(1, epoch, position), expected)
        np.testing.assert_array_equal(sampler.augmentation(0, epoch, position), plain.augmentation(0, epoch, position))
        seen.add((is_pair, same))
    assert seen == {(True, True), (False, False)}


def test_orders_equal_recorded_values():
    sampler = PairedSampler((7, 9), 2, 5, PAIRS, 0.5)
    recorded = [[2, 5, 1, 4, 6, 3, 0], [1, 0, 6, 7, 3, 4, 2], [True, True, False, False, True, False, False]]
    assert order(sampler, 3) == recorded
    assert order(sampler, 3, reshuffles=1) == [
        [2, 1, 4, 5, 0, 3, 6],
        [0, 6, 7, 4, 8, 2, 5],
        [False, False, False, False, False, False, False],
    ]
    again = PairedSampler((7, 9), 3, 5, PAIRS, 0.5)  # the size of a batch does not matter
    assert order(again, 3) == recorded
