"""Image files of a folder with trainA and trainB, and optionally testA and testB."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import itertools
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn, Union

import numpy as np

from cyclegan.config.data import DataConfig
from cyclegan.data import loading
from cyclegan.data.loading import ImageFiles
from cyclegan.errors import UserError, counted, describe_missing, printable
from cyclegan.images import dicom_format, formats, reader
from cyclegan.images.geometry import format_size
from cyclegan.images.reader import Slice, Source

EXTENSIONS = tuple(itertools.chain.from_iterable(form.endings for form in formats.FORMATS.values()))
TRAINING = ("trainA", "trainB")
FILMS = (".3gp", ".flv", ".m2ts", ".mpeg", ".mpg", ".mts", ".ogv", ".ts", ".vob", ".wmv")  # that are not read
DICOMDIR = "DICOMDIR"  # the table of contents of a medium
MAX_SHOWN = 5  # names in a remark
Name = Union[str, Slice]  # of an image: the path of a file, or one of its images
FEW = 100  # training images of a domain
HELD_OUT = 20  # one in so many training images is used for validation if there is no test folder


class Found(NamedTuple):
    """Images of a dataset, which were not read yet."""

    sources: Mapping[str, Sequence[Source]]  # paths or contents of files by split, such as "trainA"
    names: Mapping[str, Sequence[str]]  # which do not depend on the place of the dataset
    notes: Sequence[str] = ()  # remarks for the user


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


def expand(files: Sequence[str], channels: int, data: DataConfig, bars: bool = False) -> list[Name]:
    """Return the images of files: with --stacks all, all images of each file; of a film, one in --film_every frames.

    A file whose images cannot be counted has a first one, so that reading this gives the reason.
    """
    films = [*map(formats.is_film, files)]
    counts = [1] * len(files)

    def count(index: int) -> None:
        counts[index] = 0
        with contextlib.suppress(Exception):  # the libraries raise almost anything for a damaged file
            counts[index] = reader.count(files[index], channels, data.slice_axis)

    if stacked := [index for index, is_film in enumerate(films) if is_film or data.stacks == "all"]:
        loading.for_each(stacked, count, "Counting images", bars)
    images: list[Name] = []
    for path, number, is_film in zip(files, counts, films):
        numbers = range(0, number or 1, data.film_every if is_film else 1)
        images += [path] if number == 1 else [Slice(path, i, data.slice_axis) for i in numbers]
    return images


def name_below(folder: str | os.PathLike[str], image: Name) -> str:
    """Return the name of an image: its path relative to a folder in which it lies, and its number in the file."""
    return f"{image}"[len(os.path.join(folder, "")) :]


def describe_stacks(data: DataConfig, found: Found, facts: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Yield remarks about files with several images, or with channels that are not used."""
    for split, names in found.names.items():
        slices = [source for source in found.sources[split] if isinstance(source, Slice)]
        if slices:
            files = len({source.path for source in slices}) + len(names) - len(slices)
            yield f"{split}: {counted(len(names), 'image')} in {counted(files, 'file')}"
        images, bands = facts[split]["images"], facts[split]["partial_of"]
        if len(several := np.flatnonzero(images > 1)):
            yield (
                f"{split}: {counted(len(several), 'file')} with several pages, slices or frames, for example"
                f" {printable(names[several[0]])} ({images[several[0]]}); only the first of each is used: --stacks all"
                " uses all"
            )
        if len(partial := np.flatnonzero(bands)):
            number = bands[partial[0]]
            yield (
                f"{split}: {counted(len(partial), 'image')} with more channels than are used, for example"
                f" {printable(names[partial[0]])} ({number}): --channels_{'y' if split.endswith('B') else 'x'} {number}"
                " uses all"
            )


