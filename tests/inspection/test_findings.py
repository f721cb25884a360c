import numpy as np
import pytest

from cyclegan.inspection import findings
from cyclegan.inspection.findings import BOTH_DOMAINS, DUPLICATES, TRAINING_AND_TEST, UNEVEN_DOMAINS

TRAIN_A, TRAIN_B, TEST_A, TEST_B = range(4)


def groups_of(groups, splits):
    return {each.kind: each.groups for each in findings.of_copies(DUPLICATES, groups, np.array(splits))}


def test_copies_are_found_for_each_reason():
    splits = [TRAIN_A, TRAIN_A, TRAIN_B, TEST_A, TEST_B, TRAIN_B]
    assert groups_of([[0, 1, 2, 3]], splits) == {
        BOTH_DOMAINS: [[0, 1, 2, 3]], TRAINING_AND_TEST: [[0, 1, 3]], DUPLICATES: [[0, 1]]
    }  # fmt: skip
    assert groups_of([[2, 4], [0, 1]], splits) == {
        BOTH_DOMAINS: [], TRAINING_AND_TEST: [[2, 4]], DUPLICATES: [[0, 1]]
    }  # fmt: skip
    # A copy that is held out from the other domain is in both domains, but in no training and test set of one.
    assert groups_of([[0, 4]], splits) == {BOTH_DOMAINS: [[0, 4]], TRAINING_AND_TEST: [], DUPLICATES: []}


@pytest.mark.parametrize(
    "in_a, in_b, note",
    [(2, 4, "4 in trainB, 2 in trainA"), (4, 2, "4 in trainA, 2 in trainB"), (2, 3, ""), (3, 5, ""), (0, 0, "")]
    + [(1, 0, "1 in trainA, 0 in trainB")],
)
def test_one_domain_may_have_less_than_twice_the_images(in_a, in_b, note):
    splits = np.array([TRAIN_A] * in_a + [TRAIN_B] * in_b + [TEST_A] * 9)
    finding = findings.of_counts(splits)
    assert (finding.kind, finding.note, finding.count) == (UNEVEN_DOMAINS, note, note)


def near_groups(hashes, colors=None, miniatures=None):
    """Return the groups; colors and miniatures are equal if not given."""
    same = np.zeros((len(hashes), 1), np.uint8)
    return findings.near_groups(
        hashes, same if colors is None else colors, 8, same if miniatures is None else miniatures
    )


def flip_bits(value, *bits):
    """Return a hash with other bits."""
    return np.uint64(int(value) ^ sum(1 << bit for bit in bits))


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


def test_chains_are_one_group():
    steps = [np.uint64(0)]
    for bit in range(0, 60, 10):
        steps.append(flip_bits(steps[-1], bit, bit + 1, bit + 2))
    assert near_groups(np.array(steps)) == [[*range(7)]]
