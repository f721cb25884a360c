"""Description of a file format, and the function that all formats export."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Callable

import numpy as np
import tensorflow as tf

INPUT, OUTPUT = "picture", "translated"  # names of the input and the output in exported files

Translate = Callable[[np.ndarray], np.ndarray]  # [N, H, W, C] -> [N, H, W, C]


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """A kind of file, or of folder.

    Attributes:
        write: Write a model of `make_portable` to a path, with weights rounded to float16 if the third argument is true.
        load: Load such a file with the program that will run it, and return the function in it.
        packages: Packages that `write` and `load` need besides TensorFlow.
        suffix: End of the names of such files, if the format demands one.
        has_float16: Whether the format can store weights as float16.
        marker: Name of a file that each folder of this kind contains; empty for a format that is a file.
    """

    write: Callable[[tf.keras.Model, pathlib.Path, bool], None]
    load: Callable[[pathlib.Path], Translate]
    packages: tuple[str, ...] = ()
    suffix: str = ""
    has_float16: bool = False
    marker: str = ""


def traced_function(model: tf.keras.Model) -> tuple[tf.types.experimental.GenericFunction, list[tf.TensorSpec]]:
    """Return the function {INPUT: tensor} -> {OUTPUT: tensor} of a model, and its input signature."""
    signature = [tf.TensorSpec(model.inputs[0].shape, model.inputs[0].dtype, INPUT)]
    # The name of the parameter becomes the name of the input in all formats.
    translate = tf.function(lambda picture: {OUTPUT: model(picture, training=False)}, signature, autograph=False)
    return translate, signature
