"""Operations of a step that a GPU would leave to the CPU, found without a GPU.

These have no GPU kernel for their types, or a kernel that computes on the host, as for int32, so the host waits for the
device.
"""

import collections
import functools

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry  # not in tf.config

from cyclegan.config import Config
from cyclegan.distribution import hardware
from cyclegan.methods import OBJECTIVES
from cyclegan.training.step import GAN, compile_train_step
from tests.training.helpers import FEW_LAYERS

pytestmark = pytest.mark.skipif(
    not tf.sysconfig.get_build_info()["is_cuda_build"], reason="this TensorFlow was built without kernels for GPUs"
)


def fits(constraint, attribute):
    """Return whether a kernel takes the types of a node's attribute."""
    types = attribute.list.type if attribute.WhichOneof("value") == "list" else [attribute.type]
    return set(types) <= set(constraint.allowed_values.list.type)


@functools.lru_cache(None)
def kernels_of(operation):
    """Return the kernels that a GPU has for an operation."""
    found = kernels.get_registered_kernels_for_op(operation).kernel
    return [kernel for kernel in found if kernel.device_type in ("GPU", "DEFAULT")]


def kernel_of(node):
    """Return the kernel that a GPU has for a node, or `None`."""
    found = [kernel for kernel in kernels_of(node.op) if all(fits(c, node.attr[c.name]) for c in kernel.constraint)]
    return next(iter(sorted(found, key=lambda kernel: kernel.device_type == "DEFAULT")), None)


def without_gpu_kernel(nodes):
    """Return the operations, with their types, that have no kernel for GPUs or for any device."""
    found = set()
    for node in nodes:
        if kernel_of(node) is None:
            types = (tf.as_dtype(value.type).name for value in node.attr.values() if value.type)
            found.add((node.op, *sorted(types)))
    return found


def nodes(function):
    """Return the nodes of a concrete function and of all functions that it calls, loops included."""
    graph = function.graph.as_graph_def()
    return [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]


def body_of_loop(function):
    """Return the nodes of the body of a concrete function's loop."""
    graph = function.graph.as_graph_def()
    (loop,) = [node for node in graph.node if node.op == "While"]
    (body,) = [each for each in graph.library.function if each.signature.name == loop.attr["body"].func.name]
    return body.node_def


# Operations that pass values on have these types on the host.
ON_HOST = {tf.as_dtype(name).as_datatype_enum for name in ("int32", "resource", "variant", "string")}
PASSING_ON = {"Identity", "IdentityN", "PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile"}


def arguments(node, definitions):
    """Return [(name, type)] of the inputs or outputs of a node, from the arguments of its operation."""
    result = []
    for argument in definitions:
        types = [node.attr[argument.type_attr].type] if argument.type_attr else [argument.type]
        if argument.type_list_attr:
            types = node.attr[argument.type_list_attr].list.type
        count = node.attr[argument.number_attr].i if argument.number_attr else 1
        result += [(argument.name, each) for each in types] * count
    return result


def waits(function):
    """Return the inputs for which the host would wait: (operation, its input, operation that makes the input).

    Inputs that depend on constants and shapes alone are computed before the first step.
    """
    found = set()
    for definition in (function.function_def, *function.graph.as_graph_def().library.function):
        nodes = {node.name: node for node in definition.node_def}
        given = {argument.name: argument.type in ON_HOST for argument in definition.signature.input_arg}

        @functools.lru_cache(None)
        def is_constant(name, nodes=nodes):
            if name not in nodes or op_def_registry.get(nodes[name].op).is_stateful or nodes[name].op in PASSING_ON:
                return False
            inputs = [each.lstrip("^").split(":")[0] for each in nodes[name].input]
            return nodes[name].op in ("Const", "Shape") or (bool(inputs) and all(map(is_constant, inputs)))

        def on_host(name, nodes=nodes, given=given, is_constant=is_constant):
            if name in given:
                return given[name]
            name, output, _ = name.split(":")
            node = nodes[name]
            if node.op in PASSING_ON:
                return dict(arguments(node, op_def_registry.get(node.op).output_arg))[output] in ON_HOST
            return is_constant(name) or output in kernel_of(node).host_memory_arg

        for node in definition.node_def:
            if node.op in PASSING_ON:
                continue
            wanted = arguments(node, op_def_registry.get(node.op).input_arg)
            for (argument, kind), name in zip(wanted, node.input):
                on_device = kind not in ON_HOST - {tf.int32.as_datatype_enum} and not on_host(name)
                if argument in kernel_of(node).host_memory_arg and on_device:
                    found.add((node.op, argument, nodes[name.split(":")[0]].op if ":" in name else name))
    return found


