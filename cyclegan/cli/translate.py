"""Translate images with the generators of a run: `cyclegan-translate runs/horse2zebra horses/ zebras/`.

Translates a file, a folder or a pattern, with images of any size. Each translation has the size, the depth, the
opacity and the format of its original. Several GPUs share the images.
"""

from __future__ import annotations

import argparse
import functools
import glob
import itertools
import logging
import os
from collections.abc import Sequence
from typing import Any

from cyclegan import terminal
from cyclegan.cli import check_run, describe_path
from cyclegan.config import serialization
from cyclegan.config.command_line import ArgumentParser, count, direction_name, size
from cyclegan.errors import UserError, counted, describe_missing, printable
from cyclegan.images import formats
from cyclegan.inference.conversions import MIN_TILE, PRECISIONS, TILE, check_tile
from cyclegan.inference.file_translator import Request
from cyclegan.inference.translate_files import make_plan, translate_plan
from cyclegan.run.run_directory import split_checkpoint

logger = logging.getLogger("cyclegan.translate")

HINTS = {  # flags of pytorch-CycleGAN-and-pix2pix's test.py, and what replaces them here
    **{"name": "RUN, the first argument", "checkpoints_dir": "RUN, the first argument"},
    **{"dataroot": "INPUT", "results_dir": "OUTPUT, the last argument", "num_test": "a pattern as INPUT"},
    **{"load_size": "--size", "crop_size": "--size", "preprocess": "--size", "phase": "a folder as INPUT"},
    **{"load_iter": "--checkpoint", "eval": "not needed"},
    **{"run": "RUN INPUT OUTPUT go without flags", "input": "INPUT", "output": "OUTPUT, the last argument"},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Translate the images that the command line names; return the exit code, 1 if any file failed.

    Raises:
        UserError: The request cannot work; nothing was written.
    """
    arguments = _parse(argv)
    run, *inputs, output = arguments.pop("paths")
    checkpoint, tile, devices, precision = (
        arguments.pop(each) for each in ("checkpoint", "tile", "devices", "precision")
    )
    check_paths(run, inputs, output, checkpoint)
    check_tile(tile)
    config = serialization.load(split_checkpoint(run)[0] / "config.json").config
    plan = make_plan(config, inputs, output, Request(**arguments))
    with terminal.start():
        from cyclegan.inference.model import load_on_devices

    models = load_on_devices(run, checkpoint, tile, devices, precision)
    report = translate_plan(models, plan, bars=True)
    speed = f"{report.images / report.seconds:.3g} images/s"
    files = f" in {counted(report.done, 'file')}" if report.images > report.done else ""
    logger.info(
        f"{counted(report.images, 'image')}{files} translated in {report.seconds:.1f} s ({speed}), from"
        f" {models[0].checkpoint}"
    )
    height, width = config.data.image_shape
    notes = {
        "Images skipped because their translations exist: {}": report.skipped,
        f"Images of more than {tile} x {tile} pixels, translated in tiles: {{}}. A larger --tile is faster, but needs"
        " more memory": report.tiled,
        f"Files with images much larger than in training, {width} x {height} pixels: {{}}. If their translations are"
        " poor, make the images smaller with --size": report.far_larger,
        "Files with several pages, slices or frames: {}; only the first of each was translated: --stacks all translates"
        " all, into TIFF, NIfTI or NumPy files": report.cut,
        "Files with more channels than the run uses: {}; of RGB and others, only RGB was translated, of the pages of a"
        " microscope, only the first": report.partial,
    }
    for text, number in notes.items():
        if number:
            logger.info(text.format(number))
    if report.page:
        logger.info(f"Page to look at: {report.page}")
    for text in report.failed:
        logger.warning(f"failed: {text}")
    return 1 if report.failed else 0


def check_paths(run: str, inputs: Sequence[str], output: str, checkpoint: str | None = None) -> None:
    """Raise `UserError` if paths are swapped, or the run has no such checkpoint."""
    check_run(run, [*inputs, output], checkpoint)
    kind = describe_path(output)
    if kind == "a run":
        raise UserError(f"{printable(output)} is a run; expected another folder for the translations")
    if len(inputs) > 1 and os.path.isfile(output):
        raise UserError(
            f"{printable(output)} is {kind}; expected a folder for the translations, as the last argument:"
            " is OUTPUT missing?"
        )
    is_absent = not (os.path.exists(inputs[0]) or glob.has_magic(inputs[0]))
    if len(inputs) == 1 and is_absent and kind in ("an image", "a folder of images"):
        raise UserError(
            f"{printable(inputs[0])}: {describe_missing(inputs[0], 'file or folder')}; expected an image, a folder of"
            f" images, or a pattern; or, if {printable(output)}, {kind}, is to be translated, swap them"
        )


def _parse(argv: Sequence[str] | None) -> dict[str, Any]:
    parser = ArgumentParser(
        usage="%(prog)s RUN INPUT [INPUT ...] OUTPUT [FLAG ...]",
        description="Translate images with the generators of a run. RUN is its folder, or RUN/checkpoints/NAME. INPUT"
        " is an image or film, a folder (with its subfolders), or a pattern in quotes: 'horses/**/*.jpg'. OUTPUT is a"
        " folder; for a single image or film also a file.",
        hints=HINTS,
    )
    add = parser.add_argument
    add("paths", nargs="*", help=argparse.SUPPRESS)
    direction = "x2y: images of domain X (trainA) to Y (trainB); y2x: back (default: %(default)s)"
    add("--direction", type=direction_name, choices=("x2y", "y2x"), default="x2y", help=direction)
    add("--checkpoint", help="name such as best-x2y or epoch_0010 (default: the newest)")
    add("--size", type=size, help="resize images to N x N or WIDTHxHEIGHT pixels first (default: keep their sizes)")
    add(
        "--format",
        metavar="FORMAT",
        help=f"format of the translations: {', '.join(formats.WRITTEN)}, or an ending such as jpg (default: the"
        " original's; films stay films; film: a film as .mp4)",
    )
    add("--overwrite", action="store_true", help="replace existing files")
    skip = "leave existing files and translate the others, as after a stop"
    add("--skip_existing", action="store_true", help=skip)
    add("--strip_metadata", action="store_true", help="write files without EXIF, XMP and place")
    add(
        "--stacks",
        choices=("first", "all"),
        help="all: translate all pages, slices or frames of a file into a file of as many; first: the first one; NIfTI"
        " files are always translated completely (default: as the run was trained)",
    )
    axis = "see the flag of training (default: as the run was trained)"
    add("--slice_axis", type=int, choices=(0, 1, 2), help=axis)
    masks = "folder with a mask of each image's name; where it is black, the translation is the original"
    add("--masks", metavar="DIR", help=masks)
    nodata = "value of pixels without data in files that name none (default: --nodata of the run)"
    add("--nodata", type=float, metavar="VALUE", help=nodata)
    add("--html", action="store_true", help="write index.html, a page that shows the results")
    add("--batch_size", type=count, default=8, help="images of one size at a time (default: %(default)s)")
    add(
        "--tile",
        type=count,
        default=TILE,
        help="images of more than TILE x TILE pixels are translated in tiles without seams (default: %(default)s,"
        f" at least {MIN_TILE})",
    )
    add("--devices", type=count, help="number of GPUs, or logical CPU devices (default: all GPUs)")
    add(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="of the computation, whatever the training had; others are faster on some devices (default: %(default)s)",
    )
    arguments = vars(parser.parse_args(argv))
    if len(arguments["paths"]) < 3:
        given = " and ".join(f"{path} ({describe_path(path)})" for path in arguments["paths"]) or "nothing"
        parser.error(f"received {printable(given)}, expected RUN INPUT OUTPUT: a run, images, and a folder to write to")
    if arguments["size"]:
        width, numbers = arguments["size"][0], filter(str.isdecimal, arguments["paths"])
        for height in itertools.filterfalse(os.path.exists, numbers):
            parser.error(f"--size {width} and {height}, no file or folder: expected {width}x{height}, or ./{height}")
    return arguments


program = functools.partial(
    terminal.run, main, "stopped; the written files are complete; --skip_existing translates the rest"
)
