import itertools

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.data.unpaired import UnpairedDataset, place
from cyclegan.images.value_range import to_float


def numbered(count, size=6):
    """Pictures that tell which they are and where a pixel comes from: (number, row, column)."""
    images = np.zeros((count, size, size, 3), np.uint8)
    images[..., 0] = np.arange(count)[:, None, None]
    images[..., 1] = np.arange(size)[:, None]
    images[..., 2] = np.arange(size)
    return images


def batches(pairs, calls, epoch=0, pair=0, draw=0):
    """The batches of some calls that begin with a pair of an epoch, as arrays."""
    found = []
    for number, parts in enumerate(pairs.dataset(epoch, pair, draw).take(calls).as_numpy_iterator()):
        assert all(len(part) == pairs.steps_per_call for part in parts)
        found += [tuple(part[step] for part in parts) for step in range(pairs.call(number, epoch, pair)[2])]
    return found


def rest(pairs, epoch, pair=0, draw=0):
    """The batches of an epoch from a pair on, as arrays."""
    calls = 0
    while pairs.call(calls, epoch, pair)[0] == epoch:
        calls += 1
    return batches(pairs, calls, epoch, pair, draw)


def test_steps_are_those_of_the_tutorial():
    train = UnpairedDataset(np.empty((1067, 1, 1, 3)), np.empty((1334, 1, 1, 3)), 6, (1, 1), 0)
    test = UnpairedDataset(np.empty((120, 1, 1, 3)), np.empty((140, 1, 1, 3)), 6, (1, 1))
    assert (train.steps, test.steps) == (178, 20)


@pytest.mark.parametrize("counts", [(5, 7), (7, 5), (5, 5), (3, 10), (1, 4)])
def test_every_picture_is_drawn_without_replacement_and_all_are_used(counts):
    pairs = UnpairedDataset(numbered(counts[0]), numbered(counts[1]), 2, (4, 4), seed=3)
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
    pairs = UnpairedDataset(numbered(4), numbered(9), 2, (6, 6), seed=0)
    seen = [image[0, 0, 0] for epoch in range(3) for _, y, _ in rest(pairs, epoch) for image in y]
    assert set(seen) == set(range(9))


def test_the_domains_are_paired_anew_every_epoch():
    pairs = UnpairedDataset(numbered(8), numbered(8), 2, (6, 6), seed=0)
    epochs = {tuple(zip(pairs.order(0, epoch), pairs.order(1, epoch))) for epoch in range(20)}
    orders = {tuple(pairs.order(0, epoch)) for epoch in range(20)}
    matches = {frozenset(epoch) for epoch in epochs}
    assert len(orders) == len(matches) == 20


def test_augmentation_differs_between_epochs_and_repeats_with_the_seed():
    def epoch(seed, number):
        pairs = UnpairedDataset(numbered(4, 12), numbered(4, 12), 1, (8, 8), seed)
        x = np.concatenate([x for x, _, _ in rest(pairs, number)])
        return x[np.argsort(x[:, 0, 0, 0])]  # by picture, so that only the augmentation can differ

    assert not np.array_equal(epoch(0, 0), epoch(0, 1))
    assert not np.array_equal(epoch(0, 0), epoch(1, 0))
    for number in (0, 1):
        np.testing.assert_array_equal(epoch(0, number), epoch(0, number))


def test_crops_and_flips_are_of_every_kind():
    pairs = UnpairedDataset(numbered(40, 7), numbered(40, 7), 1, (5, 5), seed=0)
    seen = set()
    for epoch, pair in itertools.product(range(2), range(40)):
        image = pairs.picture(0, epoch, pair)
        assert image.shape == (5, 5, 3)
        flipped = image[0, 0, 2] > image[0, -1, 2]
        seen.add((int(image[0, 0, 1]), int(image[..., 2].min()), bool(flipped)))
        np.testing.assert_array_equal(np.sort(image[0, :, 2]), image[..., 2].min() + np.arange(5))
    assert seen == {(top, left, flip) for top in range(3) for left in range(3) for flip in (False, True)}


def test_without_flips_the_crops_are_the_same():
    flipping, plain = (
        UnpairedDataset(numbered(20, 9), numbered(20, 9), 1, (5, 6), seed=0, flip=flip) for flip in (True, False)
    )
    flipped = 0
    for epoch, pair in itertools.product(range(2), range(20)):
        one, other = flipping.picture(1, epoch, pair), plain.picture(1, epoch, pair)
        assert (np.diff(other[0, :, 2].astype(int)) == 1).all()
        flipped += not np.array_equal(one, other)
        np.testing.assert_array_equal(one if np.array_equal(one, other) else one[:, ::-1], other)
    assert 10 < flipped < 30