# Operations for which TensorFlow has no deterministic GPU kernel, by the texts of its errors.
NOT_DETERMINISTIC = {
    *("AdjustContrast", "AdjustContrastv2", "ResizeNearestNeighborGrad", "SparseTensorDenseMatMul"),
    *("CropAndResizeGradImage", "CropAndResizeGradBoxes"),
}


def not_deterministic(nodes):
    """Return the operations that are not deterministic on a GPU with --deterministic."""
    found = {node.op for node in nodes} & NOT_DETERMINISTIC
    found |= {node.op for node in nodes if "BatchNormGrad" in node.op and not node.attr["is_training"].b}
    # `set_arithmetic` leaves out the deterministic kernels for scattering, which the image pool does not need.
    return found | {node.op for node in nodes if "Scatter" in node.op} - {"ResourceScatterUpdate"}


# Options that add operations, in as few steps as possible; all have a pool.
RICH = {
    **{"adversarial": "wgan-gp", "r1": 1.0, "diffaugment": "color,translation,cutout", "dropout": 0.5, "ema": 0.9},
    **{"clip_norm": 1.0, "weight_decay": 0.1, "discriminator_steps": 2, "upsample": "resize", "variant": "paper"},
}
OTHER = {"adversarial": "bce", "label_smoothing": 0.1, "norm": "batch", "variant": "paper", "generator_steps": 2}


@pytest.mark.sampled
@pytest.mark.parametrize(
    "replicas, precision, options",
    [
        (1, "float32", {"clip_norm": 1.0}),
        (2, "bfloat16", {"recompute": True, "residual_blocks": 1, "clip_norm": 1.0}),
        (1, "float16", {}),
        (1, "float32", RICH),
        (1, "bfloat16", OTHER),
        *((1, "bfloat16", {"objective": name, "residual_blocks": 1}) for name in OBJECTIVES if name != "cyclegan"),
    ],
)
def test_a_step_has_gpu_kernels_and_never_waits(replicas, precision, options, monkeypatch):
    monkeypatch.setattr(hardware, "has_accelerator", lambda: True)
    monkeypatch.setattr(hardware, "has_instructions_for", lambda precision: True)
    # This strategy traces the reductions that GPUs have. Nothing may run on CPU:0, where the host of GPUs would be.
    devices = [f"CPU:{1 + i}" for i in range(replicas)]
    strategy = tf.distribute.MirroredStrategy(devices)
    with strategy.scope():
        gan = GAN(
            replicas,
            Config.from_settings(**{"filters": 2, **FEW_LAYERS, "image_size": 32, "precision": precision, **options}),
        )
    step = compile_train_step(strategy, gan)
    share = tf.zeros([2, 1, 32, 32, 3], tf.uint8), tf.ones([2, 1])
    images, weight = (strategy.experimental_distribute_values_from_function(lambda _, v=v: v) for v in share)
    totals = {name: tf.TensorSpec([], tf.float64) for name in gan.metric_names["train"]}
    function = step.get_concrete_function((images, images, weight), totals, tf.TensorSpec([], tf.int32))
    traced = nodes(function)
    body = body_of_loop(function)
    assert {node.device.rpartition("device:")[2] for node in body if node.device} == set(devices)
    collectives = [sum(node.op == "CollectiveReduceV2" for node in part) for part in (body, traced)]
    assert collectives == [replicas if replicas > 1 else 0] * 2  # one per replica and step
    types = {tf.as_dtype(node.attr["T"].type).name for node in traced if node.op == "Conv2DBackpropFilter"}
    assert types == {precision}  # the loop's steps are among the nodes, in the GPU's type
    assert without_gpu_kernel(traced) == set()
    assert waits(function) == set()
    operations = collections.Counter(node.op for node in traced)
    assert operations["MulNoNan"] == 2 * replicas  # one of all gradients of an optimizer
    if "weight_decay" not in options:  # which has a norm of each variable
        norms = (
            2 if "clip_norm" in options and replicas > 1 else 1
        )  # of the replica's own gradients, and of the sum to clip
        assert operations["L2Loss"] == 2 * replicas * norms
    assert not_deterministic(traced) == set()


def test_waiting_operations_are_found():
    def taken(kind):
        numbers = tf.TensorSpec([4], tf.float32)
        take = tf.function(lambda x: tf.cast(x, kind)[1:] - tf.constant([3, 2, 1], kind) * tf.size(x, kind))
        return waits(take.get_concrete_function(numbers))

    assert taken(tf.int64) == set()
    assert taken(tf.int32) == {("StridedSlice", "input", "Cast")}
    sliced = tf.function(lambda x, start: x[start:])
    begins = waits(sliced.get_concrete_function(tf.TensorSpec([4], tf.float32), tf.TensorSpec([], tf.int64)))
    assert begins == {("StridedSlice", "begin", "Pack")}