def find(folder: pathlib.Path, data: DataConfig, splits: Sequence[str], bars: bool = False) -> Found:
    """Return the images of some splits of a dataset in a folder.

    Without a test folder, training images of the domain are held out for validation, see `hold_out`.
    """
    images: dict[str, list[Name]] = {}
    notes: list[str] = []
    for domain in "AB":
        train, test = f"train{domain}", f"test{domain}"
        has_test = os.path.lexists(folder / test)
        for split in [test] * has_test + [train] * (train in splits or not has_test):
            if not (folder / split).is_dir():
                absent = "" if has_test or train in splits else f", and no {test}"
                around = f": try {folder.parent}" if (folder.parent / split).is_dir() else _renames(folder)
                raise UserError(
                    f"{folder / split}: {describe_missing(folder / split)}{absent}; expected images of one domain in"
                    f" trainA, of the other in trainB{around or f'; {folder} has {_shown(sorted(os.listdir(folder)))}'}"
                )
            images[split] = expand(_list_split(folder, split, notes), data.channels(split), data, bars)
        if not has_test:
            images[train], images[test], note = hold_out(images[train], os.path.join(folder, train))
            notes.append(f"No {test} in {folder}: {note}")
    if renames := _renames(folder):  # of folders that are optional, and would be left out
        raise UserError(f"{folder}{renames}; expected these names")
    sources = {split: images[split][: data.max_dataset_size] for split in splits}
    counts = {split: len(sources[split]) for split in TRAINING if split in splits}
    if counts and min(counts.values()) < FEW and data.preprocess != "crop":  # which can do with one large image
        few = " and ".join(f"{count} in {split}" for split, count in counts.items())
        notes.append(f"Few training images, {few}: hundreds are usual; --diffaugment translation,cutout may help")
    return Found(sources, {split: [name_below(folder, each) for each in sources[split]] for split in splits}, notes)


def _renames(folder: pathlib.Path) -> str:
    """Return which folders to rename because only the case of their names is wrong; "" if there are none."""
    cases = {name.lower(): name for name in ("trainA", "trainB", "testA", "testB", "maskA", "maskB")}
    found = {name: cases.get(name.lower(), name) for name in sorted(os.listdir(folder))}
    wrong = [f"{name} to {split}" for name, split in found.items() if not os.path.lexists(folder / split)]
    return f": rename {', '.join(wrong)}" if wrong else ""


def hold_out(images: Sequence[Name], folder: str) -> tuple[list[Name], list[Name], str]:
    """Divide the images of a training folder into those to train on and those for validation; describe the latter.

    A hash of the name chooses the files for validation, so that they are no series; the choice is the same for equal
    names in trainA and trainB. Of files with several images, whole files are held out, because neighbors look alike; of
    a single such file, the last images. A single image is used for both.
    """
    split = os.path.basename(folder)
    if len(images) == 1:
        return [*images], [*images], f"the only image of {split} is used for training and for validation"
    files: dict[str, list[Name]] = {}
    for image in images:
        files.setdefault(image.path if isinstance(image, Slice) else image, []).append(image)

    def hash_of(path: str) -> bytes:
        return hashlib.sha256(os.fsencode(stem(name_below(folder, path)))).digest()

    flat, stacks = ([path for path, part in files.items() if (len(part) > 1) == is_stack] for is_stack in (False, True))
    held_out: set[Name] = set()
    texts = []
    for unit, group in (("images", flat), ("files with several images", stacks)):
        if len(group) > 1:
            paths = sorted(group, key=hash_of)[: _number_held_out(len(group))]
            held_out.update(image for path in paths for image in files[path])
            texts.append(f"{len(paths)} of {len(group)} {unit} of {split}")
    if len(stacks) == 1:
        part = files[stacks[0]]
        last = part[-_number_held_out(len(part)) :]
        held_out.update(last)
        name = printable(os.path.join(split, name_below(folder, stacks[0])))
        texts.append(f"the last {len(last)} of {len(part)} images of {name} (like those before them)")
    kept, chosen = ([image for image in images if (image in held_out) == is_held] for is_held in (False, True))
    return kept, chosen, f"{' and '.join(texts)} are held out for validation"


