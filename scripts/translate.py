#!/usr/bin/env python
"""Translates pictures with a run's generators: `python scripts/translate.py runs/horse2zebra horses/ zebras/`.

A file, a folder or a pattern, in any size: each translation has the size, the depth, the opacity and the format of its original.
The networks are found in the run's folder. On several GPUs the pictures are shared out.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cyclegan import console
from cyclegan.config import argument_types


def main(argv=None):
    """Translates what the command line asks for. Returns the exit code: 1 if any file failed.

    Raises:
        UserError: what was asked for can't be; nothing was written.
    """
    from cyclegan.images import writer

    parser = argparse.ArgumentParser(description="Translate pictures with a run's generators.")
    parser.add_argument("run", help="the run's folder")
    parser.add_argument(
        "input", help="a picture, a folder (with its sub-folders), or a pattern in quotes: 'horses/**/*.jpg'"
    )
    parser.add_argument("output", help="a folder; for a single picture a file too")
    parser.add_argument("--direction", choices=("x2y", "y2x"), default="x2y", help="(default: %(default)s)")
    parser.add_argument("--checkpoint", help="best-x2y or epoch_0010, say (default: the newest)")
    parser.add_argument(
        "--size", type=argument_types.size, help="resize pictures to N x N or WIDTHxHEIGHT pixels (default: leave them)"
    )
    parser.add_argument("--format", choices=writer.FORMATS, help="of the translations (default: the original's)")
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    parser.add_argument(
        "--skip_existing", action="store_true", help="leave files that are there, translate the others: after a stop"
    )
    parser.add_argument(
        "--html", action="store_true", help="write index.html, a page to look at, and translate back for it"
    )
    parser.add_argument(
        "--batch_size",
        type=argument_types.count,
        default=8,
        help="pictures of one size at a time (default: %(default)s)",
    )
    parser.add_argument(
        "--tile", type=argument_types.count, help="pictures of more than TILE x TILE pixels are translated in tiles"
    )
    parser.add_argument(
        "--devices", type=argument_types.count, help="how many GPUs, or logical CPU devices (default: all GPUs)"
    )
    arguments = parser.parse_args(argv)
    with console.start():
        from cyclegan.distribution.strategy import device_names
        from cyclegan.inference import translate_files
        from cyclegan.inference.translator import TILE, Model

    tile = arguments.tile or TILE
    models = [
        Model(arguments.run, arguments.checkpoint, tile=tile, device=device)
        for device in device_names(arguments.devices)
    ]
    report = translate_files.translate(
        models,
        arguments.input,
        arguments.output,
        direction=arguments.direction,
        size=arguments.size,
        format=arguments.format,
        overwrite=arguments.overwrite,
        batch_size=arguments.batch_size,
        html=arguments.html,
        bars=True,
        skip_existing=arguments.skip_existing,
    )
    speed = f"{report.done / report.seconds:.3g} images/s"
    print(f"{report.done} pictures translated in {report.seconds:.1f} s ({speed}), from {models[0].checkpoint}")
    if arguments.skip_existing:
        print(f"Skipped, as they were there: {report.skipped}")
    normalizes = models[0].config.networks.norm == "instance"
    if report.tiled:
        print(
            f"Of more than {tile} x {tile} pixels, so translated in tiles: {report.tiled}."
            + (" Instance normalization sees a tile, not the picture: colours may drift." if normalizes else "")
            + " A larger --tile needs more memory"
        )
    if report.cut:
        print(f"Of several frames or pages, of which only the first was translated: {report.cut}")
    if report.page:
        print(f"To look at: {report.page}")
    for text in report.failed:
        print(f"translate.py: not translated: {text}", file=sys.stderr)
    for text in report.unshown:
        print(f"translate.py: translated, but not shown: {text}", file=sys.stderr)
    return 1 if report.failed or report.unshown else 0


if __name__ == "__main__":
    sys.exit(console.run(main, "stopped; what was written is whole; --skip_existing translates the rest"))
