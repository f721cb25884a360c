"""Batches: reading, augmentation, padding, distribution."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.data.unpaired import UnpairedDataset


def numbered(count, size=6):
    """Return images whose pixels name their origin: (number, row, column)."""
    images = np.zeros((count, size, size, 3), np.uint8)
    images[..., 0] = np.arange(count)[:, None, None]
    images[..., 1] = np.arange(size)[:, None]
    images[..., 2] = np.arange(size)
    return images


def batches(dataset, calls, epoch=0, position=0, reshuffles=0):
    """Return the batches of the first calls from a position on, as arrays."""
    found = []
    for number, parts in enumerate(dataset.tf_dataset(epoch, position, reshuffles).take(calls).as_numpy_iterator()):
        assert all(len(part) == dataset.steps_per_call for part in parts)
        found += [tuple(part[step] for part in parts) for step in range(dataset.call(number, epoch, position)[2])]
    return found


def rest(dataset, epoch, position=0, reshuffles=0):
    """Return the batches of an epoch from a position on, as arrays."""
    calls = 0
    while dataset.call(calls, epoch, position)[0] == epoch:
        calls += 1
    return batches(dataset, calls, epoch, position, reshuffles)


def test_all_crops_occur_flipped_and_not_flipped():
    dataset = UnpairedDataset(numbered(40, 7), numbered(40, 7), 1, (5, 5), seed=0)
    seen = set()
    for epoch, pair in itertools.product(range(2), range(40)):
        image = dataset.image("X", epoch, pair)
        assert image.shape == (5, 5, 3)
        flipped = image[0, 0, 2] > image[0, -1, 2]
        seen.add((int(image[0, 0, 1]), int(image[..., 2].min()), bool(flipped)))
        np.testing.assert_array_equal(np.sort(image[0, :, 2]), image[..., 2].min() + np.arange(5))
    assert seen == {(top, left, flip) for top in range(3) for left in range(3) for flip in (False, True)}


def test_other_sizes_from_an_epoch_on_keep_the_order():
    dataset, plain = (UnpairedDataset(numbered(9, 8), numbered(9, 8), 2, (5, 6), seed=0) for _ in range(2))
    dataset.set_later((numbered(9)[:, :5], numbered(9)[:, :5]), 2)
    for epoch in (1, 2):
        for mine, others in zip(rest(dataset, epoch), rest(plain, epoch)):
            assert all(np.array_equal(*pair) for pair in zip(mine, others)) == (epoch < 2)
            np.testing.assert_array_equal(mine[1][..., 0].max(axis=(1, 2)), others[1][..., 0].max(axis=(1, 2)))
    np.testing.assert_array_equal(rest(dataset, 2, 4)[0][0], rest(dataset, 2)[2][0])  # as after a resume


def test_no_flip_keeps_the_crops():
    flipping, plain = (
        UnpairedDataset(numbered(20, 9), numbered(20, 9), 1, (5, 6), seed=0, flip=flip) for flip in (True, False)
    )
    flipped = 0
    for epoch, pair in itertools.product(range(2), range(20)):
        one, other = flipping.image("Y", epoch, pair), plain.image("Y", epoch, pair)
        assert (np.diff(other[0, :, 2].astype(int)) == 1).all()
        flipped += not np.array_equal(one, other)
        np.testing.assert_array_equal(one if np.array_equal(one, other) else one[:, ::-1], other)
    assert 10 < flipped < 30


class RaggedArray(list):
    """Images of different sizes."""

    shape, dtype = (None, None, None, 3), np.dtype(np.uint16)


def test_crops_cover_images_of_different_sizes():
    sizes = [(5, 7), (6, 9), (12, 7), (5, 8)]
    images = RaggedArray(
        np.stack(np.broadcast_arrays(i, *np.mgrid[:height, :width]), axis=-1).astype(np.uint16)
        for i, (height, width) in enumerate(sizes)
    )
    places = [set() for _ in sizes]
    dataset = UnpairedDataset(images, images, 2, (5, 7), seed=0, flip=False)
    for epoch in range(60):
        for x, _, weight in rest(dataset, epoch):
            assert x.dtype == np.uint16 and x.shape == (2, 5, 7, 3) and weight.all()
            for number, top, left in x[:, 0, 0]:
                places[number].add((int(top), int(left)))
    for (height, width), found in zip(sizes, places):
        assert found == set(itertools.product(range(height - 4), range(width - 6)))
    middles = [UnpairedDataset(images, images, 1, (5, 7)).image("X", 0, i)[0, 0, 1:].tolist() for i in range(4)]
    assert middles == [[0, 0], [0, 1], [3, 0], [0, 0]]


def test_testing_does_not_augment():
    dataset = UnpairedDataset(numbered(3), numbered(5), 2, (6, 6))
    for epoch in (0, 1):
        x, y, weight = (np.concatenate(parts) for parts in zip(*rest(dataset, epoch)))
        np.testing.assert_array_equal(x[:3], numbered(3))
        np.testing.assert_array_equal(y[:3], numbered(5)[:3])
        assert weight.tolist() == [1, 1, 1, 0]


def test_a_short_batch_is_padded_with_weight_0():
    dataset = UnpairedDataset(numbered(7), numbered(9), 3, (6, 6), seed=0)
    two_epochs = batches(dataset, 6)
    assert [weight.tolist() for _, _, weight in two_epochs] == 2 * [[1, 1, 1], [1, 1, 1], [1, 0, 0]]
    assert all(x.shape == y.shape == (3, 6, 6, 3) for x, y, _ in two_epochs)
    for epoch in (two_epochs[:3], two_epochs[3:]):
        real = [image[0, 0, 0] for x, _, weight in epoch for image, w in zip(x, weight) if w]
        assert sorted(real) == list(range(7))


def samples(parts):
    """Return the pairs of batches without the padding."""
    return [(x[i], y[i]) for x, y, weight in parts for i in range(len(x)) if weight[i]]


@pytest.mark.sampled
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_an_epoch_resumes_at_any_pair_with_any_batch(batch, steps):
    whole = samples(rest(UnpairedDataset(numbered(7, 8), numbered(9, 8), 2, (6, 6), seed=1), 4))
    dataset = UnpairedDataset(numbered(7, 8), numbered(9, 8), batch, (6, 6), seed=1, steps_per_call=steps)
    assert len(whole) == 7
    for first in range(7):
        for one, other in itertools.zip_longest(samples(rest(dataset, 4, first)), whole[first:]):
            np.testing.assert_array_equal(one, other)


@pytest.mark.sampled
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("first", [0, 1, 6])
def test_batches_continue_into_the_next_epochs(first, steps):
    dataset = UnpairedDataset(numbered(7, 8), numbered(9, 8), 3, (6, 6), seed=1, steps_per_call=steps)
    expected = [*rest(dataset, 4, first), *rest(dataset, 5), *rest(dataset, 6)]
    for ones, others in zip(batches(dataset, 9, 4, first), expected):
        for one, other in zip(ones, others):
            np.testing.assert_array_equal(one, other)


def test_batch_names_are_the_images_without_padding():
    class Named(np.ndarray):
        pass

    horses, zebras = numbered(3).view(Named), numbered(5).view(Named)
    horses.names, zebras.names = [f"horse {i}" for i in range(3)], [f"zebra {i}" for i in range(5)]
    dataset = UnpairedDataset(horses, zebras, 2, (6, 6), seed=0)
    for epoch, pair in ((0, 0), (3, 2)):
        x, y, weight = rest(dataset, epoch, pair)[0]
        real = int(weight.sum())
        expected = [f"horse {i}" for i in x[:real, 0, 0, 0]] + [f"zebra {i}" for i in y[:real, 0, 0, 0]]
        assert dataset.batch_names(epoch, pair) == expected
    assert len(dataset.batch_names(0, 2)) == 2  # padding has no name


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_replicas_share_the_global_batch_in_order(strategies, replicas):
    dataset = UnpairedDataset(numbered(8), numbered(8), 6, (6, 6), seed=0)
    dataset.steps_per_call = 2
    strategy = strategies[replicas]
    distributed = dataset.distributed(strategy, 0)
    for wholes in dataset.tf_dataset().take(3):
        parts = [strategy.experimental_local_results(part) for part in next(distributed)]
        for whole, shares in zip(wholes, parts):
            assert {share.shape[:2] for share in shares} == {(2, 6 // replicas)}
            np.testing.assert_array_equal(tf.concat(shares, 1), whole)


def paired(counts=(7, 9), batch=2, steps=1, size=6, share=0.6, flip=True):
    """Return a dataset in which images of the same number are partners, but for the last one."""
    x, y = (numbered(count, size + 2) for count in counts)
    dataset = UnpairedDataset(x, y, batch, (size, size), seed=1, steps_per_call=steps, flip=flip)
    dataset.set_pairs(np.stack([np.arange(min(counts) - 1)] * 2, axis=1), share)
    return dataset


def test_partners_are_equal_in_number_crop_and_flip():
    alike = {0: [], 1: []}
    for epoch in range(8):
        for x, y, weight, is_pair in rest(paired(steps=4), epoch):
            for i in np.flatnonzero(weight):
                alike[is_pair[i]].append(np.array_equal(x[i], y[i]))
    assert all(alike[1]) and not any(alike[0]) and min(map(len, alike.values())) > 10
    everything = rest(paired((7, 7), share=1.0), 0)
    assert sum((weight * is_pair).sum() for *_, weight, is_pair in everything) == 6


def test_an_epoch_with_partners_resumes_at_any_pair():
    def flat(parts):
        return [(x[i], y[i], pair[i]) for x, y, weight, pair in parts for i in range(len(x)) if weight[i]]

    whole = flat(rest(paired(), 4))
    for first in (0, 2, 5):
        found = flat(rest(paired(batch=3, steps=2), 4, first))
        for one, other in itertools.zip_longest(found, whole[first:]):
            assert all(map(np.array_equal, one, other))


def test_batches_have_static_shapes():
    gray = numbered(8)[..., :1].astype(np.uint16)
    dataset = UnpairedDataset(gray, numbered(8), 6, (4, 5), seed=0, steps_per_call=5).tf_dataset(0)
    assert not dataset.options().autotune.enabled  # its thread takes up to a minute to end
    spec = dataset.element_spec
    assert [tuple(part.shape) for part in spec] == [(5, 6, 4, 5, 1), (5, 6, 4, 5, 3), (5, 6)]
    assert [part.dtype for part in spec] == [tf.uint16, tf.uint8, tf.float32]
    spec = paired(batch=6, steps=5).tf_dataset(0).element_spec
    assert tuple(spec[3].shape) == (5, 6) and spec[3].dtype == tf.float32
