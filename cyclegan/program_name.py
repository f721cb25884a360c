"""Names by which the user starts the programs: the installed commands, or the files of a clone."""

from __future__ import annotations

import os
import sys

FILES = {"train": "python train.py", "inspect": "python scripts/inspect_data.py", "benchmark": "scripts/benchmark.py"}


def own() -> str:
    """Return the name of this program, such as "train.py" or "cyclegan-train"."""
    return os.path.basename(sys.argv[0])


def is_command() -> bool:
    """Return whether this program is an installed command."""
    return own().startswith("cyclegan-")


def of(name: str) -> str:
    """Return the beginning of a command line that starts a program, such as "python train.py" or "cyclegan-train"."""
    return f"cyclegan-{name}" if is_command() else FILES[name]
