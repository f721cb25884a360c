"""Order of the images, augmentation, partners and calls."""

import collections
import itertools

import numpy as np
import pytest

from cyclegan.data.sampler import UnpairedSampler

PARTNERS = np.array([[0, 4], [2, 1], [5, 0], [6, 3]])


def order(sampler, domain, epoch, reshuffles=0):
    """Return the indices of the images of a domain in an epoch."""
    return sampler.image_index(domain, epoch, np.arange(sampler.epoch_size), reshuffles).tolist()


def together(sampler, epoch, reshuffles=0):
    """Return for each position of an epoch whether the images are partners."""
    return sampler.is_pair(epoch, np.arange(sampler.epoch_size), reshuffles).tolist()


def paired(counts, seed, partners=PARTNERS, share=1.0, size="min", batch=2):
    return UnpairedSampler(counts, batch, seed, size, partners, share)


@pytest.mark.parametrize("counts", [(5, 7), (7, 5), (5, 5), (3, 10), (1, 4)])
def test_all_images_are_used_without_replacement(counts):
    sampler = UnpairedSampler(counts, 2, seed=3)
    for domain, count in zip("XY", counts):
        epochs = -(-count // sampler.epoch_size)
        for cycle in range(4):
            used = set()
            for epoch in range(cycle * epochs, (cycle + 1) * epochs):
                indices = order(sampler, domain, epoch)
                assert len(set(indices)) == len(indices) == sampler.epoch_size
                used |= set(indices)
            assert used == set(range(count))


@pytest.mark.parametrize("size, pairs", [("max", 8), ("3", 3), ("6", 6), ("19", 19)])
@pytest.mark.parametrize("partners", [None, PARTNERS])
def test_an_epoch_of_any_size_uses_all_images_equally_often(size, pairs, partners):
    sampler = UnpairedSampler((8, 7), 2, 3, size, partners, 0.7)
    assert sampler.epoch_size == pairs and sampler.steps_left(0) == -(-pairs // 2)
    for domain, count in zip("XY", sampler.counts):
        uses, orders = collections.Counter(dict.fromkeys(range(count), 0)), set()
        for epoch in range(12):
            indices = order(sampler, domain, epoch)
            assert [int(sampler.image_index(domain, epoch, i)) for i in range(pairs)] == indices  # at any position
            uses.update(indices)
            partial = partners is not None and domain == "Y" and (epoch + 1) * pairs % count
            assert partial or max(uses.values()) - min(uses.values()) <= 1
            orders.add(tuple(indices))
        assert len(orders) == 12  # shuffled anew in each pass


def test_orders_and_crops_equal_recorded_values():
    sampler = UnpairedSampler((5, 9), 2, seed=7)
    assert order(sampler, "X", 3) == [3, 2, 0, 1, 4]
    assert order(sampler, "Y", 3, reshuffles=1) == [8, 7, 1, 2, 5]
    expected = [0.03743901283978379, 0.2992114080871908, 0.7645748023545369]
    np.testing.assert_array_equal(sampler.augmentation("Y", 3, 4), expected)
    for batch in (2, 3):  # the size of a batch does not matter
        sampler = paired((7, 9), 5, share=0.5, batch=batch)
        assert [order(sampler, "X", 3), order(sampler, "Y", 3)] == [[2, 5, 1, 4, 6, 3, 0], [1, 0, 6, 7, 3, 4, 2]]
        assert together(sampler, 3) == [True, True, False, False, True, False, False]
        assert order(sampler, "Y", 3, reshuffles=1) == [0, 6, 7, 4, 8, 2, 5]


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_calls_end_at_the_same_steps_wherever_they_begin(batch):
    """Check that interruptions do not change which steps a line of the log summarizes."""

    def ends(position):
        found = []
        for number in range(40):
            epoch, first, steps = sampler.call(number, 2, position, steps_per_call=4)
            assert 1 <= steps <= 4
            if epoch == 2:
                assert first == position + sum(found) * batch
                found.append(steps)
        return [-(-position // batch) + sum(found[: i + 1]) for i in range(len(found))]

    sampler = UnpairedSampler((23, 23), batch, seed=0)
    steps_per_epoch, whole = sampler.steps_left(0), ends(0)
    assert whole == [*range(4, steps_per_epoch, 4), steps_per_epoch]
    for step in range(steps_per_epoch):
        assert ends(step * batch) == [end for end in whole if end > step]
    assert sampler.call(len(whole), 2, 0, 4)[:2] == (3, 0)
    assert sampler.call(2 * len(whole) + 1, 2, 0, 4)[:2] == (4, 4 * batch)


def test_reshuffling_gives_another_order_of_the_same_images():
    sampler = UnpairedSampler((7, 9), 2, seed=1)
    orders = {reshuffles: [order(sampler, "Y", epoch, reshuffles) for epoch in (0, 1)] for reshuffles in (0, 1, 2)}
    assert len({str(indices) for indices in orders.values()}) == 3
    for first, second in orders.values():
        assert set(first) | set(second) == set(range(9))
    assert (sampler.augmentation("X", 0, 0, 0) != sampler.augmentation("X", 0, 0, 1)).any()


@pytest.mark.parametrize("counts", [(7, 11), (11, 7), (7, 7)])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_each_image_is_used_as_often_as_without_partners(counts, share):
    sampler, plain = paired(counts, 3, share=share), UnpairedSampler(counts, 2, 3)
    partners, larger = dict(PARTNERS.tolist()), int(counts[1] > counts[0])
    for epoch in range(6):
        indices, pairs = [order(sampler, domain, epoch) for domain in "XY"], together(sampler, epoch)
        expected = [order(plain, domain, epoch) for domain in "XY"]
        assert indices[larger] == expected[larger]
        assert sorted(indices[1 - larger]) == sorted(expected[1 - larger]) == list(range(7))
        for x, y, is_pair in zip(*indices, pairs):
            assert not is_pair or partners[x] == y
            assert share < 1 or is_pair == (indices[larger][indices[0].index(x)] in PARTNERS[:, larger])
        alone = [[i for i, is_pair in zip(each, pairs) if not is_pair] for each in indices]
        assert alone[1 - larger] == [i for i in expected[1 - larger] if i in alone[1 - larger]]  # they keep their order


@pytest.mark.parametrize("share", [0.1, 0.7])
def test_the_share_is_the_probability_of_each_pair_in_each_epoch(share):
    pairs = np.stack([np.arange(20), np.arange(20)[::-1]], axis=1)
    sampler = paired((25, 25), 0, pairs, share)
    drawn = np.zeros((200, 20), bool)
    for epoch in range(200):
        x = np.array(order(sampler, "X", epoch))
        drawn[epoch, x[np.array(together(sampler, epoch))]] = True
    assert drawn.mean() == pytest.approx(share, abs=0.02)
    assert np.abs(drawn.mean(axis=0) - share).max() < 0.12


def test_partners_have_the_same_crop_and_flip():
    sampler, plain = paired((7, 7), 1, share=0.6), UnpairedSampler((7, 7), 2, 1)
    seen = set()
    for epoch, position in itertools.product(range(5), range(7)):
        is_pair = bool(sampler.is_pair(epoch, position))
        same = np.array_equal(*(sampler.augmentation(domain, epoch, position) for domain in "XY"))
        expected = plain.augmentation("X" if is_pair else "Y", epoch, position)
        np.testing.assert_array_equal(sampler.augmentation("Y", epoch, position), expected)
        seen.add((is_pair, same))
    assert seen == {(True, True), (False, False)}
