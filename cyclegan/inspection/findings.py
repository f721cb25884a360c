"""Findings about a dataset: what each kind means, what to do about it, and the search for similar images."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cyclegan.config.data import DataConfig
from cyclegan.data.sources import SPLITS
from cyclegan.images import geometry

MUCH_STRETCHED = 2.0  # ratio of width / height after and before resizing
MUCH_ENLARGED = 1.5  # ratio of sides after and before resizing
COMMON = 0.1  # share of the images above which settings should change, rather than images
UNEVEN = 2.0  # ratio of the numbers of training images
MAX_DISTANCE = 4  # bits in which the hashes of near duplicates differ at most
MAX_ROUNDING, MAX_DIFFERENCE = 1.0, 0.2  # mean difference of pixels, in levels and as a share of the standard deviation
BITS = np.array([bin(number).count("1") for number in range(2**16)], np.uint8)  # that are set in 16 bits


class Kind(NamedTuple):
    """Kind of finding."""

    title: str  # in the plural
    meaning: str  # for training
    advice: str


UNREADABLE_FILES = Kind(
    "unreadable files",
    "They cannot be decoded. Training refuses them, or stops at the first one.",
    "Repair or remove them.",
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
    "Remove it from training or from test; without test folders, where names decide, keep one of each group.",
)
DUPLICATES = Kind(
    "duplicates",
    "They have the same pixels. Training sees this image more often than others.",
    "Keep one of each group.",
)
NEAR_DUPLICATES = Kind(
    "near duplicates",
    "They look alike, such as copies of other quality or size, or frames of a film: there are fewer views than files.",
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
    "Set the value range with this flag, or convert the files.",
)
MIXED = Kind(
    "gray images among colored ones, or the reverse",
    "The generators learn to remove color from some images, or to invent it.",
    "Remove them, or train on gray images with --channels_x 1 or --channels_y 1.",
)
TRANSPARENT = Kind(
    "transparent images among opaque ones",
    "They are blended with white, which the networks take for a part of the image.",
    "Give them another background, or remove them.",
)
SMALL = Kind(
    f"images that are enlarged more than {MUCH_ENLARGED:g} times",
    "They become blurred when they are resized for training, and the generators learn this blur.",
    "Remove them, or use a smaller --image_size and --load_size, or another --preprocess.",
)
STRETCHED = Kind(
    f"images of extreme shapes, which are stretched more than {MUCH_STRETCHED:g} times",
    "Resizing for training changes their shape, and the generators learn it so.",
    "Crop or remove them; or use --preprocess scale_width_and_crop for high, crop or --image_width for wide images.",
)
EMPTY_MASKS = Kind(
    "masks with nothing inside",
    "The networks change nothing in such an image, and learn nothing from it.",
    "Draw these masks anew (white is inside), or remove the images.",
)
REFUSED = Kind("images that training refuses", "It ends at its start, with this message.", "Do what the message says.")
UNEVEN_DOMAINS = Kind(
    "very different numbers of images",
    f"One domain has at least {UNEVEN:g} times the images of the other; by default, an epoch has the smaller number.",
    "Add images to the smaller domain if they are not varied enough; a small domain is soon learned by heart.",
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """Images of a dataset for which a kind of finding holds."""

    kind: Kind
    groups: Sequence[Sequence[int]]  # indices of the images; images of a group belong together
    details: Mapping[int, str] = dataclasses.field(default_factory=dict)  # of an image, by index
    note: str = ""  # details of the finding
    advice: str = ""  # instead of that of the kind

    def __len__(self) -> int:
        """Return the number of images."""
        return sum(map(len, self.groups))

    @property
    def count(self) -> str:
        """Number of images and groups, as text; or the note."""
        images, groups = len(self), len(self.groups)
        text = f"{images} image{'s'[: images > 1]}" if groups else self.note
        return text if groups == images else f"{text} in {groups} group{'s'[: groups > 1]}"

    def describe(self, names: Sequence[str], index: int) -> str:
        """Return the name of an image with its details."""
        return f"{names[index]} ({self.details[index]})" if index in self.details else names[index]


def of_images(kind: Kind, details: Mapping[int, str]) -> Finding:
    """Return a finding of single images with details, "" for none, by index."""
    return Finding(kind, [[index] for index in sorted(details)], {i: text for i, text in details.items() if text})


def of_unreadable(reasons: Mapping[int, str]) -> Finding:
    """Return the finding of unreadable files, given why, by index; its advice has the flags that the reasons name."""
    flags = ", ".join(sorted({flag for reason in reasons.values() for flag in re.findall(r"(?<![\w/])--\w+", reason)}))
    advice = f"Repair or remove them, or set the flags that the reasons name: {flags}." if flags else ""
    return dataclasses.replace(of_images(UNREADABLE_FILES, reasons), advice=advice)


def of_copies(kind: Kind, groups: Sequence[Sequence[int]], splits: np.ndarray) -> list[Finding]:
    """Return the findings of groups of images that are alike.

    There are three findings: groups with images in both domains, groups with images in training and test of a domain,
    and, as the finding of the given kind, groups in one split. `splits` has the index of the split of each image. A
    domain with one training image may have the same one for validation.
    """
    counts = [np.count_nonzero(splits == split) for split in range(2)]
    found: dict[Kind, list[Sequence[int]]] = {BOTH_DOMAINS: [], TRAINING_AND_TEST: [], kind: []}
    for group in groups:
        by_split = [[index for index in group if splits[index] == split] for split in range(4)]
        domains = [by_split[0] + by_split[2], by_split[1] + by_split[3]]
        if all(domains):
            found[BOTH_DOMAINS].append(group)
        for part, count, *both in zip(domains, counts, by_split, by_split[2:]):
            found[TRAINING_AND_TEST] += [sorted(part)] if all(both) and count > 1 else []
        found[kind] += [part for part in by_split if len(part) > 1]
    return [Finding(kind, part) for kind, part in found.items()]


def of_counts(splits: np.ndarray) -> Finding:
    """Return the finding about the numbers of training images; `splits` has the index of the split of each image."""
    few, many = sorted((np.count_nonzero(splits == split), SPLITS[split]) for split in (0, 1))
    uneven = many[0] >= max(1, UNEVEN * few[0])
    return Finding(UNEVEN_DOMAINS, [], note=f"{many[0]} in {many[1]}, {few[0]} in {few[1]}" if uneven else "")


def of_sizes(
    data: DataConfig, multiple: int, sizes: np.ndarray, splits: np.ndarray, indices: np.ndarray
) -> list[Finding]:
    """Return the findings about the images with these indices that resizing blurs or stretches."""
    sizes = sizes[indices]
    training, testing = (geometry.resized_sizes(data, multiple, sizes, part) for part in (True, False))
    resized = np.where(splits[indices, np.newaxis] < 2, training, testing)
    enlarged = (resized / sizes).max(axis=1) > MUCH_ENLARGED
    shapes = np.log(resized[:, 1] / resized[:, 0]) - np.log(sizes[:, 1] / sizes[:, 0])
    stretched = np.abs(shapes) > np.log(MUCH_STRETCHED)
    found = []
    for kind, chosen in ((SMALL, enlarged), (STRETCHED, stretched)):
        advice = ""
        if len(indices) and chosen.mean() > COMMON:
            side = int(np.quantile(sizes.min(axis=1), COMMON)) // multiple * multiple
            width = round(data.image_size * np.median(sizes[:, 1] / sizes[:, 0]) / multiple) * multiple
            flag = f"--image_size {side}" if kind is SMALL else f"--image_width {width}"
            advice = f"Use {flag}, which fits most images, remove the others, or use another --preprocess."
        details = {int(indices[i]): geometry.format_size(sizes[i]) for i in np.flatnonzero(chosen)}
        found.append(dataclasses.replace(of_images(kind, details), advice=advice))
    return found


def equal_groups(keys: np.ndarray) -> list[list[int]]:
    """Return the indices of each key that occurs more than once, in the order of their first indices."""
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    groups: dict[int, list[int]] = {}
    for index in np.flatnonzero(counts[inverse] > 1).tolist():
        groups.setdefault(int(inverse[index]), []).append(index)
    return list(groups.values())


def near_groups(
    hashes: np.ndarray, colors: np.ndarray, color_tolerance: float, miniatures: np.ndarray
) -> list[list[int]]:
    """Return groups of similar images, like `equal_groups`; an image and all that are similar to it are one group.

    Two images are similar if at most `MAX_DISTANCE` bits of their hashes, no color and few pixels of their miniatures
    differ much. Each image is compared with all later ones: 20,000 images take some seconds.

    Args:
        hashes: Perceptual hashes, uint64 [N].
        colors: Numbers that describe the colors of each image, [N, K].
        color_tolerance: Largest difference between these numbers.
        miniatures: The images in few pixels, uint8 [N, ...].
    """
    words = np.ascontiguousarray(hashes).view(np.uint16).reshape(-1, 4).T.copy()
    pixels = miniatures.reshape(len(miniatures), math.prod(miniatures.shape[1:])).astype(np.int16)
    contrast = pixels.std(axis=1)
    labels = np.arange(len(hashes))
    for i in range(len(hashes)):
        near = i + np.flatnonzero(sum(BITS[word[i:] ^ word[i]] for word in words) <= MAX_DISTANCE)
        near = near[labels[near] != labels[i]]
        near = near[(np.abs(colors[near] - colors[i]) <= color_tolerance).all(axis=1)]
        difference = np.abs(pixels[near] - pixels[i]).mean(axis=1)
        near = near[difference <= MAX_ROUNDING + MAX_DIFFERENCE * np.minimum(contrast[near], contrast[i])]
        if len(near):
            labels[np.isin(labels, labels[near])] = labels[i]
    return equal_groups(labels)