class RaggedArray(list):
    """Pictures of their own sizes."""

    shape, dtype = (None, None, None, 3), np.dtype(np.uint16)


def test_each_picture_is_cropped_in_its_own_room():
    sizes = [(5, 7), (6, 9), (12, 7), (5, 8)]
    pictures = RaggedArray(
        np.stack(np.broadcast_arrays(i, *np.mgrid[:height, :width]), axis=-1).astype(np.uint16)
        for i, (height, width) in enumerate(sizes)
    )
    places = [set() for _ in sizes]
    pairs = UnpairedDataset(pictures, pictures, 2, (5, 7), seed=0, flip=False)
    for epoch in range(60):
        for x, _, weight in rest(pairs, epoch):
            assert x.dtype == np.uint16 and x.shape == (2, 5, 7, 3) and weight.all()
            for number, top, left in x[:, 0, 0]:
                places[number].add((int(top), int(left)))
    for (height, width), found in zip(sizes, places):
        assert found == set(itertools.product(range(height - 4), range(width - 6)))
    middles = [UnpairedDataset(pictures, pictures, 1, (5, 7)).picture(0, 0, i)[0, 0, 1:].tolist() for i in range(4)]
    assert middles == [[0, 0], [0, 1], [3, 0], [0, 0]]


def test_the_draw_does_not_depend_on_the_sizes():
    small, large = (UnpairedDataset(numbered(9, size), numbered(9, size), 1, (5, 5), seed=4) for size in (6, 20))
    np.testing.assert_array_equal(small.augmentation(0, 3), large.augmentation(0, 3))
    for pair in range(9):
        tops, lefts = zip(*(p.picture(0, 3, pair)[0, :, 1:].min(axis=0) for p in (small, large)))
        assert [int(top * 8) for top in tops[:1]] == [int(tops[1] >= 8) * 8]  # in the same half
        assert int(lefts[0]) == int(lefts[1] >= 8)


def test_testing_takes_the_pictures_as_they_are():
    pairs = UnpairedDataset(numbered(3), numbered(5), 2, (6, 6))
    for epoch in (0, 1):
        x, y, weight = (np.concatenate(parts) for parts in zip(*rest(pairs, epoch)))
        np.testing.assert_array_equal(x[:3], numbered(3))
        np.testing.assert_array_equal(y[:3], numbered(5)[:3])
        assert weight.tolist() == [1, 1, 1, 0]


def test_a_short_batch_is_filled_up_with_weight_0():
    pairs = UnpairedDataset(numbered(7), numbered(9), 3, (6, 6), seed=0)
    two_epochs = batches(pairs, 6)
    assert [weight.tolist() for _, _, weight in two_epochs] == 2 * [[1, 1, 1], [1, 1, 1], [1, 0, 0]]
    assert all(x.shape == y.shape == (3, 6, 6, 3) for x, y, _ in two_epochs)
    for epoch in (two_epochs[:3], two_epochs[3:]):
        real = [image[0, 0, 0] for x, _, weight in epoch for image, w in zip(x, weight) if w]
        assert sorted(real) == list(range(7))


def samples(parts):
    """The pairs of batches without the filling."""
    return [(x[i], y[i]) for x, y, weight in parts for i in range(len(x)) if weight[i]]


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_an_epoch_can_go_on_from_any_pair_with_any_batch(batch, steps):
    whole = samples(rest(UnpairedDataset(numbered(7, 8), numbered(9, 8), 2, (6, 6), seed=1), 4))
    pairs = UnpairedDataset(numbered(7, 8), numbered(9, 8), batch, (6, 6), seed=1, steps_per_call=steps)
    assert len(whole) == 7
    for first in range(7):
        for one, other in itertools.zip_longest(samples(rest(pairs, 4, first)), whole[first:]):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("first", [0, 1, 6])
