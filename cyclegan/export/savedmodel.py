"""Export as a SavedModel, a folder."""

from __future__ import annotations

import pathlib

import tensorflow as tf

from cyclegan.export.export_format import OUTPUT, ExportFormat, Translate, traced_function


def write(model: tf.keras.Model, path: pathlib.Path, float16: bool) -> None:
    """Write a SavedModel; it has no float16."""
    module = tf.Module()
    module.__call__, _ = traced_function(model)
    module.weights = module.__call__.get_concrete_function().variables
    tf.saved_model.save(module, str(path), signatures=module.__call__)


def load(path: pathlib.Path) -> Translate:
    """Load a SavedModel with TensorFlow."""
    translate = tf.saved_model.load(str(path))
    return lambda x: translate(tf.constant(x))[OUTPUT].numpy()


FORMAT = ExportFormat(write, load, marker="saved_model.pb")
