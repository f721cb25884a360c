"""Order of the images, augmentation and calls."""

import numpy as np
import pytest

from cyclegan.data.sampler import UnpairedSampler, sample_at


def order(sampler, domain, epoch, reshuffles=0):
    """Return the indices of the images of a domain in an epoch."""
    return sampler.image_index(domain, epoch, np.arange(sampler.epoch_size), reshuffles).tolist()


@pytest.mark.parametrize("counts, steps", [((1067, 1334), 178), ((120, 140), 20)])
def test_steps_of_horse2zebra_with_batches_of_6(counts, steps):
    assert UnpairedSampler(counts, 6).steps_left(0) == steps


@pytest.mark.parametrize("counts", [(5, 7), (7, 5), (5, 5), (3, 10), (1, 4)])
def test_all_images_are_used_without_replacement(counts):
    sampler = UnpairedSampler(counts, 2, seed=3)
    for domain, count in enumerate(counts):
        epochs = -(-count // sampler.epoch_size)
        for cycle in range(4):
            used = set()
            for epoch in range(cycle * epochs, (cycle + 1) * epochs):
                indices = order(sampler, domain, epoch)
                assert len(set(indices)) == len(indices) == sampler.epoch_size
                used |= set(indices)
            assert used == set(range(count))


def test_the_domains_are_paired_anew_every_epoch():
    sampler = UnpairedSampler((8, 8), 2, seed=0)
    epochs = {tuple(zip(order(sampler, 0, epoch), order(sampler, 1, epoch))) for epoch in range(20)}
    orders = {tuple(order(sampler, 0, epoch)) for epoch in range(20)}
    matches = {frozenset(epoch) for epoch in epochs}
    assert len(orders) == len(matches) == 20


def test_orders_and_crops_equal_recorded_values():
    sampler = UnpairedSampler((5, 9), 2, seed=7)
    assert order(sampler, 0, 3) == [3, 2, 0, 1, 4]
    assert order(sampler, 1, 3, reshuffles=1) == [8, 7, 1, 2, 5]
    expected = [0.03743901283978379, 0.2992114080871908, 0.7645748023545369]
    np.testing.assert_array_equal(sampler.augmentation(1, 3, 4), expected)


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
    orders = {reshuffles: [order(sampler, 1, epoch, reshuffles) for epoch in (0, 1)] for reshuffles in (0, 1, 2)}
    assert len({str(indices) for indices in orders.values()}) == 3
    for first, second in orders.values():
        assert set(first) | set(second) == set(range(9))
    assert (sampler.augmentation(0, 0, 0, 0) != sampler.augmentation(0, 0, 0, 1)).any()


def test_padding_repeats_the_first_samples_with_weight_0():
    indices, weights = sample_at(np.arange(8), 5)
    assert indices.tolist() == [0, 1, 2, 3, 4, 0, 1, 2] and weights.tolist() == [1] * 5 + [0] * 3
    assert weights.dtype == np.float32 and sample_at(5, 5) == (0, 0) and sample_at(4, 5) == (4, 1)
