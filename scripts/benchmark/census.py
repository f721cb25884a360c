"""Table of the kernels of a training step on a GPU, counted without one.

TensorFlow's graph optimizer returns the graph that a GPU would run, from a description of the GPU alone. Kernels, bytes
and floating-point operations are counted in this graph.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, device_properties_pb2, meta_graph_pb2
from tensorflow.python.framework import convert_to_constants  # not in tf
from tensorflow.python.grappler import cluster, tf_optimizer

from cyclegan.distribution import hardware
from cyclegan.training.step import GAN, Batch, train_step, update
from scripts.benchmark.steps import Row, Setting, settings_of

# Operations that start no kernel on a GPU, because they rename or keep memory or run on the host.
WITHOUT_KERNEL = {
    *("Const", "Placeholder", "NoOp", "Identity", "IdentityN", "StopGradient", "ReadVariableOp"),
    *("Reshape", "ExpandDims", "Squeeze", "Shape", "ShapeN", "Pack", "Unpack"),
    *("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"),
    *("TensorListReserve", "TensorListSetItem", "TensorListStack"),
}
KEPT = ("Assign", "Resource", "Placeholder", "NoOp")  # beginnings of operations that the optimizer must not remove
# Where the output and the kernel of a convolution are: (is among the inputs, index).
CONVOLUTIONS = {
    "Conv2D": ((False, 0), (True, 1)),
    "_FusedConv2D": ((False, 0), (True, 1)),
    "Conv2DBackpropInput": ((True, 2), (True, 1)),
    "Conv2DBackpropFilter": ((True, 2), (False, 0)),
}


def measure_census(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Yield the rows of counts so far: the step of the package on one GPU."""
    rows: list[Row] = []
    for setting in settings_of(options):
        rows.append({**dataclasses.asdict(setting), **count(optimize(trace(setting)))})
        yield rows


def trace(setting: Setting) -> tf.types.experimental.ConcreteFunction:
    """Return the concrete function of a training step with its update, as on one GPU, without a loop."""
    image = tf.TensorSpec([setting.batch, setting.size, setting.size, 3], tf.uint8)
    with hardware.assume_gpu():
        gan = GAN(setting.batch, setting.config())

        @tf.function(autograph=False)
        def step(x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor, number: tf.Tensor, rates: tf.Tensor) -> dict:
            metrics, gradients, carry = train_step(gan, Batch(x, y, weight), number)
            finite = tf.reduce_all(tf.math.is_finite(tf.stack(list(metrics.values()))))
            update(gan, gradients, finite, carry, number, rates)
            return metrics

        others = tf.TensorSpec([setting.batch]), tf.TensorSpec([], tf.int64), tf.TensorSpec([2])
        return step.get_concrete_function(image, image, *others)


def optimize(function: tf.types.experimental.ConcreteFunction) -> tf.Graph:
    """Return the graph that TensorFlow would run for a concrete function, whose shapes are all static, on an A100."""
    definition = convert_to_constants._run_inline_graph_optimization(function, True, True)  # nothing public does
    shapes = {tensor.op.name: tensor.shape for tensor in function.inputs if tensor.dtype != tf.resource}
    for node in definition.node:
        node.device = "/job:localhost/replica:0/task:0/device:GPU:0"
        if node.name in shapes:
            node.attr["shape"].shape.CopyFrom(shapes[node.name].as_proto())
    meta = meta_graph_pb2.MetaGraphDef(graph_def=definition)
    kept = [node.name for node in definition.node if node.op.startswith(KEPT)]
    kept += [name.split(":")[0] for name in (output.name for output in function.outputs)]
    meta.collection_def["train_op"].node_list.value.extend(kept)
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.meta_optimizer_timeout_ms = 600_000
    optimized = tf_optimizer.OptimizeGraph(config, meta, cluster=_absent_gpu())
    _give_variables_shapes(optimized, function)
    for node in optimized.node:
        node.device = ""
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(optimized, name="")
    return graph


