"""Inspect a folder of images before training on it: `cyclegan-inspect my_images --html report/`.

Decodes every image once. Prints the number, sizes, bands and colors of the images of each domain and split, and what may harm
training: damaged, constant, gray and small images, duplicates, and images in both domains or in training and test.
"""

from __future__ import annotations

from cyclegan import interrupt  # noqa: F401  first: Ctrl-C during the other imports is one line

# isort: split
import argparse
from collections.abc import Sequence

from cyclegan import console
from cyclegan.config import argument_types
from cyclegan.config.data import AUTO, DataConfig, ValueRange, parse_range
from cyclegan.errors import UserError, printable


def main(argv: Sequence[str] | None = None) -> int:
    """Print the inspection of a folder; return the exit code, 1 with --strict if anything was found.

    Raises:
        UserError: The request cannot work.
    """
    arguments = _parse(argv)
    from cyclegan.inspection import page, table
    from cyclegan.inspection.inspection import inspect

    if arguments.html:
        page.check_folder(arguments.html, arguments.folder)
    channels = arguments.channels_x, arguments.channels_y
    ranges = arguments.value_range_x, arguments.value_range_y
    inspection = inspect(arguments.folder, arguments.load_size, channels, ranges, bars=True)
    print(*map(printable, table.lines(inspection)), sep="\n", flush=True)
    if arguments.html:
        try:
            print(printable(f"Page of the images concerned: {page.write(arguments.html, inspection)}"))
        except OSError as error:
            raise UserError(f"--html {arguments.html}: {error}; expected a folder that can be written to") from error
    return int(arguments.strict and bool(inspection.findings))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Inspect a folder of images before training on it.")
    argument_types.add_version(parser)
    parser.add_argument("folder", help="folder with trainA and trainB, and optionally testA and testB")
    parser.add_argument("--html", metavar="FOLDER", help="write index.html with the images concerned into this folder")
    parser.add_argument("--strict", action="store_true", help="exit with code 1 if anything was found")
    count = argument_types.count
    for name, title in (
        ("load_size", "side in pixels to which training resizes images"),
        ("channels_x", "channels of the images of domain X"),
        ("channels_y", "channels of the images of domain Y"),
    ):
        default = getattr(DataConfig, name)
        parser.add_argument(f"--{name}", type=count, default=default, metavar="N", help=f"{title} (default: {default})")
    for name, domain in (("value_range_x", "X"), ("value_range_y", "Y")):
        title = f"values of the files of domain {domain} that become black and white"
        parser.add_argument(f"--{name}", type=_value_range, metavar="LO:HI", help=f"{title} (default: 8 or 16 bits)")
    return parser.parse_args(argument_types.protect_ranges(argv))


def _value_range(text: str) -> ValueRange:
    if not (found := parse_range(text)):
        hint = "; training with auto prints them and keeps them in config.json" if text.strip() == AUTO else ""
        raise argparse.ArgumentTypeError(f"{text!r}: expected LO:HI, two numbers with LO < HI{hint}")
    return found


def program() -> int:
    """Run the command in a terminal; return the exit code."""
    return console.run(main, "stopped; there is no result")
