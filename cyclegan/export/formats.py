"""File formats by name."""

from __future__ import annotations

import dataclasses

from cyclegan.export import keras_file, onnx_file, savedmodel, tflite
from cyclegan.export.export_format import ExportFormat

FORMATS: dict[str, ExportFormat] = {
    "savedmodel": savedmodel.FORMAT,
    "keras": keras_file.FORMAT,
    "onnx": onnx_file.FORMAT,
    "tflite": tflite.FORMAT,
    "web": dataclasses.replace(onnx_file.FORMAT, marker="networks.json"),  # the networks of a page, see `web_page`
}
