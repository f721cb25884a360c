"""Names of the files that a run writes in its folder; no TensorFlow."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Sequence

from cyclegan.run import files, folder

# Regular expressions, one for each part of a path.
EVENTS = r"events\.out\.tfevents\.[0-9]+(\..+)?"
SAMPLES = "epoch_[0-9]{3,}"
FILES = (
    *(r"metrics\.jsonl", r"config\.json", r"index\.html", r"trackers\.json"),
    *(EVENTS, f"test/{EVENTS}", f"steps/{EVENTS}"),
    r"plugins/profile/[0-9_]+/.+\.xplane\.pb",
    rf"samples/{SAMPLES}\.png",
    rf"samples/{SAMPLES}/frames\.json",
    rf"samples/{SAMPLES}/(fake|cycle)_[xy]_[1-9][0-9]*\.png",
    r"samples/inputs/[xy]_[1-9][0-9]*\.png",
)
APPENDED = (r"metrics\.jsonl", EVENTS, f"(test|steps)/{EVENTS}")
PARTIAL_FILES = tuple(rf"{pattern}\.partial" for pattern in FILES)  # left by a kill
CHECKPOINTS = tuple(
    f"checkpoints/{re.escape(prefix)}{name}"
    for prefix in ("", files.PARTIAL, files.REMOVED)
    for name in (folder.NAME.pattern, folder.ALIAS.pattern)
)
FOLDERS = (
    *("plugins/profile/[0-9_]+", "plugins/profile", "plugins"),
    *("wandb", "test", "steps", f"samples/{SAMPLES}", "samples/inputs", "samples", "checkpoints"),
)
REPLACED = {"config.json", "index.html", "trackers.json"}  # these are replaced and not written to, so they may be links


def find(run: pathlib.Path, patterns: Sequence[str]) -> list[pathlib.Path]:
    """Return the files, folders and links in the folder of a run that match patterns; links are not followed."""
    found = []
    for pattern in patterns:
        paths = [run] if run.is_dir() else []
        for i, part in enumerate(pattern.split("/")):
            inside = [path for path in paths if not i or (path.is_dir() and not path.is_symlink())]
            paths = [each for path in inside for each in sorted(path.iterdir()) if re.fullmatch(part, each.name)]
        found += paths
    return found


def links(run: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the symbolic links in the folder of a run that a write would follow, and files to append to with another name."""
    for path in find(run, (*FOLDERS, *FILES)):
        if path.is_symlink() and path.name not in REPLACED:
            yield path
    for path in find(run, APPENDED):
        if path.stat().st_nlink > 1:
            yield path
