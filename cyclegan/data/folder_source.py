"""Image files of a folder with trainA and trainB, and optionally testA and testB."""

from __future__ import annotations

import hashlib
import itertools
import os
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NoReturn, Union

import numpy as np

from cyclegan.config.data import DataConfig
from cyclegan.data import loading
from cyclegan.data.loading import ImageFiles
from cyclegan.errors import UserError, counted, printable
from cyclegan.images import dicom_format, formats, reader
from cyclegan.images.geometry import format_size
from cyclegan.images.reader import Slice

EXTENSIONS = tuple(itertools.chain.from_iterable(form.endings for form in formats.FORMATS.values()))
TRAINING = ("trainA", "trainB")
DICOMDIR = "DICOMDIR"  # the table of contents of a medium
MAX_EXTENSIONS = 5  # of other files, named in a remark
Name = Union[str, Slice]  # of an image: the path of a file, or one of its images
HELD_OUT = 20  # one in so many training images is used for validation if there is no test folder


def find_images(folder: str | os.PathLike[str], others: list[str] | None = None) -> list[str]:
    """Return the sorted paths of the image files below a folder, relative to it.

    Leaves out hidden files and folders. Follows links to folders, but visits each folder once. Adds the whole paths of
    the other files that are not hidden to the list `others`.
    """
    found, visited = [], set()
    for where, folders, files in os.walk(folder, onerror=_refuse, followlinks=True):
        real = os.path.realpath(where)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        for name in files:
            path = os.path.join(where, name)
            if is_image(path):
                found.append(os.path.relpath(path, folder))
            elif others is not None and not name.startswith("."):
                others.append(path)
    return sorted(found)


def expand(
    folder: str | os.PathLike[str],
    files: Sequence[Name],
    channels: int,
    data: DataConfig,
    bars: bool = False,
    unreadable: list[str] | None = None,
) -> list[Name]:
    """Return the images of files, whose paths are relative to a folder: with --stacks all, all images of each file.

    One in --film_every frames of a film is an image. If there is a list `unreadable`, descriptions of files that cannot
    be read are added to it, and each of them counts as one image; otherwise they raise `UserError`.
    """
    counts = [1] * len(files)
    films = [isinstance(name, str) and formats.is_film(name) for name in files]
    stacked = [index for index, is_film in enumerate(films) if is_film or data.stacks == "all"]

    def count(_: str, number: int) -> None:
        index = stacked[number]
        name = files[index]
        try:
            if isinstance(name, str):
                path = os.path.join(folder, name)
                with loading.naming_image(path, "", index):
                    counts[index] = reader.count(path, channels, data.slice_axis)
        except loading.UnreadableImageError as error:
            if unreadable is None:
                raise
            unreadable.append(str(error))

    if stacked:
        loading.for_each_image({"": stacked}, count, "Counting images", bars)
    images: list[Name] = []
    for name, number, is_film in zip(files, counts, films):
        numbers = range(0, number, data.film_every if is_film else 1)
        images += [name] if number == 1 else [Slice(f"{name}", i, data.slice_axis) for i in numbers]
    return images


def below(folder: str | os.PathLike[str], name: Name) -> Name:
    """Return an image whose path is relative to a folder as an image to read."""
    if isinstance(name, Slice):
        return name._replace(path=os.path.join(folder, name.path))
    return os.path.join(folder, name)


def describe_stacks(
    data: DataConfig, names: Mapping[str, Sequence[Name]], facts: Mapping[str, np.ndarray]
) -> Iterator[str]:
    """Yield remarks about files with several images, or with channels that are not used."""
    for split, part in names.items():
        if files := {name.path for name in part if isinstance(name, Slice)}:
            flat = sum(not isinstance(name, Slice) for name in part)
            yield f"{split}: {counted(len(part), 'image')} in {counted(len(files) + flat, 'file')}"
        images, bands = facts[split]["images"], facts[split]["partial_of"]
        several = np.flatnonzero(images > 1)
        if len(several):
            example = f"{printable(part[several[0]])} ({images[several[0]]})"
            yield (
                f"{split}: {counted(len(several), 'file')} with several pages, slices or frames, for example {example};"
                " only the first of each is used: --stacks all uses all"
            )
        partial = np.flatnonzero(bands)
        if len(partial):
            example, number = printable(f"{part[partial[0]]}"), bands[partial[0]]
            yield (
                f"{split}: {counted(len(partial), 'image')} with more channels than are used, for example {example}"
                f" ({number}): --channels_{'y' if split.endswith('B') else 'x'} {number} uses all"
            )


