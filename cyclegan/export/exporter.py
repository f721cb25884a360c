"""Export of a generator: write a file, load it with the program that will run it, compare, move to the final name."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from typing import Callable
from unittest import mock

import numpy as np
import tensorflow as tf

from cyclegan.errors import UserError, printable
from cyclegan.export import portable
from cyclegan.export.portable import INPUT, OUTPUT
from cyclegan.whole_file import check_folder

TOLERANCE = 1e-3  # largest difference from the network's output in [-1, 1]
FLOAT16_TOLERANCE = 0.02  # the same for weights that were rounded to float16
OPSET = 17  # of ONNX: ONNX Runtime reads it from 1.12 on

Translate = Callable[[np.ndarray], np.ndarray]  # [N, H, W, C] -> [N, H, W, C]


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of an export."""

    format: str  # in `EXPORT_FORMATS`
    uint8: bool = False  # images are uint8 in [0, 255] on both sides, rather than float32 in [-1, 1]
    float16: bool = False  # rounds the weights of "tflite" to float16, which halves the file
    size: tuple[int, int] | None = None  # (height, width) for a batch of one image; by default any number of any size
    overwrite: bool = False  # replaces an existing file

    @property
    def tolerance(self) -> float:
        """Allowed difference from the network's output in [-1, 1]; with `uint8` in gray levels, 0.5 for rounding."""
        tolerance = FLOAT16_TOLERANCE if self.float16 else TOLERANCE
        return 0.5 + 127.5 * tolerance if self.uint8 else tolerance


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """A kind of file, or of folder.

    `write` writes a model of `make_portable` to a path. `load` loads such a file with the program that will run it, and
    returns the function in it.
    """

    write: Callable[[tf.keras.Model, pathlib.Path, ExportOptions], None]
    load: Callable[[pathlib.Path], Translate]
    suffix: str = ""  # end of the names of such files, if the format demands one
    marker: str = ""  # name of a file in each folder of this kind; empty for a format that is a file


def traced_function(model: tf.keras.Model) -> tuple[tf.types.experimental.GenericFunction, list[tf.TensorSpec]]:
    """Return the function {INPUT: tensor} -> {OUTPUT: tensor} of a model, and its input signature."""
    signature = [tf.TensorSpec(model.inputs[0].shape, model.inputs[0].dtype, INPUT)]
    # The name of the parameter becomes the name of the input in all formats.
    translate = tf.function(lambda picture: {OUTPUT: model(picture, training=False)}, signature, autograph=False)
    return translate, signature


def _write_savedmodel(model: tf.keras.Model, path: pathlib.Path, options: ExportOptions) -> None:
    module = tf.Module()
    module.__call__, _ = traced_function(model)
    module.weights = module.__call__.get_concrete_function().variables
    tf.saved_model.save(module, str(path), signatures=module.__call__)


def _load_savedmodel(path: pathlib.Path) -> Translate:
    translate = tf.saved_model.load(str(path))
    return lambda x: translate(tf.constant(x))[OUTPUT].numpy()


def _write_keras(model: tf.keras.Model, path: pathlib.Path, options: ExportOptions) -> None:
    model.save(path)


def _load_keras(path: pathlib.Path) -> Translate:
    model = tf.keras.models.load_model(path)  # in its safe mode
    return lambda x: model(x, training=False).numpy()


def _write_onnx(model: tf.keras.Model, path: pathlib.Path, options: ExportOptions) -> None:
    from tf2onnx import convert
    from tf2onnx.optimizer.reshape_optimizer import ReshapeOptimizer

    # This optimization sometimes loses the last operation of networks to one channel (in 2 of 12 trials with tf2onnx
    # 1.17), and tf2onnx has no public way to leave an optimization out.
    with mock.patch.object(ReshapeOptimizer, "optimize", lambda self, graph, iteration: graph):
        onnx, _ = convert.from_function(*traced_function(model), opset=OPSET)
    for value in (*onnx.graph.input, *onnx.graph.output):
        for dimension, name in zip(value.type.tensor_type.shape.dim, "NHW"):
            if not dimension.HasField("dim_value"):
                dimension.dim_param = name
    path.write_bytes(onnx.SerializeToString())


def _load_onnx(path: pathlib.Path) -> Translate:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda x: session.run([OUTPUT], {INPUT: x})[0]


