"""Export a trained generator: `cyclegan-export runs/horse2zebra horse2zebra.onnx --format onnx`.

The program that will run the file (TensorFlow, Keras, ONNX Runtime, TensorFlow Lite) loads it again. The file is kept
only if its output there agrees with the network's. docs/export.md shows how to use each format.
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cyclegan import terminal
from cyclegan.cli import check_run
from cyclegan.config.command_line import ArgumentParser, size
from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import UserError

if TYPE_CHECKING:
    from cyclegan.config.data import DataConfig
    from cyclegan.export.exporter import ExportOptions

logger = logging.getLogger("cyclegan.export")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = ArgumentParser(
        description="Export a trained generator, and compare the output of the file with the network's."
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("out", metavar="OUT", help="file to write, a folder for savedmodel and web")
    parser.add_argument("--format", required=True, choices=("savedmodel", "keras", "onnx", "tflite", "web"))
    parser.add_argument(
        "--direction",
        choices=tuple(DIRECTIONS),
        help="from domain X to Y, or back (default: x2y; web: each direction of the run)",
    )
    parser.add_argument("--checkpoint", metavar="NAME", help="one of the run's checkpoints (default: the newest)")
    parser.add_argument(
        "--uint8", action="store_true", help="input and output are uint8 in [0, 255], not float32 in [-1, 1]"
    )
    parser.add_argument("--float16", action="store_true", help="tflite: round the weights to float16, half the file")
    parser.add_argument(
        "--size",
        type=size,
        metavar="WIDTH[xHEIGHT]",
        help="one image of this size at a time, for devices that need fixed sizes (default: any number of any size)",
    )
    parser.add_argument(
        "--pictures",
        nargs="+",
        default=(),
        metavar="FILE",
        help="images to compare on (default: held-out images of the run's dataset, if it is a folder or prepared by"
        " TensorFlow Datasets and still exists; otherwise drawn ones)",
    )
    parser.add_argument(
        "--runtime",
        metavar="DIR",
        help="web: folder of the npm package onnxruntime-web, or cdn for the public one (default: copied with npm)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> float:
    """Export, and log the input and output of the file; return the largest difference from the network."""
    given = parse(argv)
    check_run(given.run, [given.out])
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # GPUs may round more than the exported formats
    with terminal.start():
        from cyclegan.data.sources import comparison_images
        from cyclegan.export.exporter import ExportOptions, check, export
        from cyclegan.export.portable import INPUT, OUTPUT
        from cyclegan.inference.model import Model

    if given.format == "web":
        return _export_page(given)
    if given.runtime:
        raise UserError(f"--runtime with --format {given.format}: only --format web has it; drop the flag")
    direction = given.direction or "x2y"
    size = given.size and given.size[::-1]
    options = ExportOptions(given.format, given.uint8, given.float16, size, given.overwrite)
    check(given.out, options)
    run = Model(given.run, given.checkpoint, "float32")
    generator = run.generator(direction)
    multiple = run.config.networks.multiple
    if size and any(side % multiple for side in size):
        raise UserError(f"--size {given.size[0]}x{given.size[1]}: expected multiples of {multiple} pixels")
    images, description = comparison_images(run.config.data, direction, multiple, given.pictures, size)
    difference = export(generator, given.out, images, options)
    kind = "uint8" if options.uint8 else "float32"
    sides, condition = (f"1, {size[0]}, {size[1]}", "") if size else ("N, H, W", f", H and W multiples of {multiple}")
    channels = run.channels(direction)
    logger.info("%s: %s, %.1f MB, of %s", given.out, options.format, _megabytes(given.out), run.checkpoint)
    logger.info("%s: %s [%s, %d]%s", INPUT, kind, sides, channels[0], condition)
    logger.info("%s: %s [%s, %d]", OUTPUT, kind, sides, channels[1])
    _log_ranges(options, run.config.data, direction)
    logger.info(
        "largest difference from the network: %.2g %s, allowed %g; on %s",
        difference,
        "gray levels" if options.uint8 else "in [-1, 1]",
        options.tolerance,
        description,
    )
    return difference


def _export_page(given: argparse.Namespace) -> float:
    """Export the networks as a page, and log how to serve it; return the largest difference from the networks."""
    from cyclegan.data.sources import comparison_images
    from cyclegan.export import exporter, web_page
    from cyclegan.inference.model import Model

    if given.uint8 or given.size:
        raise UserError(
            f"--{'uint8' if given.uint8 else 'size'} with --format web: the page chooses type and size; drop the flag"
        )
    exporter.check(given.out, exporter.ExportOptions("web", float16=given.float16, overwrite=given.overwrite))
    run = Model(given.run, given.checkpoint, "float32")
    data, multiple = run.config.data, run.config.networks.multiple
    if data.value_range("X") or data.value_range("Y"):
        raise UserError(
            f"{given.run}: has value ranges, which browsers cannot read; expected --format onnx or the like"
        )
    directions = [given.direction] if given.direction else run.generators
    page = web_page.Page(f"CycleGAN: {run.path.resolve().name}", max(data.image_shape), multiple, given.runtime)
    web_page.check(page, [data.channels_x, data.channels_y])
    generators = {direction: run.generator(direction) for direction in directions}
    found = {direction: comparison_images(data, direction, multiple, given.pictures) for direction in directions}
    images = {direction: images for direction, (images, _) in found.items()}
    difference = web_page.export(generators, given.out, images, page, given.overwrite)
    for direction, (_, description) in found.items():
        logger.info("%s: compared with the network on %s", direction, description)
    logger.info("largest difference from the networks: %.2g in [-1, 1], allowed %g", difference, exporter.TOLERANCE)
    logger.info("%s: a page of %s; to look at it: python -m http.server -d %s", given.out, run.checkpoint, given.out)
    return difference


def _megabytes(out: str) -> float:
    """Return the size of a file, or of the files in a folder."""
    path = pathlib.Path(out)
    return sum(each.stat().st_size for each in (path, *path.rglob("*")) if each.is_file()) / 1e6


def _log_ranges(options: ExportOptions, data: DataConfig, direction: str) -> None:
    """Log the values that the lowest and the highest numbers of an exported file stand for."""
    from cyclegan.export.portable import INPUT, OUTPUT

    low, high = (0, 255) if options.uint8 else (-1, 1)
    for name, domain in zip((INPUT, OUTPUT), DIRECTIONS[direction]):
        if value_range := data.value_range(domain):
            logger.info("%s: %d and %d stand for the values %g and %g", name, low, high, *value_range)


program = functools.partial(terminal.run, main, "stopped; OUT is unchanged")