def find_splits(
    folder: pathlib.Path,
    data: DataConfig,
    splits: Collection[str],
    bars: bool = False,
    unreadable: list[str] | None = None,
) -> tuple[dict[str, list[Name]], list[str]]:
    """Return the images of the splits of a dataset, such as "trainA", and remarks for the user.

    Paths are relative to the folder. Without a test folder, training images of the domain are held out for validation,
    see `hold_out`. For `unreadable` see `expand`.
    """
    names: dict[str, list[Name]] = {}
    notes: list[str] = []
    for domain in "AB":
        train, test = f"train{domain}", f"test{domain}"
        has_test = os.path.lexists(folder / test)
        needed = [test] * has_test + [train] * (train in splits or not has_test)
        for split in needed:
            if not (folder / split).is_dir():
                absent = f", and no {test}" if needed == [train] and train not in splits else ""
                around = f": try {folder.parent}" if (folder.parent / split).is_dir() else ""
                raise UserError(
                    f"{folder / split}: {describe_missing(folder / split)}{absent}; expected images of one domain in"
                    f" trainA, of the other in trainB{around or _describe_content(folder)}"
                )
            files = _list_split(folder, split, notes)
            names[split] = expand(folder, files, data.channels(split), data, bars, unreadable)
        if not has_test:
            names[train], names[test], note = hold_out(names[train], train)
            notes.append(f"No {test} in {folder}: {note}")
    return {split: names[split] for split in splits}, notes


def hold_out(images: Sequence[Name], split: str) -> tuple[list[Name], list[Name], str]:
    """Divide the images of a training split into those to train on and those for validation; describe the latter.

    A hash of the name chooses the files for validation, so that they are no series; the choice is the same for equal
    names in trainA and trainB. Of files with several images, whole files are held out, because neighbors look alike; of
    a single such file, the last images. A single image is used for both.
    """
    if len(images) == 1:
        return [*images], [*images], f"the only image of {split} is used for training and for validation"
    files: dict[str, list[Name]] = {}
    for image in images:
        files.setdefault(image.path if isinstance(image, Slice) else image, []).append(image)
    flat, stacks = ([path for path, part in files.items() if (len(part) > 1) == is_stack] for is_stack in (False, True))
    held_out: set[Name] = set()
    texts = []
    for unit, group in (("images", flat), ("files with several images", stacks)):
        if len(group) > 1:
            paths = sorted(group, key=_hash)[: number_held_out(len(group))]
            held_out.update(image for path in paths for image in files[path])
            texts.append(f"{len(paths)} of {len(group)} {unit} of {split}")
    if len(stacks) == 1:
        part = files[stacks[0]]
        last = part[-number_held_out(len(part)) :]
        held_out.update(last)
        texts.append(f"the last {len(last)} of {len(part)} images of {printable(stacks[0])} (like those before them)")
    kept, chosen = ([image for image in images if (image in held_out) == is_held] for is_held in (False, True))
    return kept, chosen, f"{' and '.join(texts)} are held out for validation"


