"""Findings about a dataset: what each kind means and what to do about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cyclegan.config.data import DataConfig
from cyclegan.data.value_ranges import NarrowValues
from cyclegan.images import geometry

MUCH_ENLARGED = 1.5  # ratio of sides after and before resizing
UNEVEN = 2.0  # ratio of the numbers of training images


class Kind(NamedTuple):
    """Kind of finding.

    Attributes:
        title: Title, in the plural.
        meaning: Consequence for training.
        advice: What to do.
    """

    title: str
    meaning: str
    advice: str


UNREADABLE = Kind(
    "unreadable files",
    "They cannot be decoded. Training refuses them, or stops at the first one.",
    "Repair or remove them. For other bands set --channels_x and --channels_y, for other values --value_range_x and"
    " --value_range_y.",
)
WRONG_EXTENSION = Kind(
    "names that contradict the content",
    "Training reads them by their content, but other programs may not.",
    "Rename them.",
)
BOTH_DOMAINS = Kind(
    "images in both domains",
    "The same image, or nearly the same, is an example of X and of Y, so the discriminators learn a contradiction.",
    "Remove it from the domain to which it does not belong, unless the images are pairs (--paired_names).",
)
TRAINING_AND_TEST = Kind(
    "images in training and test",
    "The same image, or nearly the same, is trained on and held out, so scores and samples look too good.",
    "Remove it from one of the two.",
)
DUPLICATES = Kind(
    "duplicates",
    "They have the same pixels. Training sees this image more often than others.",
    "Keep one of each group.",
)
NEAR_DUPLICATES = Kind(
    "near duplicates",
    "They look alike, such as copies of other quality or size, or frames of a film, each like the next: there are fewer views than"
    " files.",
    "Keep one of each group.",
)
CONSTANT = Kind(
    "nearly constant images",
    "They show nothing that could be translated, and a discriminator recognizes them at once.",
    "Remove them, unless their values lie outside of a wrong value range.",
)
NARROW_VALUES = Kind(
    "values that fill a small part of their range",
    "The networks see little contrast.",
    "Set --value_range_x or --value_range_y to the lowest and the highest value, or to auto.",
)
MIXED = Kind(
    "gray images among colored ones, or the reverse",
    "The generators learn to remove color from some images, or to invent it.",
    "Remove them, or train on gray images with --channels_x 1 or --channels_y 1.",
)
SMALL = Kind(
    f"images that are enlarged more than {MUCH_ENLARGED:g} times",
    "They become blurred when they are resized for training, and the generators learn this blur.",
    "Remove them, or use a smaller --image_size and --load_size, or another --preprocess.",
)
UNEVEN_DOMAINS = Kind(
    "very different numbers of images",
    f"One domain has at least {UNEVEN:g} times as many training images as the other; by default, an epoch has as many pairs as"
    " the smaller one.",
    "Add images to the smaller domain if they are not varied enough; a small domain is soon learned by heart.",
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """Images of a dataset for which a kind of finding holds.

    Attributes:
        kind: The kind.
        groups: Indices of the images; images of a group belong together.
        details: Details of an image, by index.
        note: Details of the finding.
    """

    kind: Kind
    groups: Sequence[Sequence[int]]
    details: Mapping[int, str] = dataclasses.field(default_factory=dict)
    note: str = ""

    def __len__(self) -> int:
        """Return the number of images."""
        return sum(map(len, self.groups))

    @property
    def count(self) -> str:
        """Number of images and groups, as text."""
        if not self.groups:
            return self.note
        images = f"{len(self)} image{'s'[: len(self) > 1]}"
        if len(self.groups) == len(self):
            return images
        return f"{images} in {len(self.groups)} group{'s'[: len(self.groups) > 1]}"


def of_images(kind: Kind, indices: np.ndarray, details: Mapping[int, str] | None = None) -> Finding:
    """Return a finding of single images."""
    return Finding(kind, [[index] for index in indices.tolist()], details or {})


def of_values(narrow: Iterable[NarrowValues]) -> Finding:
    """Return the finding about value ranges."""
    return Finding(NARROW_VALUES, [], note="; ".join(map(str, narrow)))


def of_copies(kind: Kind, groups: Sequence[Sequence[int]], splits: np.ndarray) -> list[Finding]:
    """Return the findings of groups of images that are alike.

    A group is found for each reason: as a whole in both domains, in a domain in training and test, in a split several times.

    Args:
        kind: Kind of the groups that lie inside one split.
        groups: Indices of the images of each group.
        splits: Index of the split of each image: trainA, trainB, testA, testB.
    """
    found: dict[Kind, list[Sequence[int]]] = {BOTH_DOMAINS: [], TRAINING_AND_TEST: [], kind: []}
    for group in groups:
        by_split = [[index for index in group if splits[index] == split] for split in range(4)]
        domains = [by_split[0] + by_split[2], by_split[1] + by_split[3]]
        if all(domains):
            found[BOTH_DOMAINS].append(group)
        found[TRAINING_AND_TEST] += [sorted(part) for part, *both in zip(domains, by_split, by_split[2:]) if all(both)]
        found[kind] += [part for part in by_split if len(part) > 1]
    return [Finding(kind, part) for kind, part in found.items()]


def of_counts(splits: np.ndarray) -> Finding:
    """Return the finding about the numbers of training images; `splits` has the index of the split of each image."""
    few, many = sorted((np.count_nonzero(splits == split), f"train{'AB'[split]}") for split in (0, 1))
    uneven = many[0] >= max(1, UNEVEN * few[0])
    return Finding(UNEVEN_DOMAINS, [], note=f"{many[0]} in {many[1]}, {few[0]} in {few[1]}" if uneven else "")


def of_sizes(data: DataConfig, multiple: int, sizes: np.ndarray, splits: np.ndarray, indices: np.ndarray) -> Finding:
    """Return the finding about images that are blurred by resizing.

    Args:
        data: The data section of the configuration.
        multiple: Pixels by which the sides of the networks' input must be divisible.
        sizes: Heights and widths in pixels, [N, 2].
        splits: Index of the split of each image.
        indices: The images to look at, [K].
    """
    training, testing = (
        geometry.resized_sizes(data, multiple, sizes[indices], is_training) for is_training in (True, False)
    )
    resized = np.where(splits[indices, np.newaxis] < 2, training, testing)
    small = indices[(resized > MUCH_ENLARGED * sizes[indices]).any(axis=1)]
    return of_images(SMALL, small, {i: "{1} x {0} pixels".format(*sizes[i].tolist()) for i in small.tolist()})
