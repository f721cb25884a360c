"""Export of a generator to a file: write, load with the program that will run it, compare, move to the final name."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import tempfile
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from cyclegan import terminal
from cyclegan.errors import UserError, printable
from cyclegan.export import portable
from cyclegan.export.formats import FORMATS, Translate

TOLERANCE = 1e-3  # largest difference from the network's output in [-1, 1]
FLOAT16_TOLERANCE = 0.02  # the same for weights that were rounded to float16


class ExportError(UserError):
    """The output of the file differs from the network's, although the request was right."""

    exit_code = 1


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of an export."""

    format: str  # in `FORMATS`
    uint8: bool = False  # images are uint8 in [0, 255] on both sides, rather than float32 in [-1, 1]
    float16: bool = False  # rounds the weights to float16, which halves the file
    size: tuple[int, int] | None = None  # (height, width) for a batch of one image; by default any number of any size
    overwrite: bool = False  # replaces an existing file

    @property
    def tolerance(self) -> float:
        """Largest difference from the network's output in [-1, 1]; with `uint8`, in gray levels, including 0.5 for rounding."""
        tolerance = FLOAT16_TOLERANCE if self.float16 else TOLERANCE
        return 0.5 + 127.5 * tolerance if self.uint8 else tolerance


def check(out: str | pathlib.Path, options: ExportOptions) -> None:
    """Check that an export can be made, before anything is computed.

    Raises:
        UserError: Packages are missing, or nothing can be written to `out`.
    """
    out, form = pathlib.Path(out), FORMATS[options.format]
    missing = [name for name in form.packages if not importlib.util.find_spec(name)]
    if missing:
        hint = terminal.REINSTALL if terminal.is_installed() else "install with pip install -r requirements.txt"
        raise UserError(f"--format {options.format} needs {', '.join(missing)}: {hint}")
    if options.float16 and not form.has_float16:
        able = ", ".join(name for name, other in FORMATS.items() if other.has_float16)
        raise UserError(f"--float16 with --format {options.format}: only {able} has it; drop the flag")
    if form.suffix and out.suffix != form.suffix:
        raise UserError(f"{printable(out)}: expected a name that ends with {form.suffix}, as no other can be loaded")
    if not out.parent.is_dir():
        raise UserError(f"{printable(out)}: the folder {printable(out.parent)} does not exist; make it first")
    if os.path.lexists(out) and not options.overwrite:
        raise UserError(f"{printable(out)} exists; choose another name, or --overwrite to replace it")
    if out.is_dir() and not (form.marker and (out / form.marker).is_file()):
        raise UserError(
            f"{printable(out)} is a folder that --format {options.format} did not make, so --overwrite does not replace it;"
            " choose another name"
        )


def export(
    generator: tf.keras.Model, out: str | pathlib.Path, images: Sequence[np.ndarray], options: ExportOptions
) -> float:
    """Export a generator. The file is created, or replaced, only if its output equals the network's within the tolerance.

    Args:
        generator: Result of `make_generator` that computes in float32.
        out: Path of the file, or of the folder of a SavedModel.
        images: uint8 images [H, W, C] to compare on, of sizes that the file takes.
        options: Options of the export.

    Returns:
        The largest difference from the network's output in [-1, 1]; with `uint8`, in gray levels, including the file's rounding.

    Raises:
        UserError: See `check`; or the file can't be written.
        ExportError: The difference is larger than `options.tolerance` or not a number.
    """
    check(out, options)
    with new_file(out) as made:
        return write_checked(generator, made, images, options)


@contextlib.contextmanager
def new_file(out: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a path of the same name to write a file or a folder to, and move it to `out` if no error occurs."""
    out = pathlib.Path(out)
    try:
        with tempfile.TemporaryDirectory(prefix=".export-", dir=out.parent) as folder:
            made = pathlib.Path(folder) / out.name
            yield made
            if os.path.lexists(out):
                os.rename(out, made.with_name(".old"))  # which is removed with the temporary folder
            os.rename(made, out)
    except OSError as error:
        raise UserError(
            f"{printable(out)} can't be written ({printable(error)}); expected free space in a folder that can be written to"
        ) from error


def write_checked(
    generator: tf.keras.Model, path: pathlib.Path, images: Sequence[np.ndarray], options: ExportOptions
) -> float:
    """Write a generator to a path, load it, and return its largest difference from the generator; see `export`."""
    form = FORMATS[options.format]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # users can't prevent the warnings of converters and runtimes
        form.write(portable.make_portable(generator, options.uint8, options.size), path, options.float16)
        difference = _largest_difference(form.load(path), generator, images, options.uint8)
    if not difference <= options.tolerance:  # also if it is NaN
        raise ExportError(
            f"{options.format}: its output differs from the network's by up to {difference:.2g}, expected at most"
            f" {options.tolerance:g}; {printable(path.name)} was not written"
        )
    return difference


def _largest_difference(
    translate: Translate, generator: tf.keras.Model, images: Sequence[np.ndarray], uint8: bool
) -> float:
    differences = []
    for image in images:
        x = image[None] / np.float32(127.5) - 1
        expected = generator(x, training=False).numpy()
        translated, dtype = translate(image[None] if uint8 else x), np.uint8 if uint8 else np.float32
        if (translated.shape, translated.dtype) != (expected.shape, dtype):
            raise ExportError(
                f"an image became {translated.dtype} {translated.shape}, expected {np.dtype(dtype)} {expected.shape}"
            )
        expected = (expected + 1) * 127.5 if uint8 else expected  # not rounded, so that wrong rounding is found
        differences.append(np.abs(translated.astype(np.float64) - expected).max())
    return float(np.max(differences))  # NaN if one of them is NaN
