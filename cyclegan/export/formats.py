"""File formats: how each one is written, and loaded by the program that will run it."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Callable
from unittest import mock

import numpy as np
import tensorflow as tf

INPUT, OUTPUT = "picture", "translated"  # names of the input and the output in exported files
OPSET = 17  # of ONNX: ONNX Runtime reads it from 1.12 on

Translate = Callable[[np.ndarray], np.ndarray]  # [N, H, W, C] -> [N, H, W, C]


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """A kind of file, or of folder.

    `write` writes a model of `make_portable` to a path, with weights rounded to float16 if the third argument is true. `load`
    loads such a file with the program that will run it, and returns the function in it.
    """

    write: Callable[[tf.keras.Model, pathlib.Path, bool], None]
    load: Callable[[pathlib.Path], Translate]
    packages: tuple[str, ...] = ()  # that `write` and `load` need besides TensorFlow
    suffix: str = ""  # end of the names of such files, if the format demands one
    has_float16: bool = False  # whether the format can store weights as float16
    marker: str = ""  # name of a file in each folder of this kind; empty for a format that is a file


def traced_function(model: tf.keras.Model) -> tuple[tf.types.experimental.GenericFunction, list[tf.TensorSpec]]:
    """Return the function {INPUT: tensor} -> {OUTPUT: tensor} of a model, and its input signature."""
    signature = [tf.TensorSpec(model.inputs[0].shape, model.inputs[0].dtype, INPUT)]
    # The name of the parameter becomes the name of the input in all formats.
    translate = tf.function(lambda picture: {OUTPUT: model(picture, training=False)}, signature, autograph=False)
    return translate, signature


def _write_savedmodel(model: tf.keras.Model, path: pathlib.Path, float16: bool) -> None:
    module = tf.Module()
    module.__call__, _ = traced_function(model)
    module.weights = module.__call__.get_concrete_function().variables
    tf.saved_model.save(module, str(path), signatures=module.__call__)


def _load_savedmodel(path: pathlib.Path) -> Translate:
    translate = tf.saved_model.load(str(path))
    return lambda x: translate(tf.constant(x))[OUTPUT].numpy()


def _write_keras(model: tf.keras.Model, path: pathlib.Path, float16: bool) -> None:
    model.save(path)


def _load_keras(path: pathlib.Path) -> Translate:
    model = tf.keras.models.load_model(path)  # in its safe mode
    return lambda x: model(x, training=False).numpy()


def _write_onnx(model: tf.keras.Model, path: pathlib.Path, float16: bool) -> None:
    from tf2onnx import convert
    from tf2onnx.optimizer.reshape_optimizer import ReshapeOptimizer

    # This optimization sometimes loses the last operation of networks to one channel: in 2 of 12 trials with tf2onnx 1.17.
    # `from_function` takes no list of optimizations.
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


def _write_tflite(model: tf.keras.Model, path: pathlib.Path, float16: bool) -> None:
    folder = path.with_name(".saved_model")
    _write_savedmodel(model, folder, float16=False)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder))
    if float16:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]
    path.write_bytes(converter.convert())


def _load_tflite(path: pathlib.Path) -> Translate:
    translate = tf.lite.Interpreter(str(path)).get_signature_runner()
    return lambda x: translate(**{INPUT: x})[OUTPUT]


_ONNX = ExportFormat(_write_onnx, _load_onnx, packages=("tf2onnx", "onnx", "onnxruntime"))
FORMATS: dict[str, ExportFormat] = {
    "savedmodel": ExportFormat(_write_savedmodel, _load_savedmodel, marker="saved_model.pb"),
    "keras": ExportFormat(_write_keras, _load_keras, suffix=".keras"),
    "onnx": _ONNX,
    "tflite": ExportFormat(_write_tflite, _load_tflite, has_float16=True),
    "web": dataclasses.replace(_ONNX, marker="networks.json"),  # the networks of a page, see `web_page`
}
