"""Image files of a folder with trainA and trainB, and optionally testA and testB."""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Collection, Sequence
from typing import NoReturn

import numpy as np

from cyclegan.data.loading import ImageFiles
from cyclegan.errors import UserError, printable
from cyclegan.images import dicom_format, formats
from cyclegan.images.geometry import format_size

EXTENSIONS = tuple(itertools.chain.from_iterable(form.endings for form in formats.FORMATS.values()))
TRAINING = ("trainA", "trainB")
DICOMDIR = "DICOMDIR"  # the table of contents of a medium
MAX_EXTENSIONS = 5  # of other files, named in a remark
HELD_OUT = 0.05  # fraction of the training images that is used for validation if there is no test folder


def find_images(folder: str | os.PathLike[str], others: list[str] | None = None) -> list[str]:
    """Return the sorted paths of the image files below a folder, relative to it.

    Leaves out hidden files and folders. Follows links to folders, but visits each folder once. Adds the names of the
    other files that are not hidden to the list `others`.
    """
    found, visited = [], set()
    for where, folders, files in os.walk(folder, onerror=_refuse, followlinks=True):
        real = os.path.realpath(where)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        below = os.path.relpath(where, folder)
        for name in files:
            if is_image(os.path.join(where, name)):
                found.append(name if below == os.curdir else os.path.join(below, name))
            elif others is not None and not name.startswith("."):
                others.append(name)
    return sorted(found)


def find_splits(folder: pathlib.Path, splits: Collection[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the image files of the splits of a dataset.

    Without a test folder, the last training images of the domain are held out for validation.

    Returns:
        Paths relative to the folder by split, and remarks for the user.
    """
    names: dict[str, list[str]] = {}
    notes: list[str] = []
    for domain in "AB":
        train, test = f"train{domain}", f"test{domain}"
        if (folder / test).is_dir():
            names[test] = _list_split(folder, test, notes)
        if train in splits or test not in names:
            if not (folder / train).is_dir():
                absent = "" if train in splits else f", and no {test}"
                around = f": try {folder.parent}" if (folder.parent / train).is_dir() else ""
                raise UserError(
                    f"{folder / train}: no such folder{absent}; expected images of one domain in trainA, of the other"
                    f" in trainB{around}"
                )
            names[train] = _list_split(folder, train, notes)
        if test not in names:
            total = len(names[train])
            if total == 1:
                raise UserError(
                    f"{folder / train}: 1 image and no {test}; expected 2 images, one of them for validation"
                )
            count = max(1, round(HELD_OUT * total))
            names[train], names[test] = names[train][:-count], names[train][-count:]
            notes.append(
                f"No {test} in {folder}: the last {count} of {total} images of {train} are held out for validation"
            )
    return {split: names[split] for split in splits}, notes


def _list_split(folder: pathlib.Path, split: str, notes: list[str]) -> list[str]:
    """Return the image files of a split; add a remark about its other files to `notes`."""
    others: list[str] = []
    names = [os.path.join(split, name) for name in find_images(folder / split, others)]
    if not names:
        hint = f". {describe_others(split, others)}" if others else ""
        raise UserError(f"{folder / split}: no images; expected at least one of {' '.join(EXTENSIONS)}{hint}")
    if others:
        notes.append(describe_others(split, others))
    return names


def describe_others(folder: str, others: Sequence[str]) -> str:
    """Return a remark about the files of a folder that are not used."""
    kinds = sorted({os.path.splitext(name)[1].lower() or name for name in others})
    shown = printable(", ".join(kinds[:MAX_EXTENSIONS])) + ", ..." * (len(kinds) > MAX_EXTENSIONS)
    hint = "if they are images, convert them to PNG or JPEG"
    return f"Files of {printable(folder)} that are not used: {len(others)} ({shown}); {hint}"


def find_pairs(x: ImageFiles, y: ImageFiles) -> np.ndarray:
    """Return the pairs: images whose paths below trainA and trainB are equal but for the extension.

    Both images of a pair must have equal sizes before the crop.

    Returns:
        Indices in X and in Y, int64 [number of pairs, 2], in the order of X.
    """
    found: list[dict[str, list[int]]] = [{}, {}]
    for part, split, indices in zip((x, y), TRAINING, found):
        for index, name in enumerate(part.names):
            indices.setdefault(stem(name.partition(split)[2]), []).append(index)
    common = [stem for stem in found[0] if stem in found[1]]
    if not common:
        examples = " and ".join(printable(part.names[0]) for part in (x, y))
        raise UserError(
            f"--paired_names: no image of trainA has the name of an image of trainB, for example {examples}; expected"
            " equal names for pairs, such as trainA/1.png and trainB/1.jpg"
        )
    for part, indices in zip((x, y), found):
        for several in (indices[stem] for stem in common if len(indices[stem]) > 1):
            raise UserError(
                f"--paired_names: {' and '.join(printable(part.names[i]) for i in several[:2])} have the same name;"
                " expected at most one image of each name in a folder"
            )
    pairs = np.array([[indices[stem][0] for indices in found] for stem in common])
    for i, j in pairs[(x.sizes[pairs[:, 0]] != y.sizes[pairs[:, 1]]).any(axis=1)]:
        both = " and ".join(
            f"{printable(part.names[k])} ({format_size(part.sizes[k])})" for part, k in ((x, i), (y, j))
        )
        raise UserError(
            f"--paired_names: {both} differ in size; expected equal sizes, because both get the same crop: use"
            " --preprocess resize_and_crop"
        )
    return pairs


def find_masks(folder: str | os.PathLike[str], names: Sequence[str]) -> list[str | None]:
    """Return the path of the mask of each image, `None` without one.

    A mask has the path of its image below trainA and the like, except for the extension. It may also lie in a subfolder
    of the split, such as trainA, which then comes first.

    Args:
        folder: Folder of the masks.
        names: Paths of the images, each beginning with the split or another folder.

    Raises:
        UserError: Two masks have the same name, or one mask belongs to several images.
    """
    masks: dict[str, str] = {}
    for name in find_images(folder):
        if (known := masks.setdefault(stem(name), name)) != name:
            raise UserError(f"{folder}: {printable(known)} and {printable(name)} have the same name; expected one mask")
    found: list[str | None] = []
    images: dict[str, str] = {}
    for name in names:
        split, _, below = name.partition(os.sep)
        mask = masks.get(stem(os.path.join(split, below))) or masks.get(stem(below))
        if mask and images.setdefault(mask, name) != name:
            both = f"{printable(images[mask])} and {printable(name)}"
            raise UserError(
                f"{printable(os.path.join(folder, mask))} is the mask of {both}; expected a mask for each: put them"
                f" into subfolders of {folder} with the names of the images' folders"
            )
        found.append(mask and os.path.join(folder, mask))
    return found


def is_image(path: str) -> bool:
    """Return whether a file has the extension of an image, or has no extension and contains DICOM data."""
    name = os.path.basename(path)
    if name.startswith(".") or not os.path.isfile(path):
        return False
    return name.lower().endswith(EXTENSIONS) or (stem(name) == name and name != DICOMDIR and _is_dicom(path))


def stem(path: str) -> str:
    """Return a path without its extension, which is never a number: 1.2.840.113619 is a DICOM identifier."""
    without, extension = os.path.splitext(path)
    return path if extension[1:].isdigit() else without


def _is_dicom(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return dicom_format.is_dicom(file)
    except OSError:
        return False


def _refuse(error: OSError) -> NoReturn:
    raise UserError(f"{printable(error.filename)}: {error.strerror}; expected a folder that can be read") from error
