"""Translate images with the generators of a run: `cyclegan-translate runs/horse2zebra horses/ zebras/`.

Translates a file, a folder or a pattern, with images of any size. Each translation has the size, the depth, the
opacity and the format of its original. Several GPUs share the images.
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
from collections.abc import Sequence

from cyclegan import terminal
from cyclegan.config.command_line import ArgumentParser, count, size
from cyclegan.errors import UserError, counted
from cyclegan.images import formats

logger = logging.getLogger("cyclegan.translate")


def main(argv: Sequence[str] | None = None) -> int:
    """Translate the images that the command line names; return the exit code, 1 if any file failed.

    Raises:
        UserError: The request cannot work; nothing was written.
    """
    arguments = _parse(argv)
    output = arguments.output
    if os.path.isdir(arguments.input) and formats.format_of(output) and not os.path.exists(output):
        folder = os.path.splitext(output)[0]
        raise UserError(
            f"{output}: the name of an image, but {arguments.input} is a folder; expected a folder, such as {folder}"
        )
    with terminal.start():
        from cyclegan.inference.model import load_on_devices
        from cyclegan.inference.tiles import TILE
        from cyclegan.inference.translate_files import translate

    tile = arguments.tile or TILE
    models = load_on_devices(arguments.run, arguments.checkpoint, tile, arguments.devices)
    report = translate(
        models,
        arguments.input,
        output,
        direction=arguments.direction,
        size=arguments.size,
        format=arguments.format,
        overwrite=arguments.overwrite,
        batch_size=arguments.batch_size,
        html=arguments.html,
        bars=True,
        skip_existing=arguments.skip_existing,
        strip_metadata=arguments.strip_metadata,
        stacks=arguments.stacks,
        slice_axis=arguments.slice_axis,
        nodata=arguments.nodata,
        masks=arguments.masks,
    )
    speed = f"{report.images / report.seconds:.3g} images/s"
    files = f" in {counted(report.done, 'file')}" if report.images > report.done else ""
    logger.info(
        f"{counted(report.images, 'image')}{files} translated in {report.seconds:.1f} s ({speed}), from"
        f" {models[0].checkpoint}"
    )
    if arguments.skip_existing:
        logger.info(f"Images skipped because their translations exist: {report.skipped}")
    if report.tiled:
        logger.info(
            f"Images of more than {tile} x {tile} pixels, translated in tiles: {report.tiled}."
            " A larger --tile is faster, but needs more memory"
        )
    if report.cut:
        logger.info(
            f"Files with several pages, slices or frames: {report.cut}; only the first of each was translated:"
            " --stacks all translates all, into TIFF, NIfTI or NumPy files"
        )
    if report.page:
        logger.info(f"Page to look at: {report.page}")
    for text in report.failed:
        logger.warning(f"failed: {text}")
    return 1 if report.failed else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(description="Translate images with the generators of a run.")
    parser.add_argument("run", help="folder of the run")
    parser.add_argument(
        "input", help="an image or film, a folder (with its subfolders), or a pattern in quotes: 'horses/**/*.jpg'"
    )
    parser.add_argument("output", help="a folder; for a single image or film also a file")
    parser.add_argument("--direction", choices=("x2y", "y2x"), default="x2y", help="(default: %(default)s)")
    parser.add_argument("--checkpoint", help="name such as best-x2y or epoch_0010 (default: the newest)")
    parser.add_argument(
        "--size",
        type=size,
        help="resize images to N x N or WIDTHxHEIGHT pixels first (default: keep their sizes)",
    )
    parser.add_argument(
        "--format",
        choices=[name for name, form in formats.FORMATS.items() if form.write or form.is_copy],
        help="format of the translations (default: the original's; films stay films; film: a film as .mp4)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    parser.add_argument(
        "--skip_existing", action="store_true", help="leave existing files and translate the others, as after a stop"
    )
    parser.add_argument("--strip_metadata", action="store_true", help="write files without EXIF, XMP and place")
    parser.add_argument(
        "--stacks",
        choices=("first", "all"),
        help="all: translate all pages, slices or frames of a file into a file of as many; first: the first one; NIfTI"
        " files are always translated completely (default: as the run was trained)",
    )
    parser.add_argument(
        "--slice_axis", type=int, choices=(0, 1, 2), help="see the flag of training (default: as the run was trained)"
    )
    parser.add_argument(
        "--masks",
        metavar="DIR",
        help="folder with a mask of each image's name; where it is black, the translation is the original",
    )
    parser.add_argument(
        "--nodata",
        type=float,
        metavar="VALUE",
        help="value of pixels without data in files that name none (default: --nodata of the run)",
    )
    parser.add_argument("--html", action="store_true", help="write index.html, a page that shows the results")
    parser.add_argument(
        "--batch_size", type=count, default=8, help="images of one size at a time (default: %(default)s)"
    )
    parser.add_argument(
        "--tile",
        type=count,
        help="images of more than TILE x TILE pixels are translated in tiles without seams (default: 1536; least: 512)",
    )
    parser.add_argument("--devices", type=count, help="number of GPUs, or logical CPU devices (default: all GPUs)")
    return parser.parse_args(argv)


program = functools.partial(
    terminal.run, main, "stopped; the written files are complete; --skip_existing translates the rest"
)
