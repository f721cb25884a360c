"""File formats by name."""

from __future__ import annotations

from cyclegan.export import keras_file, onnx_file, savedmodel, tflite
from cyclegan.export.export_format import ExportFormat

FORMATS: dict[str, ExportFormat] = {
    "savedmodel": savedmodel.FORMAT,
    "keras": keras_file.FORMAT,
    "onnx": onnx_file.FORMAT,
    "tflite": tflite.FORMAT,
}
