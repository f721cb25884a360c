"""Table of the kernels of a training step on a GPU, counted without one.

TensorFlow's graph optimizer returns the graph that a GPU would run, from a description of the GPU alone. Kernels, bytes and
floating-point operations are counted in this graph; milliseconds come from a model, so compare them only with each other.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple
from unittest import mock

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, device_properties_pb2, meta_graph_pb2
from tensorflow.python.framework import convert_to_constants  # not in tf
from tensorflow.python.grappler import cluster, tf_optimizer

from cyclegan.benchmarking.settings import Plan, Setting
from cyclegan.benchmarking.turns import Keep, Row, with_bar
from cyclegan.distribution import hardware
from cyclegan.training.gan import GAN
from cyclegan.training.step import train_step, update

# Operations that start no kernel on a GPU, because they rename or keep memory or run on the host.
WITHOUT_KERNEL = {
    *("Const", "Placeholder", "NoOp", "Identity", "IdentityN", "StopGradient", "ReadVariableOp"),
    *("Reshape", "ExpandDims", "Squeeze", "Shape", "ShapeN", "Pack", "Unpack"),
    *("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"),
    *("TensorListReserve", "TensorListSetItem", "TensorListStack"),
}
KEPT = ("Assign", "Resource", "Placeholder", "NoOp")  # beginnings of operations that the optimizer must not remove
ALIGNMENT = 64  # bytes, EIGEN_MAX_ALIGN_BYTES of TensorFlow's builds
START = 2e-6  # seconds that a kernel takes at least
# Where the output and the kernel of a convolution are: (is among the inputs, index).
CONVOLUTIONS = {
    "Conv2D": ((False, 0), (True, 1)),
    "_FusedConv2D": ((False, 0), (True, 1)),
    "Conv2DBackpropInput": ((True, 2), (True, 1)),
    "Conv2DBackpropFilter": ((True, 2), (False, 0)),
}


class Model(NamedTuple):
    """Assumed speeds of a GPU.

    Attributes:
        bandwidth: Bytes per second.
        flops: FLOP/s of convolutions by precision.
        serial_row: Seconds in which one thread adds four rows, one after the other.
    """

    bandwidth: float
    flops: dict[str, float]
    serial_row: float


MODELS = {  # by compute capability
    "8.0": Model(1.3e12, {"bfloat16": 130e12, "float16": 130e12, "float32": 65e12}, 0.21e-6),  # A100
    "9.0": Model(2.6e12, {"bfloat16": 350e12, "float16": 350e12, "float32": 170e12}, 0.15e-6),  # H100
}


def measure_census(plan: Plan, keep: Keep) -> list[Row]:
    """Return rows of counts: the default form of the step on one GPU, by architecture."""
    rows: list[Row] = []
    traced = functools.lru_cache(maxsize=1)(trace)
    for setting in with_bar(list(plan.settings()), "Counting"):
        function = traced(dataclasses.replace(setting, architecture=""))  # architectures change fastest
        graph = optimize(function, setting.architecture)
        rows.append({**dataclasses.asdict(setting), **count(graph, MODELS[setting.architecture], setting.precision)})
        keep(rows)
    return rows


def trace(setting: Setting) -> tf.types.experimental.ConcreteFunction:
    """Return the concrete function of a training step with its update, as on one GPU, without the loop over the steps."""
    image = tf.TensorSpec([setting.batch, setting.size, setting.size, 3], tf.uint8)
    with (
        mock.patch.object(hardware, "has_accelerator", lambda: True),
        mock.patch.object(hardware, "has_instructions_for", lambda precision: True),
    ):
        gan = GAN(setting.batch, setting.config())

        @tf.function(autograph=False)
        def step(x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor, number: tf.Tensor, rates: tf.Tensor) -> dict:
            metrics, gradients, carry = train_step(gan, x, y, weight, number)
            finite = tf.reduce_all(tf.math.is_finite(tf.stack(list(metrics.values()))))
            update(gan, gradients, finite, carry, number, rates)
            return metrics

        others: list[tuple[list[int], tf.DType]] = [([setting.batch], tf.float32), ([], tf.int64), ([2], tf.float32)]
        return step.get_concrete_function(image, image, *itertools.starmap(tf.TensorSpec, others))


def optimize(function: tf.types.experimental.ConcreteFunction, architecture: str) -> tf.Graph:
    """Return the graph that TensorFlow would run for a function on a GPU.

    Args:
        function: Concrete function whose shapes are all static.
        architecture: Compute capability of the GPU.
    """
    definition = _inline(function)
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
    optimized = tf_optimizer.OptimizeGraph(config, meta, cluster=_absent_gpu(architecture))
    _give_variables_shapes(optimized, function)
    for node in optimized.node:
        node.device = ""
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(optimized, name="")
    return graph


def _inline(function: tf.types.experimental.ConcreteFunction) -> graph_pb2.GraphDef:
    """Return the graph of a function with the functions that it calls inlined; nothing public does this and keeps variables."""
    return convert_to_constants._run_inline_graph_optimization(function, True, True)


def _shape_and_type(variable: tf.Tensor) -> Any:
    """Return the shape and type of the value behind the handle of a variable; only TensorFlow's own handle data has them."""
    return variable._handle_data.shape_and_type[0]


