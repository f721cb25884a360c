"""Export as a .keras file."""

from __future__ import annotations

import pathlib

import tensorflow as tf

from cyclegan.export.export_format import ExportFormat, Translate


def write(model: tf.keras.Model, path: pathlib.Path, float16: bool) -> None:
    """Write a .keras file; it has no float16."""
    model.save(path)


def load(path: pathlib.Path) -> Translate:
    """Load a .keras file with Keras in its safe mode."""
    model = tf.keras.models.load_model(path)
    return lambda x: model(x, training=False).numpy()


FORMAT = ExportFormat(write, load, suffix=".keras")