def _write_tflite(model: tf.keras.Model, path: pathlib.Path, options: ExportOptions) -> None:
    folder = path.with_name(".saved_model")
    _write_savedmodel(model, folder, options)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder))
    if options.float16:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]
    path.write_bytes(converter.convert())


def _load_tflite(path: pathlib.Path) -> Translate:
    translate = tf.lite.Interpreter(str(path)).get_signature_runner()
    return lambda x: translate(**{INPUT: x})[OUTPUT]


EXPORT_FORMATS: dict[str, ExportFormat] = {
    "savedmodel": ExportFormat(_write_savedmodel, _load_savedmodel, marker="saved_model.pb"),
    "keras": ExportFormat(_write_keras, _load_keras, suffix=".keras"),
    "onnx": ExportFormat(_write_onnx, _load_onnx),
    "tflite": ExportFormat(_write_tflite, _load_tflite),
    "web": ExportFormat(_write_onnx, _load_onnx, marker="networks.json"),  # the networks of a page, see `web_page`
}


class ExportError(UserError):
    """The output of the file differs from the network's, although the request was right."""

    exit_code = 1


def check(out: str | pathlib.Path, options: ExportOptions) -> None:
    """Raise `UserError` if an export cannot be made, before anything is computed."""
    out, form = pathlib.Path(out), EXPORT_FORMATS[options.format]
    if options.float16 and options.format != "tflite":
        raise UserError(f"--float16 with --format {options.format}: only tflite has it; drop the flag")
    if form.suffix and out.suffix != form.suffix:
        raise UserError(f"{printable(out)}: expected a name that ends with {form.suffix}: Keras loads no other")
    check_folder(out.parent)
    if os.path.lexists(out) and not options.overwrite:
        raise UserError(f"{printable(out)} exists; choose another name, or --overwrite to replace it")
    if out.is_dir() and not (form.marker and (out / form.marker).is_file()):
        raise UserError(
            f"{printable(out)} is a folder that --format {options.format} did not make, so --overwrite does not replace"
            " it; choose another name"
        )


def export(
    generator: tf.keras.Model, out: str | pathlib.Path, images: Sequence[np.ndarray], options: ExportOptions
) -> float:
    """Export a generator. The file is created, or replaced, only if its output agrees with the network's.

    Args:
        generator: Result of `make_generator` that computes in float32.
        out: Path of the file, or of the folder of a SavedModel.
        images: uint8 images [H, W, C] to compare on, of sizes that the file takes.
        options: Options of the export.

    Returns:
        The largest difference from the network's output in [-1, 1]; with `uint8`, in gray levels, with the rounding.

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
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=out.parent) as folder:
            made = pathlib.Path(folder) / out.name
            yield made
            if os.path.lexists(out):
                os.rename(out, made.with_name(".old"))  # which is removed with the temporary folder
            os.rename(made, out)
    except OSError as error:
        raise UserError(
            f"{printable(out)} can't be written ({error.strerror or printable(error)}); expected free space in a"
            " writable folder"
        ) from error


def write_checked(
    generator: tf.keras.Model, path: pathlib.Path, images: Sequence[np.ndarray], options: ExportOptions
) -> float:
    """Write a generator to a path, load it, and return its largest difference from the generator; see `export`."""
    form, differences = EXPORT_FORMATS[options.format], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # users can't prevent the warnings of converters and runtimes
        form.write(portable.make_portable(generator, options.uint8, options.size), path, options)
        translate = form.load(path)
        for image in images:
            x = image[None] / np.float32(127.5) - 1
            expected = generator(x, training=False).numpy()
            translated, dtype = translate(image[None] if options.uint8 else x), "uint8" if options.uint8 else "float32"
            if (translated.shape, translated.dtype) != (expected.shape, dtype):
                raise ExportError(
                    f"an image became {translated.dtype} {translated.shape}, expected {dtype} {expected.shape}"
                )
            expected = (expected + 1) * 127.5 if options.uint8 else expected  # not rounded: finds wrong rounding
            differences.append(np.abs(translated.astype(np.float64) - expected).max())
    difference = float(np.max(differences))  # NaN if one of them is NaN
    if not difference <= options.tolerance:  # also if it is NaN
        raise ExportError(
            f"{options.format}: its output differs from the network's by up to {difference:.2g}, expected at most"
            f" {options.tolerance:g}; {printable(path.name)} was not written"
        )
    return difference
