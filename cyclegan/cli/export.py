"""Export a trained generator: `cyclegan-export runs/horse2zebra horse2zebra.onnx`.

The program that will run the file (TensorFlow, Keras, ONNX Runtime, TensorFlow Lite) loads it again. The file is kept
only if its output there agrees with the network's. docs/export.md shows how to use each format.
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import pathlib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cyclegan import terminal
from cyclegan.cli import check_run, describe_path
from cyclegan.config import Config, serialization
from cyclegan.config.command_line import ArgumentParser, direction_name, size
from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import UserError, printable
from cyclegan.export import ENDINGS, check, web_page
from cyclegan.inference.conversions import check_direction, check_size
from cyclegan.run.run_directory import split_checkpoint

if TYPE_CHECKING:
    from cyclegan.config.data import DataConfig
    from cyclegan.export.exporter import ExportOptions

logger = logging.getLogger("cyclegan.export")

FOLDERS = ("web", "hub")  # formats that hold the generators of all directions
FILES = ("savedmodel", *ENDINGS.values())  # formats of one generator
# Formats that have a flag.
FLAGS = {"float16": ("tflite",), "int8": ("tflite",), "runtime": ("web",), "uint8": FILES, "size": FILES}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = ArgumentParser(
        description="Export a trained generator, and compare the output of the file with the network's."
    )
    add = parser.add_argument
    add("run", metavar="RUN", help="folder of the run, or RUN/checkpoints/NAME")
    add("out", metavar="OUT", help="file to write, a folder for savedmodel, web and hub")
    add(
        "--format",
        choices=(*FILES, *FOLDERS),
        help=f"(default: what OUT ends in, out of {' '.join(ENDINGS)}); web: a page that translates; hub: a folder for"
        " a model hub, with a model card",
    )
    direction = "from domain X to Y, or back (default: x2y; web, hub: each direction of the run)"
    add("--direction", type=direction_name, choices=tuple(DIRECTIONS), help=direction)
    add("--checkpoint", metavar="NAME", help="one of the run's checkpoints (default: the newest)")
    add("--uint8", action="store_true", help="input and output are uint8 in [0, 255], not float32 in [-1, 1]")
    add("--float16", action="store_true", help="tflite: round the weights to float16, half the file")
    add("--int8", action="store_true", help="tflite: round the weights to 8 bits each, about a quarter of the file")
    fixed = "one image of this size at a time, for devices that need fixed sizes (default: any number of any size)"
    add("--size", type=size, metavar="WIDTH[xHEIGHT]", help=fixed)
    add(
        "--pictures",
        nargs="+",
        default=(),
        metavar="FILE",
        help="images to compare on (default: held-out images of the run's dataset, if it is a folder or prepared by"
        " TensorFlow Datasets and still exists; otherwise drawn ones)",
    )
    runtime = "web: folder of the npm package onnxruntime-web, or cdn for the public one (default: copied with npm)"
    add("--runtime", metavar="DIR", help=runtime)
    add("--overwrite", action="store_true", help="replace OUT if it exists; a folder keeps the files of others")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> float:
    """Export, and log the input and output of the file; return the largest difference from the network."""
    given = vars(parse(argv))
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the comparison is on the CPU
    return export_run(given.pop("run"), given.pop("out"), **given)


def export_run(  # noqa: PLR0913  the flags of the command
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,
    direction: str | None = None,
    checkpoint: str | None = None,
    uint8: bool = False,
    float16: bool = False,
    int8: bool = False,
    size: tuple[int, int] | int | None = None,
    pictures: Sequence[str] = (),
    runtime: str | None = None,
    overwrite: bool = False,
) -> float:
    """Export with the flags of the command by name; return the largest difference in gray levels of 255.

    Raises:
        UserError: The request can't work, or the output of the file is not the network's; nothing was written.
    """
    out = pathlib.Path(out).expanduser()
    check_run(run, [out], checkpoint)
    format = _choose_format(out, format)
    size = None if size is None else check_size(size)
    _check_flags(format, float16=float16, int8=int8, runtime=runtime, uint8=uint8, size=size)
    check(out, format, overwrite)
    _check_pictures(pictures)
    config, directions = _check_config(run, format, direction, size)
    data, multiple = config.data, config.networks.multiple
    title = f"CycleGAN: {split_checkpoint(run)[0].resolve().name}"
    page = web_page.Page(title, max(data.image_shape), multiple, runtime)
    if format == "web":
        web_page.check(page, [data.channels_x, data.channels_y])
    with terminal.phase("Starting TensorFlow", if_slow=True), terminal.start():
        from cyclegan.data.sources import comparison_images
        from cyclegan.export import exporter, hub
        from cyclegan.inference.model import Model

    model = Model(run, checkpoint, "float32", device="CPU:0")  # GPUs may round more than the exported formats
    shape = size and size[::-1]
    generators = {each: model.generator(each) for each in directions}
    found = {each: comparison_images(data, each, multiple, pictures, shape) for each in directions}
    images = {each: images for each, (images, _) in found.items()}
    options = exporter.ExportOptions(format, uint8, float16, int8, shape)
    if format == "web":
        difference = web_page.export(generators, out, images, page)
    elif format == "hub":
        difference = hub.export(model, generators, out, images)
    else:
        difference = exporter.export(generators[directions[0]], out, images[directions[0]], options)
    logger.info("%s: %s, %s, of %s", out, format, _size(out), model.checkpoint)
    if format in FILES:
        _log_signature(model.channels(directions[0]), options, data, directions[0], multiple)
    for each, (_, description) in found.items():
        logger.info("%s: compared with the network on %s", each, description)
    levels = f"largest difference from the network: {difference:.2g} gray levels of 255"
    if difference <= options.tolerance:
        logger.info(levels)
    else:
        logger.warning("%s, more than the %g of rounding; look at translations", levels, options.tolerance)
    _log_advice(out, format, model.path)
    return difference


def _choose_format(out: pathlib.Path, format: str | None) -> str:
    """Return the format that is given, or that the ending of a name says; raise `UserError` if they differ."""
    implied = ENDINGS.get(out.suffix)
    if not (format or implied):
        known = ", ".join((*FILES, *FOLDERS))
        raise UserError(f"{out}: expected --format ({known}), or a name that ends in one of {' '.join(ENDINGS)}")
    if format and format not in (*FILES, *FOLDERS):
        raise UserError(f"--format {format}: expected one of {', '.join((*FILES, *FOLDERS))}")
    if (implied and format not in (None, implied)) or format == "keras" != implied:
        ending = next((f"that ends in {ending}" for ending, name in ENDINGS.items() if name == format), None)
        raise UserError(f"{out}: --format {format} expects a name {ending or 'without an ending'}")
    return format or str(implied)


def _check_flags(format: str, **given: Any) -> None:
    """Raise `UserError` if a flag does not belong to the format."""
    for flag, value in given.items():
        if value and format not in FLAGS[flag]:
            raise UserError(f"--{flag} with --format {format}: only {', '.join(FLAGS[flag])} has it; drop the flag")
    if given["float16"] and given["int8"]:
        raise UserError("--float16 with --int8: expected one of them")


def _check_config(
    run: str | os.PathLike[str], format: str, direction: str | None, size: tuple[int, int] | None
) -> tuple[Config, list[str]]:
    """Return the configuration of a run and the directions to export; raise `UserError` if the flags do not fit it."""
    config = serialization.load(split_checkpoint(run)[0] / "config.json").config
    data, multiple = config.data, config.networks.multiple
    if size and any(side % multiple for side in size):
        raise UserError(f"--size {size[0]}x{size[1]}: expected multiples of {multiple} pixels")
    if format == "web" and (data.value_range("X") or data.value_range("Y")):
        raise UserError(f"{run}: has value ranges, which browsers cannot read; expected --format onnx or the like")
    directions = [direction] if direction else [*config.objective.directions] if format in FOLDERS else ["x2y"]
    for each in directions:
        check_direction(config, each)
    return config, directions


def _check_pictures(pictures: Sequence[str]) -> None:
    for picture in map(pathlib.Path, pictures):
        if not picture.expanduser().is_file():
            raise UserError(f"--pictures {printable(picture)}: {describe_path(picture)}; expected image files")


def _log_advice(out: pathlib.Path, format: str, run: pathlib.Path) -> None:
    """Log what the user has to do with an export."""
    from cyclegan.export import hub

    if hub.is_masked(serialization.load(run / "config.json").data):
        logger.warning(hub.MASKED)
    if format == "hub" and hub.license_of(out) == "unknown":
        logger.info("%s: set its `license`, now unknown, before you upload the folder", out / "README.md")
    if format == "web":
        logger.info("to look at the page: python -m http.server -d %s", shlex.quote(str(out)))


def _size(out: pathlib.Path) -> str:
    """Return the size of a file, or of the files in a folder, as text."""
    count = sum(each.stat().st_size for each in (out, *out.rglob("*")) if each.is_file())
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def _log_signature(
    channels: tuple[int, int], options: ExportOptions, data: DataConfig, direction: str, multiple: int
) -> None:
    """Log the input and the output of a file, and the values that their lowest and highest numbers stand for."""
    from cyclegan.export.exporter import INPUT, OUTPUT

    kind, low, high = ("uint8", 0, 255) if options.uint8 else ("float32", -1, 1)
    sides = "1, {}, {}".format(*options.size) if options.size else "N, H, W"
    condition = "" if options.size else f", H and W multiples of {multiple}"
    for name, count, domain in zip((INPUT, OUTPUT), channels, DIRECTIONS[direction]):
        logger.info("%s: %s [%s, %d]%s", name, kind, sides, count, condition)
        condition = ""
        if value_range := data.value_range(domain):
            logger.info("%s: %d and %d stand for the values %g and %g", name, low, high, *value_range)


program = functools.partial(terminal.run, main, "stopped; OUT is unchanged")
