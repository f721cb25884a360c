"""Inspect a folder of images before training on it: `cyclegan-inspect my_images --html report/`.

Decodes every image once. Prints the number, sizes, bands and colors of the images of each domain and split, and what
may harm training: damaged, constant, gray and small images, duplicates, and images in both domains or in training and
test.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence

from cyclegan import terminal
from cyclegan.config import Config, command_line
from cyclegan.config.command_line import ArgumentParser
from cyclegan.config.config import all_settings
from cyclegan.config.data import DataConfig
from cyclegan.errors import printable
from cyclegan.inspection.inspection import FLAGS, inspect


def main(argv: Sequence[str] | None = None) -> int:
    """Print the inspection of a folder; return the exit code, 1 with --strict if anything was found.

    Raises:
        UserError: The request cannot work.
    """
    arguments = _parse(argv)
    given = {name: value for name, value in vars(arguments).items() if name in FLAGS}
    if "load_size" in given and "image_size" not in given:
        given["image_size"] = min(DataConfig.image_size, given["load_size"])
    config = Config.from_settings(**given)
    from cyclegan.inspection import report

    if arguments.html:
        report.check_folder(arguments.html, arguments.folder)
    inspection = inspect(arguments.folder, config.data, config.networks.multiple, bars=True)
    print(*map(printable, report.lines(inspection)), sep="\n", flush=True)
    if arguments.html:
        title = "Page of the images concerned" if inspection.findings else "Page of the numbers above"
        print(printable(f"{title}: {report.write(arguments.html, inspection)}"))
    return int(arguments.strict and bool(inspection.findings))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        description="Inspect a folder of images before training on it. Most flags are those of training.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("folder", help="folder with trainA and trainB, and optionally testA and testB")
    parser.add_argument(
        "--html", metavar="FOLDER", default=None, help="write index.html with the images concerned into this folder"
    )
    parser.add_argument("--strict", action="store_true", default=False, help="exit with code 1 if anything was found")
    for name in FLAGS:
        command_line.add_flag(parser, all_settings()[name])
    return parser.parse_args(argv)


program = functools.partial(terminal.run, main, "stopped; there is no result")