def number_held_out(count: int) -> int:
    """Return how many of some images or files are held out: 5 % or more; at least one in five, up to 8; at least 1."""
    return max(min(8, count // 5), -(-count // HELD_OUT))


def _hash(path: str) -> bytes:
    """Return the hash of the name of a file below its split, without the extension."""
    return hashlib.sha256(os.fsencode(stem(path.partition(os.sep)[2]))).digest()


def _list_split(folder: pathlib.Path, split: str, notes: list[str]) -> list[Name]:
    """Return the image files of a split; add a remark about its other files to `notes`."""
    others: list[str] = []
    names: list[Name] = [os.path.join(split, name) for name in find_images(folder / split, others)]
    if not names:
        hint = f". {describe_others(split, others)}" if others else ""
        raise UserError(f"{folder / split}: no images; expected at least one of {' '.join(EXTENSIONS)}{hint}")
    if others:
        notes.append(describe_others(split, others))
    return names


def describe_others(folder: str, others: Sequence[str]) -> str:
    """Return a remark about the files of a folder that are not used."""
    links = [path for path in others if os.path.islink(path) and not os.path.exists(path)]
    files = {*others} - {*links}
    kinds = ["links to nothing"] * bool(links)
    kinds += sorted({os.path.splitext(path)[1].lower() or os.path.basename(path) for path in files})
    shown = printable(", ".join(kinds[:MAX_EXTENSIONS])) + ", ..." * (len(kinds) > MAX_EXTENSIONS)
    hints = [f"for example {printable(links[0])} -> {printable(os.readlink(links[0]))}"] if links else []
    hints += ["if they are images, convert them to PNG or JPEG"] * bool(files)
    return f"Files of {printable(folder)} that are not used: {len(others)} ({shown}); {'; '.join(hints)}"


def describe_missing(folder: str | os.PathLike[str]) -> str:
    """Return why there is no folder at a path, such as "no such folder" or a link to nothing."""
    if os.path.exists(folder):
        return "a file"
    is_link = os.path.islink(folder)
    return f"a link to {printable(os.readlink(folder))}, which does not exist" if is_link else "no such folder"


def _describe_content(folder: pathlib.Path) -> str:
    names = sorted(os.listdir(folder))
    shown = printable(", ".join(names[:MAX_EXTENSIONS])) + ", ..." * (len(names) > MAX_EXTENSIONS)
    return f"; {folder} has {shown or 'no files'}"


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


def find_masks(
    folder: str | os.PathLike[str], names: Sequence[str], data: DataConfig | None = None
) -> list[Name | None]:
    """Return the path of the mask of each image, `None` without one.

    A mask has the path of its image below trainA and the like, except for the extension. It may also lie in a subfolder
    of the split, such as trainA, which then comes first.

    Args:
        folder: Folder of the masks.
        names: Paths of the images, each beginning with the split or another folder.
        data: With --stacks all, masks may be images of a file, too, with the same numbers.

    Raises:
        UserError: Two masks have the same name, or one mask belongs to several images.
    """
    masks: dict[str, Name] = {}
    files: Sequence[Name] = find_images(folder)
    for mask in expand(folder, files, 1, data) if data else files:
        if (known := masks.setdefault(stem(f"{mask}"), mask)) != mask:
            raise UserError(f"{folder}: {printable(known)} and {printable(mask)} have the same name; expected one mask")
    found: list[Name | None] = []
    images: dict[Name, str] = {}
    for name in names:
        split, _, rest = name.partition(os.sep)
        found.append(masks.get(stem(os.path.join(split, rest))) or masks.get(stem(rest)))
        if (own := found[-1]) and images.setdefault(own, name) != name:
            other = images[own]
            advice = f"put them into subfolders of {folder} with the names of the images' folders"
            if os.path.dirname(other) == os.path.dirname(name):
                advice = "rename an image and its mask"
            raise UserError(
                f"{printable(below(folder, own))} is the mask of {printable(other)} and {printable(name)}; expected a"
                f" mask for each: {advice}"
            )
    return [mask and below(folder, mask) for mask in found]


def is_image(path: str) -> bool:
    """Return whether a file has the extension of an image, or has no extension and contains DICOM data."""
    name = os.path.basename(path)
    if name.startswith(".") or not os.path.isfile(path):
        return False
    return name.lower().endswith(EXTENSIONS) or (stem(name) == name and name != DICOMDIR and _is_dicom(path))


def stem(path: str) -> str:
    """Return a path, or the name of a `Slice`, without the extension.

    The extension is never a number: 1.2.840.113619 is a DICOM identifier.
    """
    name, bracket, number = path.rpartition("[") if path.endswith("]") else (path, "", "")
    without, extension = os.path.splitext(name[:-3] if name.lower().endswith(".nii.gz") else name)
    return path if extension[1:].isdigit() else without + bracket + number


def _is_dicom(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return dicom_format.is_dicom(file)
    except OSError:
        return False


def _refuse(error: OSError) -> NoReturn:
    raise UserError(f"{printable(error.filename)}: {error.strerror}; expected a folder that can be read") from error
