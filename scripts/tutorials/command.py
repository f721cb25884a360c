"""Command line that the tutorials share."""

from __future__ import annotations

import argparse
from typing import Callable

from cyclegan.config.command_line import ArgumentParser


def whole(least: int, most: int = 10**6) -> Callable[[str], int]:
    """Return a parser of whole numbers in a range, for argparse."""

    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from {least} to {most}")
        return int(text)

    return number


def parser(description: str, epochs: int, batch_size: int) -> argparse.ArgumentParser:
    """Return a parser of --devices, --epochs and --batch_size with the given defaults."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--devices", type=whole(1), help="first N GPUs, or N logical CPU devices (default: all GPUs)")
    parser.add_argument("--epochs", type=whole(1), default=epochs, help="(default: %(default)s)")
    parser.add_argument(
        "--batch_size", type=whole(1), default=batch_size, help="examples per replica and step (default: %(default)s)"
    )
    return parser