def test_the_next_epochs_follow(first, steps):
    pairs = UnpairedDataset(numbered(7, 8), numbered(9, 8), 3, (6, 6), seed=1, steps_per_call=steps)
    expected = [*rest(pairs, 4, first), *rest(pairs, 5), *rest(pairs, 6)]
    for ones, others in zip(batches(pairs, 9, 4, first), expected):
        for one, other in zip(ones, others):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_calls_end_at_the_same_steps_wherever_they_began(batch):
    """So that a line about steps is about the same steps in a run that was interrupted."""

    def ends(pair):
        found = []
        for number in range(40):
            epoch, first, steps = pairs.call(number, 2, pair)
            assert 1 <= steps <= 4
            if epoch == 2:
                assert first == pair + sum(found) * batch
                found.append(steps)
        return [-(-pair // batch) + sum(found[: i + 1]) for i in range(len(found))]

    pairs = UnpairedDataset(numbered(23), numbered(23), batch, (4, 4), seed=0, steps_per_call=4)
    whole = ends(0)
    assert whole == [*range(4, pairs.steps, 4), pairs.steps]
    for step in range(pairs.steps):
        assert ends(step * batch) == [end for end in whole if end > step]
    assert pairs.call(len(whole), 2, 0)[:2] == (3, 0) and pairs.call(2 * len(whole) + 1, 2, 0)[:2] == (4, 4 * batch)


def test_another_draw_is_another_order_of_the_same_pictures():
    pairs = UnpairedDataset(numbered(7), numbered(9), 2, (4, 4), seed=1)
    orders = {draw: [pairs.order(1, epoch, draw).tolist() for epoch in (0, 1)] for draw in (0, 1, 2)}
    assert len({str(order) for order in orders.values()}) == 3
    for first, second in orders.values():
        assert set(first) | set(second) == set(range(9))
    assert (pairs.augmentation(0, 0, 0) != pairs.augmentation(0, 0, 1)).any()
    x, _, _ = rest(pairs, 1, 2, draw=2)[0]
    np.testing.assert_array_equal(x[:, 0, 0, 0], pairs.order(0, 1, 2)[2:4])


def test_the_pictures_of_a_batch_are_named():
    names = ([f"horse {i}" for i in range(3)], [f"zebra {i}" for i in range(5)])
    pairs = UnpairedDataset(numbered(3), numbered(5), 2, (6, 6), seed=0, names=names)
    for epoch, pair in ((0, 0), (3, 2)):
        x, y, weight = rest(pairs, epoch, pair)[0]
        real = int(weight.sum())
        expected = [f"horse {i}" for i in x[:real, 0, 0, 0]] + [f"zebra {i}" for i in y[:real, 0, 0, 0]]
        assert pairs.batch_names(epoch, pair) == expected
    assert len(pairs.batch_names(0, 2)) == 2  # the filling is not named


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_replicas_share_the_global_batch_in_order(strategies, replicas):
    pairs = UnpairedDataset(numbered(8), numbered(8), 6, (6, 6), seed=0)
    pairs.steps_per_call = 2
    strategy = strategies[replicas]
    distributed = pairs.distributed(strategy, 0)
    for wholes in pairs.dataset().take(3):
        parts = [strategy.experimental_local_results(part) for part in next(distributed)]
        for whole, shares in zip(wholes, parts):
            assert {share.shape[:2] for share in shares} == {(2, 6 // replicas)}
            np.testing.assert_array_equal(tf.concat(shares, 1), whole)


def test_batches_have_static_shapes():
    gray = numbered(8)[..., :1].astype(np.uint16)
    spec = UnpairedDataset(gray, numbered(8), 6, (4, 5), seed=0, steps_per_call=5).dataset(0).element_spec
    assert [tuple(part.shape) for part in spec] == [(5, 6, 4, 5, 1), (5, 6, 4, 5, 3), (5, 6)]
    assert [part.dtype for part in spec] == [tf.uint16, tf.uint8, tf.float32]


@pytest.mark.parametrize("dtype, most", [(np.uint8, 255), (np.uint16, 65535)])
def test_every_value_of_a_batch_becomes_a_number_from_minus_1_to_1(dtype, most):
    images = np.array([0, 1, most // 2, most - 1, most], dtype).reshape(1, 1, 5, 1)
    x, _, _ = next(iter(UnpairedDataset(images, images, 1, (1, 5)).dataset()))
    floats = to_float(x[0]).numpy().ravel()
    assert floats.dtype == np.float32
    np.testing.assert_allclose(floats, images.ravel() / (most / 2) - 1, atol=1e-7)
    assert len(set(floats)) == 5 and floats[0] == -1 and floats[-1] == 1


def test_a_place_after_the_last_sample_is_filled_with_the_first_ones_of_weight_0():
    numbers, weights = place(np.arange(8), 5)
    assert numbers.tolist() == [0, 1, 2, 3, 4, 0, 1, 2] and weights.tolist() == [1] * 5 + [0] * 3
    assert weights.dtype == np.float32 and place(5, 5) == (0, 0) and place(4, 5) == (4, 1)