def _absent_gpu(architecture: str) -> cluster.Cluster:
    """Return a CPU and a GPU for the optimizer, which reads only the architecture and the versions of the libraries."""
    properties, named = device_properties_pb2.DeviceProperties, device_properties_pb2.NamedDevice
    gpu = properties(
        type="GPU", vendor="NVIDIA", frequency=1410, num_cores=108, memory_size=80 << 30, bandwidth=1_555_000_000
    )
    gpu.environment.update(architecture=architecture, cuda="12020", cudnn="8904")
    cpu = properties(type="CPU", frequency=2000, num_cores=8, memory_size=16 << 30, bandwidth=10_000_000)
    place = "/job:localhost/replica:0/task:0/device:"
    return cluster.Cluster(devices=[named(name=f"{place}{each.type}:0", properties=each) for each in (cpu, gpu)])


def _give_variables_shapes(definition: graph_pb2.GraphDef, function: tf.types.experimental.ConcreteFunction) -> None:
    """Replace each read of a variable by a placeholder of its shape, so that the shapes behind it are known."""
    known = {
        inner.op.name: _shape_and_type(outer) for outer, inner in function.graph.captures if inner.dtype == tf.resource
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


def count(graph: tf.Graph, model: Model, precision: str) -> dict[str, Any]:
    """Return the counts of a graph, by column of the table.

    Args:
        graph: Graph from `optimize`.
        model: Speeds of the GPU.
        precision: Type of the convolutions.

    Returns:
        `kernels` and `GB`: operations that start a kernel, and the bytes of their inputs and outputs; `kernels_without_views` and
        `GB_without_views`: the same without slices and splits along the first axis whose rows are multiples of 64 bytes, because
        their kernels share the memory of their input; `hidden_GB`: bytes beyond `GB` by which the kernel of a batch normalization
        changes the layout of its tensors and back, which only TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT=1 avoids, for float16 and
        in newer TensorFlow for bfloat16; `conv_TFLOP`: multiplications and additions of all convolutions; `transposes`: changes of
        the layout between operations; `serial_sums`: sums of many rows that TensorFlow gives to one thread per result;
        `modelled_ms` and `hidden_ms`: the sum over all kernels of the longest of start, bytes / bandwidth and FLOP / speed, and the
        same for `hidden_GB`.
    """
    kernels = [op for op in graph.get_operations() if op.type not in WITHOUT_KERNEL]
    moved = {op: sum(map(_bytes, (*op.inputs, *op.outputs))) for op in kernels}
    flops = {op: _flops(op) for op in kernels}
    views = [op for op in kernels if is_view(op)]
    rows = [rows for rows in map(serial_rows, kernels) if rows]
    hidden = [hidden_bytes(op) for op in kernels]
    seconds = sum(max(START, moved[op] / model.bandwidth, flops[op] / model.flops[precision]) for op in kernels)
    return {
        "kernels": len(kernels),
        "GB": sum(moved.values()) / 1e9,
        "kernels_without_views": len(kernels) - len(views),
        "GB_without_views": (sum(moved.values()) - sum(moved[op] for op in views)) / 1e9,
        "hidden_GB": sum(hidden) / 1e9,
        "conv_TFLOP": sum(flops.values()) / 1e12,
        "transposes": sum(op.type == "Transpose" for op in kernels),
        "serial_sums": len(rows),
        "modelled_ms": 1000 * (seconds + sum(rows) / 4 * model.serial_row),
        "hidden_ms": 1000 * sum(hidden) / model.bandwidth,
    }


def is_view(op: tf.Operation) -> bool:
    """Return whether the kernel only shares the memory of its input: a part along the first axis whose address is aligned."""
    if op.type not in ("Slice", "Split", "SplitV"):
        return False
    source = op.inputs[1 if op.type == "Split" else 0]
    rows, shape = source.shape[0], source.shape
    if any(output.shape[1:] != shape[1:] for output in op.outputs):
        return False
    if op.type != "Split" and shape.rank == 1:
        if op.type == "Slice":
            parts = [tf.get_static_value(part) for part in op.inputs[1:]]
            ends = [None if part is None else part[0] for part in parts]
        else:
            ends = list(itertools.accumulate(output.shape[0] for output in op.outputs))
        return all(end is not None and end * source.dtype.size % ALIGNMENT == 0 for end in ends)
    return bool(rows) and _bytes(source) // rows % ALIGNMENT == 0


def hidden_bytes(op: tf.Operation) -> int:
    """Return the bytes that a batch normalization of [N, H, W, C] moves to convert its tensors to [N, C, H, W] and back.

    Its kernel for training does so because cuDNN's is fast for that layout only.
    """
    if (
        not op.type.startswith("FusedBatchNorm")
        or op.get_attr("data_format") != b"NHWC"
        or not op.get_attr("is_training")
    ):
        return 0
    return (6 if "Grad" in op.type else 4) * _bytes(op.inputs[0])  # each of 2 or 3 tensors is read and written


def serial_rows(op: tf.Operation) -> int:
    """Return the rows that a single thread sums, one after the other; 0 if the kernel runs them in parallel.

    TensorFlow gives each result to one thread if the middle of three axes is summed and is less than 16 times as long as the
    number of results.
    """
    if op.type not in ("Sum", "Mean") or not op.inputs[0].shape.is_fully_defined():
        return 0
    shape, axes = op.inputs[0].shape.as_list(), tf.get_static_value(op.inputs[1])
    if axes is None:
        return 0
    summed = {int(axis) % len(shape) for axis in axes.reshape(-1)}
    sizes = [(axis in summed, size) for axis, size in enumerate(shape) if size != 1]
    merged = [(key, [size for _, size in group]) for key, group in itertools.groupby(sizes, lambda each: each[0])]
    if [key for key, _ in merged] != [False, True, False]:
        return 0
    outer, rows, inner = (functools.reduce(int.__mul__, group) for _, group in merged)
    return rows if rows // (outer * inner) < 16 else 0


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
