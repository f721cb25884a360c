"""Names of the files that a run writes in its folder; no TensorFlow."""

from __future__ import annotations

import fnmatch
import pathlib
from collections.abc import Iterator, Sequence

FILES = (
    *("metrics.jsonl", "config.json", "index.html"),
    *("events.out.tfevents.*", "test/events.out.tfevents.*", "steps/events.out.tfevents.*"),
    "plugins/profile/*/*.xplane.pb",
    "samples/epoch_*.png",
    "samples/epoch_*/frames.json",
    "samples/epoch_*/fake_[xy]_*.png",
    "samples/epoch_*/cycle_[xy]_*.png",
    "samples/inputs/[xy]_*.png",
)
PARTIAL_FILES = tuple(f"{pattern}.partial" for pattern in FILES)  # left by a kill
CHECKPOINTS = (
    *("checkpoints/epoch_[0-9]*", "checkpoints/best-[xy]2[xy]"),
    *("checkpoints/.*_epoch_[0-9]*", "checkpoints/.*_best-[xy]2[xy]"),
)
FOLDERS = (
    *("plugins/profile/*", "plugins/profile", "plugins"),
    *("test", "steps", "samples/epoch_*", "samples/inputs", "samples", "checkpoints"),
)
REPLACED = {"config.json", "index.html"}  # these are replaced and not written to, so they may be links


def find(folder: pathlib.Path, patterns: Sequence[str]) -> list[pathlib.Path]:
    """Return the files, folders and links in a folder that match patterns; links are not followed."""
    found = []
    for pattern in patterns:
        paths = [folder] if folder.is_dir() else []
        for i, part in enumerate(pattern.split("/")):
            inside = [path for path in paths if not i or (path.is_dir() and not path.is_symlink())]
            paths = [each for path in inside for each in sorted(path.iterdir()) if fnmatch.fnmatchcase(each.name, part)]
        found += paths
    return found


def links(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the symbolic links in the folder of a run that writing would follow."""
    for path in find(folder, (*FOLDERS, *FILES)):
        if path.is_symlink() and path.name not in REPLACED:
            yield path
