"""Export of a generator: write a file, load it with the program that will run it, compare, move to the final name."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from typing import Callable, NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf

from cyclegan import whole_file
from cyclegan.errors import EXPECTED, UserError, printable
from cyclegan.export import MADE
from cyclegan.lazy_tensorflow import without_notices
from cyclegan.networks import compat, layers, normalization

INPUT, OUTPUT = "picture", "translated"  # names of the input and the output in exported files
LEVELS = 127.5  # gray levels per unit of the networks' value range [-1, 1]
WRONG = 0.1  # of the deviation of the network's output: a larger error is no rounding, but another function
OPSET = 17  # of ONNX: ONNX Runtime reads it from 1.12 on

Translate = Callable[[np.ndarray], np.ndarray]  # [N, H, W, C] -> [N, H, W, C]
keras, ops = tf.keras.layers, compat.ops


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of an export."""

    format: str  # in `EXPORT_FORMATS`
    uint8: bool = False  # images are uint8 in [0, 255] on both sides, rather than float32 in [-1, 1]
    float16: bool = False  # rounds the weights of "tflite" to float16, which halves the file
    int8: bool = False  # rounds the weights of "tflite" to 8 bits each, with a scale for each channel
    size: tuple[int, int] | None = None  # (height, width) for a batch of one image; by default any number of any size

    @property
    def tolerance(self) -> float:
        """Difference from the network's output, in gray levels of 255, that files of whole levels do not show."""
        return 0.75 if self.uint8 else 0.5


class ExportFormat(NamedTuple):
    """A kind of file, or of folder.

    `write` writes a model of `make_portable` to a path. `load` loads such a file with the program that will run it, and
    returns the function in it.
    """

    write: Callable[[tf.keras.Model, pathlib.Path, ExportOptions], None]
    load: Callable[[pathlib.Path], Translate]


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
    for node in onnx.graph.node:
        for attribute in node.attribute if node.op_type == "Resize" else ():
            # The same for a factor of 2. ONNX has deprecated tf2onnx's choice, and its runtime warns.
            if attribute.s == b"tf_half_pixel_for_nn":
                attribute.s = b"asymmetric"
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
    with tempfile.TemporaryDirectory() as folder:
        _write_savedmodel(model, pathlib.Path(folder), options)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        if options.float16 or options.int8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if options.float16:
            converter.target_spec.supported_types = [tf.float16]
        with without_notices(re.compile(b"")):  # a summary of operations, long and harmless
            content = converter.convert()
        path.write_bytes(content)


def _load_tflite(path: pathlib.Path) -> Translate:
    translate = tf.lite.Interpreter(str(path)).get_signature_runner()
    return lambda x: translate(**{INPUT: x})[OUTPUT]


EXPORT_FORMATS = {
    "savedmodel": ExportFormat(_write_savedmodel, _load_savedmodel),
    "keras": ExportFormat(_write_keras, _load_keras),
    "onnx": ExportFormat(_write_onnx, _load_onnx),
    "tflite": ExportFormat(_write_tflite, _load_tflite),
}


class ExportError(UserError):
    """The output of the file is not the network's, although the request was right."""

    exit_code = 1


def export(generator: tf.keras.Model, out: pathlib.Path, images: Sequence[np.ndarray], options: ExportOptions) -> float:
    """Export a generator. The file is created, or replaced, only if its output agrees with the network's.

    Args:
        generator: Result of `make_generator` that computes in float32.
        out: Path of the file, or of the folder of a SavedModel.
        images: uint8 images [H, W, C] to compare on, of sizes that the file takes.
        options: Options of the export.

    Returns:
        The largest difference from the network's output in gray levels of 255; with `uint8`, with the rounding.

    Raises:
        UserError: The file can't be written.
        ExportError: The output has another shape or type, or is another function, see `WRONG`, or is not a number.
    """
    with new_file(out) as made:
        return write_checked(generator, made, images, options)


