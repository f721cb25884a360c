import numpy as np
import pytest
import tensorflow as tf

from cyclegan.data import Pairs


def numbered(count, size=6):
    """Pictures that tell which they are and where a pixel comes from: (number, row, column)."""
    images = np.zeros((count, size, size, 3), np.uint8)
    images[..., 0] = np.arange(count)[:, None, None]
    images[..., 1] = np.arange(size)[:, None]
    images[..., 2] = np.arange(size)
    return images


def test_steps_are_those_of_the_tutorial():
    train = Pairs(np.empty((1067, 1, 1, 3)), np.empty((1334, 1, 1, 3)), 6, 1, 0)
    test = Pairs(np.empty((120, 1, 1, 3)), np.empty((140, 1, 1, 3)), 6, 1)
    assert (train.steps, test.steps) == (178, 20)


@pytest.mark.parametrize("counts", [(5, 7), (7, 5), (5, 5), (3, 10), (1, 4)])
def test_every_picture_is_drawn_without_replacement_and_all_are_used(counts):
    pairs = Pairs(numbered(counts[0]), numbered(counts[1]), 2, 4, seed=3)
    for domain, count in enumerate(counts):
        serves = -(-count // pairs.pairs)
        for cycle in range(4):
            used = set()
            for epoch in range(cycle * serves, (cycle + 1) * serves):
                order = pairs.order(domain, epoch).tolist()
                assert len(set(order)) == len(order) == pairs.pairs
                used |= set(order)
            assert used == set(range(count))


def test_all_pictures_of_the_larger_domain_come_out_of_the_data_set():
    pairs = Pairs(numbered(4), numbered(9), 2, 6, seed=0)
    seen = [image[0, 0, 0] for _, y, _ in pairs.dataset(0, 3 * pairs.steps) for image in y.numpy()]
    assert set(seen) == set(range(9))


def test_the_domains_are_paired_anew_every_epoch():
    pairs = Pairs(numbered(8), numbered(8), 2, 6, seed=0)
    epochs = {tuple(zip(pairs.order(0, epoch), pairs.order(1, epoch))) for epoch in range(20)}
    orders = {tuple(pairs.order(0, epoch)) for epoch in range(20)}
    matches = {frozenset(epoch) for epoch in epochs}
    assert len(orders) == len(matches) == 20


def test_augmentation_differs_between_epochs_and_repeats_with_the_seed():
    def epoch(seed, number):
        pairs = Pairs(numbered(4, 12), numbered(4, 12), 1, 8, seed)
        x = np.concatenate([x.numpy() for x, _, _ in pairs.dataset(number * pairs.steps, pairs.steps)])
        return x[np.argsort(x[:, 0, 0, 0])]  # by picture, so that only the augmentation can differ

    assert not np.array_equal(epoch(0, 0), epoch(0, 1))
    assert not np.array_equal(epoch(0, 0), epoch(1, 0))
    for number in (0, 1):
        np.testing.assert_array_equal(epoch(0, number), epoch(0, number))


def test_crops_and_flips_are_of_every_kind():
    pairs = Pairs(numbered(40, 7), numbered(40, 7), 1, 5, seed=0)
    seen = set()
    for slot in range(80):
        image = pairs.picture(0, slot)
        assert image.shape == (5, 5, 3)
        flipped = image[0, 0, 2] > image[0, -1, 2]
        seen.add((int(image[0, 0, 1]), int(image[..., 2].min()), bool(flipped)))
        np.testing.assert_array_equal(np.sort(image[0, :, 2]), image[..., 2].min() + np.arange(5))
    assert seen == {(top, left, flip) for top in range(3) for left in range(3) for flip in (False, True)}


def test_testing_takes_the_pictures_as_they_are():
    pairs = Pairs(numbered(3), numbered(5), 2, 6)
    for epoch in (0, 1):
        x, y, weight = (np.concatenate(parts) for parts in zip(*pairs.dataset(epoch * 2, 2).as_numpy_iterator()))
        np.testing.assert_array_equal(x[:3], numbered(3))
        np.testing.assert_array_equal(y[:3], numbered(5)[:3])
        assert weight.tolist() == [1, 1, 1, 0]


def test_a_short_batch_is_filled_up_with_weight_0():
    pairs = Pairs(numbered(7), numbered(9), 3, 6, seed=0)
    batches = list(pairs.dataset(0, 6).as_numpy_iterator())
    assert [weight.tolist() for _, _, weight in batches] == 2 * [[1, 1, 1], [1, 1, 1], [1, 0, 0]]
    assert all(x.shape == y.shape == (3, 6, 6, 3) for x, y, _ in batches)
    for epoch in (batches[:3], batches[3:]):
        real = [image[0, 0, 0] for x, _, weight in epoch for image, w in zip(x, weight) if w]
        assert sorted(real) == list(range(7))


def test_the_data_set_can_begin_at_any_step():
    pairs = Pairs(numbered(7, 8), numbered(9, 8), 2, 6, seed=1)
    whole = list(pairs.dataset(0, 11).as_numpy_iterator())
    for first in (1, 4, 7):
        for late, early in zip(pairs.dataset(first, 11 - first).as_numpy_iterator(), whole[first:]):
            for one, other in zip(late, early):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_replicas_share_the_global_batch_in_order(strategies, replicas):
    pairs = Pairs(numbered(8), numbered(8), 6, 6, seed=0)
    strategy = strategies[replicas]
    batches = pairs.distributed(strategy, 0, 2)
    for x, y, weight in pairs.dataset(0, 2):
        parts = [strategy.experimental_local_results(part) for part in next(batches)]
        for whole, shares in zip((x, y, weight), parts):
            assert {share.shape[0] for share in shares} == {6 // replicas}
            np.testing.assert_array_equal(tf.concat(shares, 0), whole)


def test_batches_have_static_shapes():
    spec = Pairs(numbered(8), numbered(8), 6, 4, seed=0).dataset(0, 2).element_spec
    assert [tuple(part.shape) for part in spec] == [(6, 4, 4, 3), (6, 4, 4, 3), (6,)]
