"""Types of command-line arguments, for `type=` of `argparse`."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Sequence
from typing import Optional

NEGATIVE_RANGE = re.compile(r"-[\d.].*:")  # LO:HI with a negative LO


def protect_ranges(argv: Optional[Sequence[str]]) -> list[str]:
    """Return arguments (`None`: of this process) with a space before negative ranges, which argparse would take for flags."""
    return [f" {text}" if NEGATIVE_RANGE.match(text) else text for text in (sys.argv[1:] if argv is None else argv)]


def size(text: str) -> tuple[int, int]:
    """Return (width, height) in pixels of "256" or "300x200"."""
    found = re.fullmatch(r"([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?", text, re.ASCII)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of pixels, or WIDTHxHEIGHT")
    return int(found[1]), int(found[2] or found[1])


def count(text: str) -> int:
    """Return a whole number of at least 1."""
    if not re.fullmatch(r"0*[1-9]\d{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def count_or_auto(text: str) -> Optional[int]:
    """Return a whole number of at least 1, or `None` for "auto"."""
    if text == "auto":
        return None
    with contextlib.suppress(argparse.ArgumentTypeError):
        return count(text)
    raise argparse.ArgumentTypeError(f"{text!r}: expected auto, or a whole number of at least 1")