def _number_held_out(count: int) -> int:
    """Return how many of some images or files are held out: one in five up to 8, one in ten up to 20, then 5 %."""
    return max(min(8, count // 5), min(20, count // 10), -(-count // HELD_OUT))


def _list_split(folder: pathlib.Path, split: str, notes: list[str]) -> list[str]:
    """Return the paths of the image files of a split; add a remark about its other files to `notes`."""
    others: list[str] = []
    names = find_images(folder / split, others)
    notes += [describe_others(split, others)] if others else []
    if not names:
        hint = f". {notes[-1]}" if others else ""
        hint = ", or no such folder" * (split not in TRAINING) + hint
        raise UserError(f"{folder / split}: no images; expected at least one of {' '.join(EXTENSIONS)}{hint}")
    return [os.path.join(folder, split, name) for name in names]


def describe_others(folder: str, others: Sequence[str]) -> str:
    """Return a remark about the files of a folder that are not used."""
    links = [path for path in others if os.path.islink(path) and not os.path.exists(path)]
    files = {*others} - {*links}
    kinds = ["links to nothing"] * bool(links)
    kinds += sorted({os.path.splitext(path)[1].lower() or os.path.basename(path) for path in files})
    hints = [f"for example {printable(links[0])}, {describe_missing(links[0])}"] if links else []
    films = {path for path in files if path.lower().endswith(FILMS)}
    hints += ["convert the films to MP4"] * bool(films)
    hints += ["if they are images, convert them to PNG or JPEG"] * bool(files - films)
    return f"Files of {printable(folder)} that are not used: {len(others)} ({_shown(kinds)}); {'; '.join(hints)}"


def _shown(names: Sequence[str]) -> str:
    return printable(", ".join(names[:MAX_SHOWN]) or "no files") + ", ..." * (len(names) > MAX_SHOWN)


def find_pairs(x: ImageFiles, y: ImageFiles) -> np.ndarray:
    """Return the pairs: images whose paths below trainA and trainB are equal but for the extension.

    Both images of a pair must have equal sizes before the crop.

    Returns:
        Indices in X and in Y, int64 [number of pairs, 2], in the order of X.
    """
    found: list[dict[str, list[int]]] = [collections.defaultdict(list) for _ in "XY"]
    for part, split, indices in zip((x, y), TRAINING, found):
        for index, name in enumerate(part.names):
            indices[stem(name.partition(split)[2])].append(index)
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
    for pair in pairs[(x.sizes[pairs[:, 0]] != y.sizes[pairs[:, 1]]).any(axis=1)]:
        both = (f"{printable(part.names[k])} ({format_size(part.sizes[k])})" for part, k in zip((x, y), pair))
        raise UserError(
            f"--paired_names: {' and '.join(both)} differ in size; expected equal sizes, because both get the same"
            " crop: use --preprocess resize_and_crop"
        )
    return pairs


def find_masks(
    folder: str | os.PathLike[str], names: Sequence[str], data: DataConfig | None = None
) -> list[Name | None]:
    """Return the mask of each image, `None` without one.

    A mask has the path of its image below trainA and the like, except for the extension. It may also lie in a subfolder
    of the split, such as trainA, which then comes first. One image may be the mask of all frames of a film, and a mask
    may belong to several images of a folder that only their extensions tell apart.

    Args:
        folder: Folder of the masks.
        names: Paths of the images, each beginning with the split or another folder.
        data: With --stacks all, masks may be images of a file, too, with the same numbers.

    Raises:
        UserError: Two masks have the same name, or one mask belongs to images of several folders.
    """
    masks: dict[str, Name] = {}
    files = [os.path.join(folder, name) for name in find_images(folder)]
    for mask in expand(files, 1, data) if data else files:
        if (known := masks.setdefault(stem(name_below(folder, mask)), mask)) != mask:
            raise UserError(f"{printable(known)} and {printable(mask)} have the same name; expected one mask")
    found: list[Name | None] = []
    images: dict[Name, str] = {}
    for name in names:
        film = _film_of(name)
        keys = [stem(each) for image in (name, film) for each in (image, image.partition(os.sep)[2])]
        found.append(next((masks[key] for key in keys if key in masks), None))
        if (own := found[-1]) and stem(other := images.setdefault(own, film)) != stem(film):
            raise UserError(
                f"{printable(own)} is the mask of {printable(other)} and {printable(film)}; expected a mask for each:"
                f" put them into subfolders of {folder} with the names of the images' folders"
            )
    return found


def _film_of(name: str) -> str:
    """Return the film of an image that is one of its frames, such as "walk.mp4[250]", or the name of another image."""
    film = name.rpartition("[")[0]
    return film if name.endswith("]") and formats.is_film(film) else name


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
