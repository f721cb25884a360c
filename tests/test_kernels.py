"""TensorFlow puts an operation on the CPU without a word where the GPU has no kernel for its types; that needs no GPU to see."""

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels  # what tf.config has not

from cyclegan import devices, distribute
from cyclegan.config import Config
from cyclegan.gan import LOSSES, CycleGAN

pytestmark = pytest.mark.skipif(
    not tf.sysconfig.get_build_info()["is_cuda_build"], reason="this TensorFlow was built without kernels for GPUs"
)


def fits(constraint, attribute):
    """Whether the types of a node's attribute are among those that a kernel takes."""
    types = attribute.list.type if attribute.WhichOneof("value") == "list" else [attribute.type]
    return set(types) <= set(constraint.allowed_values.list.type)


def without_gpu_kernel(nodes):
    """The operations, with their types, for which no kernel for GPUs, or for any device, is registered."""
    found = set()
    for node in nodes:
        registered = kernels.get_registered_kernels_for_op(node.op).kernel
        if not any(
            kernel.device_type in ("GPU", "DEFAULT") and all(fits(c, node.attr[c.name]) for c in kernel.constraint)
            for kernel in registered
        ):
            types = (tf.as_dtype(value.type).name for value in node.attr.values() if value.type)
            found.add((node.op, *sorted(types)))
    return found


def nodes(function):
    """The nodes of a concrete function and of all functions that it calls, those of loops included."""
    graph = function.graph.as_graph_def()
    return [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]


# What brings operations of its own, in as few steps as possible; all have a pool.
RICH = {
    **{"adversarial": "wgan-gp", "r1": 1.0, "diffaugment": "color,translation,cutout", "dropout": 0.5, "ema": 0.9},
    **{"clip_norm": 1.0, "weight_decay": 0.1, "discriminator_steps": 2, "upsample": "resize", "variant": "paper"},
}
OTHER = {"adversarial": "bce", "label_smoothing": 0.1, "norm": "batch", "variant": "paper", "generator_steps": 2}


@pytest.mark.parametrize(
    "precision, options", [("float32", {}), ("bfloat16", {}), ("float16", {}), ("float32", RICH), ("bfloat16", OTHER)]
)
def test_every_operation_of_a_training_step_has_a_kernel_for_gpus(strategies, precision, options, monkeypatch):
    monkeypatch.setattr(devices, "accelerated", lambda: True)
    monkeypatch.setattr(devices, "is_native", lambda precision: True)
    with strategies[1].scope():
        gan = CycleGAN(1, Config(filters=2, residual_blocks=1, image_size=32, precision=precision, **options))
    step = distribute.accumulate(strategies[1], gan.train_step, 1, gan.update)
    pictures, weight = tf.TensorSpec([2, 1, 32, 32, 3], tf.uint8), tf.TensorSpec([2, 1])
    totals = {name: tf.TensorSpec([]) for name in LOSSES}
    traced = nodes(step.get_concrete_function((pictures, pictures, weight), totals, tf.TensorSpec([], tf.int32)))
    types = {tf.as_dtype(node.attr["T"].type).name for node in traced if node.op == "Conv2DBackpropFilter"}
    assert types == {precision}  # so the steps of the loop are among the nodes, as they are on a GPU
    assert without_gpu_kernel(traced) == set()


def test_an_operation_without_a_kernel_for_gpus_is_found():
    @tf.function(autograph=False)
    def pad(x):
        return tf.while_loop(lambda x: True, lambda x: tf.pad(x, [[1, 1]], mode="REFLECT")[1:-1], [x])

    assert without_gpu_kernel(nodes(pad.get_concrete_function(tf.TensorSpec([4], tf.float32)))) == set()
    found = without_gpu_kernel(nodes(pad.get_concrete_function(tf.TensorSpec([4], tf.int32))))
    assert found == {("MirrorPad", "int32", "int32")}


def test_a_whole_step_is_one_program_of_static_shapes():
    """As TPUs want it, of which there is none to try it on: XLA takes no operation whose shapes it does not know."""
    config = Config(dataset="stripes", image_size=16, filters=2, residual_blocks=1, pool_size=2, ema=0.9, clip_norm=1.0)
    model = CycleGAN(1, config)

    @tf.function(autograph=False, jit_compile=True)
    def step(x, y, number):
        figures, gradients, kept = model.train_step(x, y, tf.ones([1]), number)
        model.update(gradients, tf.reduce_all(tf.math.is_finite(list(figures.values()))), kept, number)
        return figures

    pictures = tf.zeros([1, 16, 16, 3], tf.uint8)
    program = step.experimental_get_compiler_ir(pictures, pictures, tf.constant(0, tf.int64))(stage="hlo")
    assert "ENTRY" in program and "convolution(" in program