def _absent_gpu() -> cluster.Cluster:
    """Return a CPU and a GPU for the optimizer, which reads only the architecture and the versions of the libraries."""
    properties, named = device_properties_pb2.DeviceProperties, device_properties_pb2.NamedDevice
    gpu = properties(
        type="GPU", vendor="NVIDIA", frequency=1410, num_cores=108, memory_size=80 << 30, bandwidth=1_555_000_000
    )
    gpu.environment.update(architecture="8.0", cuda="12020", cudnn="8904")
    cpu = properties(type="CPU", frequency=2000, num_cores=8, memory_size=16 << 30, bandwidth=10_000_000)
    place = "/job:localhost/replica:0/task:0/device:"
    return cluster.Cluster(devices=[named(name=f"{place}{each.type}:0", properties=each) for each in (cpu, gpu)])


def _give_variables_shapes(definition: Any, function: tf.types.experimental.ConcreteFunction) -> None:
    """Replace each read of a variable by a placeholder of its shape, so that the shapes behind it are known."""
    known = {
        inner.op.name: outer._handle_data.shape_and_type[0]
        for outer, inner in function.graph.captures
        if inner.dtype == tf.resource
    }
    nodes = {node.name: node for node in definition.node}

    def variable(name: str) -> Any:
        node = nodes[name.split(":")[0]]
        return variable(node.input[0]) if node.op == "Identity" else known.get(node.name)

    reads = [node for node in definition.node if node.op in ("ReadVariableOp", "ResourceGather")]
    for node, found in [(node, variable(node.input[0])) for node in reads]:
        if found is None:
            continue
        shape = tf.TensorShape(found.shape)
        if node.op == "ResourceGather":  # of the images of a pool, one per sample
            shape = function.inputs[0].shape[:1] + shape[1:]
        replaced = tf.compat.v1.NodeDef(name=node.name, op="Placeholder", device=node.device)
        replaced.attr["dtype"].type = found.dtype
        replaced.attr["shape"].shape.CopyFrom(shape.as_proto())
        node.CopyFrom(replaced)


def count(graph: tf.Graph) -> dict[str, Any]:
    """Return the counts of a graph from `optimize`, by column of the table.

    `GB` is what the kernels read and write, `hidden_GB` what those of batch normalizations move to change the layout
    and back. `conv_TFLOP` has the multiplications and additions of all convolutions, `transposes` the changes of layout
    between operations.
    """
    kernels = [op for op in graph.get_operations() if op.type not in WITHOUT_KERNEL]
    return {
        "kernels": len(kernels),
        "GB": sum(_bytes(tensor) for op in kernels for tensor in (*op.inputs, *op.outputs)) / 1e9,
        "hidden_GB": sum(map(hidden_bytes, kernels)) / 1e9,
        "conv_TFLOP": sum(map(_flops, kernels)) / 1e12,
        "transposes": sum(op.type == "Transpose" for op in kernels),
    }


def hidden_bytes(op: tf.Operation) -> int:
    """Return the bytes that a batch normalization of [N, H, W, C] moves to change the layout and back.

    Its kernel for training converts tensors to [N, C, H, W] because cuDNN's is fast for that layout only.
    """
    converts = op.type.startswith("FusedBatchNorm") and op.get_attr("data_format") == b"NHWC"
    if not converts or not op.get_attr("is_training"):
        return 0
    return (6 if "Grad" in op.type else 4) * _bytes(op.inputs[0])  # each of 2 or 3 tensors is read and written


def _bytes(tensor: tf.Tensor) -> int:
    """Return the size of a tensor; 0 for a handle."""
    if tensor.dtype in (tf.resource, tf.variant, tf.string) or not tensor.shape.is_fully_defined():
        return 0
    return tensor.shape.num_elements() * tensor.dtype.size


def _flops(op: tf.Operation) -> int:
    """Return the multiplications and additions of a convolution; 0 for other operations."""
    if op.type not in CONVOLUTIONS:
        return 0
    output, kernel = (op.inputs[i] if is_input else op.outputs[i] for is_input, i in CONVOLUTIONS[op.type])
    return 2 * output.shape.num_elements() * kernel.shape[:3].num_elements()
