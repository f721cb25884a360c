"""Training images of both domains that have the same name, and so show the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cyclegan.data import folder_source
from cyclegan.errors import UserError, printable
from cyclegan.images.geometry import format_size

SPLITS = ("trainA", "trainB")


def find_pairs(names: Mapping[str, Sequence[str]], sizes: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the pairs: images whose paths below trainA and trainB are equal but for the extension.

    Args:
        names: Names of the images, by split.
        sizes: Heights and widths in pixels before the crop, int [N, 2], by split.

    Returns:
        Indices in trainA and in trainB, int64 [number of pairs, 2], in the order of trainA.

    Raises:
        UserError: There are no pairs; a name is not unique; or the images of a pair differ in size.
    """
    found: list[dict[str, list[int]]] = [{}, {}]
    for split, indices in zip(SPLITS, found):
        for index, name in enumerate(names[split]):
            indices.setdefault(_stem(name, split), []).append(index)
    common = [stem for stem in found[0] if stem in found[1]]
    if not common:
        examples = " and ".join(printable(names[split][0]) for split in SPLITS)
        raise UserError(
            f"--paired_names: no image of trainA has the name of an image of trainB, for example {examples}; expected equal names"
            " for pairs, such as trainA/1.png and trainB/1.jpg"
        )
    for split, indices in zip(SPLITS, found):
        for several in (indices[stem] for stem in common if len(indices[stem]) > 1):
            raise UserError(
                f"--paired_names: {' and '.join(printable(names[split][i]) for i in several[:2])} have the same name; expected"
                " one image of a name in each folder"
            )
    pairs = np.array([[indices[stem][0] for indices in found] for stem in common])
    x_sizes, y_sizes = (sizes[split][pairs[:, domain]] for domain, split in enumerate(SPLITS))
    for row in np.flatnonzero((x_sizes != y_sizes).any(axis=1)):
        both = (
            f"{printable(names[split][i])} ({format_size(sizes[split][i])})" for split, i in zip(SPLITS, pairs[row])
        )
        raise UserError(
            f"--paired_names: {' and '.join(both)} differ in size; expected equal sizes, because both get the same crop: use"
            " --preprocess resize_and_crop"
        )
    return pairs


def _stem(name: str, split: str) -> str:
    """Return the path below the folder of a split without the extension; of TFDS's names, the index."""
    return folder_source.stem(name.partition(split)[2])