@contextlib.contextmanager
def new_file(out: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a path of the same name to write a file or a folder to, and move it to `out` if no error occurs.

    If a folder replaces one, others' files in that one, such as `.git`, are kept.
    """
    try:
        whole_file.refuse_special(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=out.parent) as folder:
            made = pathlib.Path(folder) / out.name
            yield made
            if out.is_dir() and made.is_dir():
                _keep_others(out, made)
            if os.path.lexists(out):
                os.rename(out, made.with_name(".old"))  # which is removed with the temporary folder
            os.rename(made, out)
    except OSError as error:
        raise UserError(
            f"{printable(out)} can't be written ({error.strerror or printable(error)}); expected"
            f" {EXPECTED.get(error.errno or 0, 'a file or folder that can be replaced, and a writable folder')}"
        ) from error


def _keep_others(old: pathlib.Path, new: pathlib.Path) -> None:
    """Copy what no export has made from an old folder to a new one."""
    for path in old.iterdir():
        if os.path.lexists(new / path.name) or MADE.fullmatch(path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, new / path.name, symlinks=True)
        else:
            shutil.copy2(path, new / path.name, follow_symlinks=False)


def write_checked(
    generator: tf.keras.Model, path: pathlib.Path, images: Sequence[np.ndarray], options: ExportOptions
) -> float:
    """Write a generator to a path, load it, and return its largest difference from the generator; see `export`."""
    form, differences, outputs = EXPORT_FORMATS[options.format], [], []
    with warnings.catch_warnings(), tf.device("CPU:0"):
        warnings.simplefilter("ignore")  # users can't prevent the warnings of converters and runtimes
        form.write(make_portable(generator, options.uint8, options.size), path, options)
        translate = form.load(path)
        for image in images:
            x = image[None] / np.float32(LEVELS) - 1
            expected = generator(x, training=False).numpy()
            translated, dtype = translate(image[None] if options.uint8 else x), "uint8" if options.uint8 else "float32"
            if (translated.shape, translated.dtype) != (expected.shape, dtype):
                raise ExportError(
                    f"an image became {translated.dtype} {translated.shape}, expected {dtype} {expected.shape}"
                )
            levels = translated.astype(np.float64) if options.uint8 else (translated + 1.0) * LEVELS
            outputs.append(np.ravel((expected + 1) * LEVELS))  # not rounded: finds wrong rounding
            differences.append(np.ravel(levels) - outputs[-1])
    difference, error = np.concatenate(differences), np.sqrt(np.mean(np.square(np.concatenate(differences))))
    if not error <= max(options.tolerance, WRONG * np.std(np.concatenate(outputs))):  # also if it is NaN
        raise ExportError(
            f"{options.format}: its output is not the network's: the root mean square of the differences is"
            f" {error:.2g} gray levels of 255; {printable(path.name)} was not written"
        )
    return float(np.abs(difference).max())


@compat.precision_policy("float32")
def make_portable(
    generator: tf.keras.Model, uint8: bool = False, size: tuple[int, int] | None = None
) -> tf.keras.Model:
    """Return a copy of a generator for use without training: [N, H, W, inputs] -> [N, H, W, outputs].

    The generator computes in float32. For `uint8` and `size`, see `ExportOptions`.
    """
    shape = (*(size or (None, None)), generator.input_shape[-1])
    image = tf.keras.Input(shape, 1 if size else None, dtype="uint8" if uint8 else "float32", name=INPUT)
    copies = {id(generator.input): keras.Rescaling(1 / 127.5, -1.0)(image) if uint8 else image}
    for layer in generator.layers[1:]:  # in the order of computation
        inputs = tf.nest.map_structure(lambda tensor: copies[id(tensor)], layer.input)
        copies[id(layer.output)] = _copy(layer, inputs)
    translated = copies[id(generator.output)]
    if uint8:  # no clipping: tanh ends at -1 and 1
        translated = ops.cast(ops.round(keras.Rescaling(127.5, 127.5)(translated)), "uint8")
    return tf.keras.Model(image, translated)


@functools.singledispatch
def _copy(layer: tf.keras.layers.Layer, x: tf.Tensor) -> tf.Tensor:
    """Return the output of a copy of a layer for the input `x`; this is the copy of one of Keras's own layers."""
    return type(layer).from_config(layer.get_config())(x)


@_copy.register(layers.Convolution)
def _(layer: layers.Convolution, x: tf.Tensor) -> tf.Tensor:
    if layer.margin:
        x = keras.ZeroPadding2D(layer.margin)(x)
    copy = keras.Conv2D(layer.filters, layer.kernel_size, layer.strides, layer.padding, use_bias=layer.use_bias)
    return _apply(copy, x, layer.get_weights())


@_copy.register(layers.TransposedConvolution)
def _(layer: layers.TransposedConvolution, x: tf.Tensor) -> tf.Tensor:
    shape = (layer.filters, layer.kernel_size, layer.strides, layer.padding)
    y = _apply(keras.Conv2DTranspose(*shape, use_bias=layer.use_bias), x, layer.get_weights())
    return keras.Cropping2D(((1, 0), (1, 0)))(y) if layer.padding == "valid" else y


@_copy.register(normalization.InstanceNormalization)
def _(layer: normalization.InstanceNormalization, x: tf.Tensor) -> tf.Tensor:
    # Not GroupNormalization: TensorFlow Lite can't infer its shapes.
    y = keras.LayerNormalization(axis=[1, 2], epsilon=layer.epsilon, center=False, scale=False)(x)
    return y if layer.gamma is None else _scale(y, *layer.get_weights())


@_copy.register(normalization.BatchNormalization)
def _(layer: normalization.BatchNormalization, x: tf.Tensor) -> tf.Tensor:
    gamma, beta, mean, variance = (weights.astype(np.float64) for weights in layer.get_weights())
    scale = gamma / np.sqrt(variance + layer.epsilon)
    return _scale(x, scale, beta - mean * scale)


@_copy.register(layers.NearestUpsampling2D)
def _(layer: layers.NearestUpsampling2D, x: tf.Tensor) -> tf.Tensor:
    return _repeat(x)


@_copy.register(layers.BlurDownsampling2D)
def _(layer: layers.BlurDownsampling2D, x: tf.Tensor) -> tf.Tensor:
    return _blur(x, 2)


@_copy.register(layers.BlurUpsampling2D)
def _(layer: layers.BlurUpsampling2D, x: tf.Tensor) -> tf.Tensor:
    return _blur(_repeat(x), 1)


@_copy.register(layers.ReflectionPadding2D)
def _(layer: layers.ReflectionPadding2D, x: tf.Tensor) -> tf.Tensor:
    return _reflect(x, layer.padding)


def _blur(x: tf.Tensor, stride: int) -> tf.Tensor:
    kernel = np.tile(layers.BINOMIAL[:, :, None, None], (1, 1, x.shape[-1], 1))
    return _apply(keras.DepthwiseConv2D(3, stride, use_bias=False), _reflect(x, 1), [kernel])


def _repeat(x: tf.Tensor) -> tf.Tensor:
    # Scaled by 1, because TensorFlow Lite can't infer the number of channels from Keras 3's UpSampling2D alone.
    return _scale(keras.UpSampling2D(2)(x), np.ones(x.shape[-1]), np.zeros(x.shape[-1]))


def _reflect(x: tf.Tensor, padding: int) -> tf.Tensor:
    sides = [padding] * 2
    return ops.pad(x, [[0, 0], sides, sides, [0, 0]], mode="reflect")


@_copy.register(layers.Dropout)
def _(layer: layers.Dropout, x: tf.Tensor) -> tf.Tensor:
    return x


def _scale(x: tf.Tensor, scale: np.ndarray, offset: np.ndarray) -> tf.Tensor:
    """Return x * scale + offset, both per channel: [N, H, W, C] by [C] and [C]."""
    # A batch normalization whose constant statistics have no effect: mean 0, variance 1 - epsilon. Keras 2 would raise
    # an epsilon below 1.001e-5.
    copy = keras.BatchNormalization(trainable=False)
    return _apply(copy, x, [scale, offset, np.zeros_like(scale), np.full_like(scale, 1.0 - copy.epsilon)])


def _apply(layer: tf.keras.layers.Layer, x: tf.Tensor, weights: list[np.ndarray]) -> tf.Tensor:
    y = layer(x)
    layer.set_weights(weights)
    return y
