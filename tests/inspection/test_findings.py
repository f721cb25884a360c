import numpy as np
import pytest

from cyclegan.config import Config
from cyclegan.inspection import findings
from cyclegan.inspection.findings import (
    BOTH_DOMAINS,
    CONSTANT,
    DUPLICATES,
    SMALL,
    TRAINING_AND_TEST,
    UNEVEN_DOMAINS,
    Finding,
)

TRAIN_A, TRAIN_B, TEST_A, TEST_B = range(4)


@pytest.mark.parametrize(
    "groups, text",
    [
        ([], "a note"),
        ([[7]], "1 image"),
        ([[7], [9]], "2 images"),
        ([[7, 9]], "2 images in 1 group"),
        ([[0, 1], [2, 3, 4]], "5 images in 2 groups"),
    ],
)
def test_images_and_groups_are_counted(groups, text):
    assert Finding(DUPLICATES, groups, note="a note").count == text


def test_each_image_is_a_group():
    finding = findings.of_images(CONSTANT, np.array([3, 5]), {5: "gray"})
    assert (finding.kind, finding.groups, len(finding)) == (CONSTANT, [[3], [5]], 2)
    assert finding.details == {5: "gray"}


def groups_of(groups, splits):
    return {each.kind: each.groups for each in findings.of_copies(DUPLICATES, groups, np.array(splits))}


def test_copies_are_found_for_each_reason():
    splits = [TRAIN_A, TRAIN_A, TRAIN_B, TEST_A, TEST_B]
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


def test_images_may_be_enlarged_one_and_a_half_times():
    data = Config.from_settings(image_size=60, load_size=72).data
    sizes = np.array([[48, 48], [48, 47], [40, 40], [99, 39], [10, 10]])
    splits = np.array([TRAIN_A, TRAIN_B, TEST_A, TEST_B, TEST_B])
    finding = findings.of_sizes(data, 4, sizes, splits, np.arange(4))  # the last one is not to be looked at
    # Training images become 72 pixels wide and high, test images 60.
    assert finding.kind == SMALL and finding.groups == [[1], [3]]
    assert finding.details == {1: "47 x 48 pixels", 3: "39 x 99 pixels"}
