"""Export as a TensorFlow Lite file."""

from __future__ import annotations

import pathlib

import tensorflow as tf

from cyclegan.export import savedmodel
from cyclegan.export.export_format import INPUT, OUTPUT, ExportFormat, Translate


def write(model: tf.keras.Model, path: pathlib.Path, float16: bool) -> None:
    """Write a TensorFlow Lite file."""
    folder = path.with_name(".saved_model")
    savedmodel.write(model, folder, float16=False)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder))
    if float16:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]
    path.write_bytes(converter.convert())


def load(path: pathlib.Path) -> Translate:
    """Load a TensorFlow Lite file with TensorFlow's interpreter."""
    translate = tf.lite.Interpreter(str(path)).get_signature_runner()
    return lambda x: translate(**{INPUT: x})[OUTPUT]


FORMAT = ExportFormat(write, load, has_float16=True)
