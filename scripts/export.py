#!/usr/bin/env python
"""Exports a trained generator: `python scripts/export.py runs/horse2zebra horse2zebra.onnx --format onnx`.

The file is loaded again by what will run it (TensorFlow, Keras, ONNX Runtime, TensorFlow Lite) and compared with the network on
pictures. Only if they agree it is put in its place. docs/export.md says how each is used.
"""

import argparse
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cyclegan import console
from cyclegan.config import argument_types
from cyclegan.errors import UserError, printable


def parse(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Export a trained generator, and compare what the file does with what the network does."
    )
    parser.add_argument("run", metavar="RUN", help="the run's folder")
    parser.add_argument("out", metavar="OUT", help="the file to write, a folder for savedmodel")
    parser.add_argument("--format", required=True, choices=("savedmodel", "keras", "onnx", "tflite"))
    parser.add_argument(
        "--direction", default="x2y", choices=("x2y", "y2x"), help="from domain X to Y, or back (default: x2y)"
    )
    parser.add_argument("--checkpoint", metavar="NAME", help="one of the run's checkpoints (default: the newest)")
    parser.add_argument(
        "--uint8", action="store_true", help="pictures are uint8 in [0, 255] on both sides, not float32 in [-1, 1]"
    )
    parser.add_argument("--float16", action="store_true", help="tflite: round the weights to float16, half the file")
    parser.add_argument(
        "--size",
        type=argument_types.size,
        metavar="WIDTH[xHEIGHT]",
        help="one picture of this size at a time, for devices that want fixed sizes (default: any number of any size)",
    )
    parser.add_argument(
        "--pictures",
        nargs="+",
        default=(),
        metavar="FILE",
        help="compare on these (default: test pictures of the run's data set, a folder or prepared by TensorFlow Datasets, if it"
        " is still there; or drawn ones)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what is at OUT")
    return parser.parse_args(argv)


def main(argv=None):
    """Exports, and prints what the file takes, gives, and how far it is from the network. Returns the largest difference.

    Raises:
        UserError: that can't be; OUT is as it was.
    """
    given = parse(argv)
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # GPUs may round more than what is compared with them
    with console.start():
        from cyclegan.export.exporter import INPUT, OUTPUT, check, export, pictures_for, tolerance
        from cyclegan.inference.restore import restore

    check(given.out, given.format, given.float16, given.overwrite)
    run = restore(given.run, given.checkpoint, "float32")
    multiple, (inputs, outputs) = run.config.multiple, run.channels(given.direction)
    size = given.size and given.size[::-1]
    if size and any(side % multiple for side in size):
        raise UserError(f"--size {given.size[0]}x{given.size[1]}: expected multiples of {multiple} pixels")
    compared, described = pictures_for(run.config, given.direction, given.pictures, size)
    options = {"uint8": given.uint8, "float16": given.float16, "size": size, "overwrite": given.overwrite}
    difference = export(run.network(given.direction), given.out, given.format, compared, **options)

    files = [pathlib.Path(given.out), *pathlib.Path(given.out).rglob("*")]
    megabytes = sum(path.stat().st_size for path in files if path.is_file()) / 1e6
    kind, unit = ("uint8", "grey levels") if given.uint8 else ("float32", "in [-1, 1]")
    height, width = size or ("H", "W")
    shape = f"{1 if size else 'N'}, {height}, {width}"
    print(f"{printable(given.out)}: {given.format}, {megabytes:.1f} MB, of {printable(run.checkpoint)}")
    print(f"{INPUT}: {kind} [{shape}, {inputs}]" + ("" if size else f", H and W multiples of {multiple}"))
    print(f"{OUTPUT}: {kind} [{shape}, {outputs}]")
    most = tolerance(given.uint8, given.float16)
    print(f"largest difference from the network: {difference:.2g} {unit}, allowed {most:g}; on {described}")
    return difference


if __name__ == "__main__":
    sys.exit(console.run(main, "stopped; what was there before still is"))
