"""Export as an ONNX file."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

import tensorflow as tf

from cyclegan.export.export_format import INPUT, OUTPUT, ExportFormat, Translate, traced_function

OPSET = 17  # ONNX Runtime reads it from 1.12 on


def write(model: tf.keras.Model, path: pathlib.Path, float16: bool) -> None:
    """Write an ONNX file; it has no float16."""
    from tf2onnx import convert

    with _without_reshape_optimizer():
        onnx, _ = convert.from_function(*traced_function(model), opset=OPSET)
    for value in (*onnx.graph.input, *onnx.graph.output):
        for dimension, name in zip(value.type.tensor_type.shape.dim, "NHW"):
            if not dimension.HasField("dim_value"):
                dimension.dim_param = name
    path.write_bytes(onnx.SerializeToString())


def load(path: pathlib.Path) -> Translate:
    """Load an ONNX file with ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda x: session.run([OUTPUT], {INPUT: x})[0]


@contextlib.contextmanager
def _without_reshape_optimizer() -> Iterator[None]:
    """Disable an optimization of tf2onnx that sometimes loses the last operation of networks to one channel.

    It did so in 2 of 12 trials with tf2onnx 1.17. `from_function` takes no list of optimizations, so this one is replaced.
    """
    from tf2onnx.optimizer.reshape_optimizer import ReshapeOptimizer

    ReshapeOptimizer.optimize = lambda self, graph, iteration: graph
    try:
        yield
    finally:
        del ReshapeOptimizer.optimize  # the class inherits the method


FORMAT = ExportFormat(write, load, packages=("tf2onnx", "onnx", "onnxruntime"))
