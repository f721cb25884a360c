"""Count the kernels of steps, without a GPU, and compare with bounds."""

import collections

import pytest
import tensorflow as tf

from cyclegan.benchmarking import census
from cyclegan.cli import benchmark
from cyclegan.config import Config
from cyclegan.distribution import hardware
from cyclegan.methods.cyclegan import LOSSES
from cyclegan.networks import instance_normalization
from cyclegan.training.gan import GAN
from cyclegan.training.step import compile_train_step

MODEL = census.Model(1e9, {"float32": 1e12}, 4e-3)


@pytest.fixture
def graph():
    """Return a graph, in which a test makes operations."""
    with tf.Graph().as_default() as graph:
        yield graph


def floats(*shape):
    return tf.compat.v1.placeholder(tf.float32, shape)


def test_counts_by_hand(graph):
    x, kernel = floats(1, 8, 8, 4), floats(3, 3, 4, 16)
    y = tf.nn.conv2d(tf.identity(x), kernel, 1, "SAME")
    tf.reshape(tf.transpose(y, [0, 3, 1, 2]), [-1])
    counts = census.count(graph, MODEL, "float32")
    images, output = 4 * 8 * 8 * 4, 4 * 8 * 8 * 16  # bytes
    assert counts["kernels"] == 2 and counts["transposes"] == 1
    permutation = 4 * 4
    moved = images + 4 * 3 * 3 * 4 * 16 + output + 2 * output + permutation
    assert counts["GB"] == counts["GB_without_views"] == pytest.approx(moved / 1e9)
    assert counts["conv_TFLOP"] == pytest.approx(2 * 8 * 8 * 16 * 3 * 3 * 4 / 1e12)
    assert counts["modelled_ms"] == pytest.approx(moved / 1e6)  # at 1 GB/s


def test_convolutions_and_their_gradients_have_the_same_flops(graph):
    x, kernel = floats(2, 9, 9, 4), floats(3, 3, 4, 16)
    y = tf.nn.conv2d(x, kernel, 2, "SAME")
    tf.gradients(y, [x, kernel])
    flops = {op.type: census._flops(op) for op in graph.get_operations() if census._flops(op)}
    expected = 2 * (2 * 5 * 5 * 16) * (3 * 3 * 4)
    assert flops == dict.fromkeys(("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"), expected)


def test_aligned_parts_along_the_first_axis_are_views(graph):
    aligned, unaligned, vector = floats(4, 2, 8), floats(4, 2, 7), floats(96)  # rows of 64 and 56 bytes
    views = [tf.slice(aligned, [1, 0, 0], [2, 2, 8]), tf.slice(vector, [16], [32])]
    views += [tf.split(aligned, 2)[0], tf.split(aligned, [1, 3])[0], tf.split(vector, [16, 80])[0]]
    copies = [tf.slice(unaligned, [1, 0, 0], [2, 2, 7]), tf.slice(aligned, [0, 1, 0], [4, 1, 8])]
    copies += [tf.slice(vector, [8], [32]), tf.slice(vector, [16], [33]), tf.split(vector, 2)[0]]
    copies += [tf.split(unaligned, 2)[0], tf.split(aligned, 2, axis=2)[0], tf.split(vector, [15, 81])[0], vector + 1]
    assert [census.is_view(tensor.op) for tensor in views] == [True] * len(views)
    assert [census.is_view(tensor.op) for tensor in copies] == [False] * len(copies)
    counts = census.count(graph, MODEL, "float32")
    assert counts["kernels"] - counts["kernels_without_views"] == len(views)


@pytest.mark.parametrize(
    "layout, training, passes", [("NHWC", True, (4, 6)), ("NCHW", True, (0, 0)), ("NHWC", False, (0, 0))]
)
def test_batch_normalization_hides_changes_of_the_layout(graph, layout, training, passes):
    x, vector = floats(2, 8, 8, 8), floats(8)
    statistics = [tf.zeros([0])] * 2 if training else [vector, vector]
    y, *_ = tf.compat.v1.nn.fused_batch_norm(x, vector, vector, *statistics, data_format=layout, is_training=training)
    tf.gradients(y, x)
    hidden = {op.type: census.hidden_bytes(op) for op in graph.get_operations()}
    size = 4 * 2 * 8 * 8 * 8
    assert (hidden["FusedBatchNormV3"], hidden["FusedBatchNormGradV3"]) == tuple(size * each for each in passes)


@pytest.mark.parametrize(
    "shape, axes, rows",
    [
        ([1, 64, 64, 3], [1, 2], 0),  # two axes remain
        ([2, 64, 64, 256], [1, 2], 4096),
        ([2, 1, 4096, 256], [2], 4096),
        ([2, 64, 64, 2], [1, 2], 0),  # few results of many rows
        ([2, 64, 64, 256], [3], 0),
        ([2, 64, 64, 256], [0, 1, 2], 0),
    ],
)
def test_sums_of_many_rows_by_one_thread(graph, shape, axes, rows):
    assert census.serial_rows(tf.reduce_mean(floats(*shape), axes).op) == rows
    assert census.serial_rows(floats(*shape).op) == 0


def count_for_gpu(function, *shapes):
    """Return the counts of a function in bfloat16 on an A100."""
    tensors = [tf.TensorSpec(shape, tf.bfloat16) for shape in shapes]
    concrete = tf.function(function, autograph=False).get_concrete_function(*tensors)
    return census.count(census.optimize(concrete, "8.0"), MODEL, "float32")


@pytest.mark.parametrize("layout, transposes", [("NHWC", 0), ("NCHW", 2)])
def test_transposes_of_the_optimizer_are_counted(layout, transposes):
    def convolve(x, kernel):
        return tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME", data_format=layout))

    assert count_for_gpu(convolve, [2, 32, 32, 32], [3, 3, 32, 32])["transposes"] == transposes


@pytest.mark.parametrize("samples, sums", [(1, 0), (2, 2)])
def test_serial_sums_of_plain_normalization_are_counted(samples, sums):
    layer = instance_normalization.PlainInstanceNormalization(center=False, scale=False)
    assert count_for_gpu(layer, [samples, 32, 32, 64])["serial_sums"] == sums


def counted(*flags):
    """Return the rows of a census."""
    return benchmark.main(["--census", *flags])["census"]


def test_tiny_step(capsys):
    flags = ["--size", "16", "--filters", "2", "--residual_blocks", "0", "--architecture", "8.0", "9.0"]
    rows = counted(*flags)
    assert [row["architecture"] for row in rows] == ["8.0", "9.0"]
    for row in rows:
        assert row["precision"] == "bfloat16" and row["variant"] == "keras"
        assert 500 < row["kernels_without_views"] < row["kernels"] <= 980
        assert 0 < row["GB_without_views"] < row["GB"] < 0.003 and row["hidden_GB"] > 0 and row["conv_TFLOP"] > 0
        assert row["transposes"] == row["serial_sums"] == 0
    assert "| 16 | 1 | bfloat16 | keras | 5 | 9.0 |" in capsys.readouterr().out


# Bounds are up to 4 % above the counts, because other versions of TensorFlow may optimize differently.
@pytest.mark.slow
@pytest.mark.parametrize(
    "batch, variant, kernels, gigabytes",
    [(1, "keras", 2300, 13.0), (1, "paper", 2120, 13.0), (4, "keras", 3940, 59.4), (4, "paper", 3780, 59.4)],
)
def test_step_of_256_pixels(batch, variant, kernels, gigabytes):
    flags = ["--size", "256", "--batch", str(batch), "--variant", variant, "--architecture", "8.0", "9.0"]
    rows = counted(*flags)
    assert [row["architecture"] for row in rows] == ["8.0", "9.0"]
    for row in rows:
        assert row["kernels"] <= kernels and row["GB"] <= gigabytes
        assert row["transposes"] == row["serial_sums"] == 0


def operations(replicas):
    """Return the operations of a step by device, as a GPU would get them, with one image pair per replica."""
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])  # traces the reductions of GPUs
    with strategy.scope():
        options = {"filters": 2, "residual_blocks": 0, "discriminator_layers": 1, "lambda_identity": 0.0}
        gan = GAN(replicas, Config.from_settings(**options, image_size=16, precision="bfloat16"))
    share = tf.zeros([1, 1, 16, 16, 3], tf.uint8), tf.ones([1, 1])
    images, weight = (strategy.experimental_distribute_values_from_function(lambda _, v=v: v) for v in share)
    totals = {LOSSES[0]: tf.TensorSpec([], tf.float64)}
    step = compile_train_step(strategy, gan)
    function = step.get_concrete_function((images, images, weight), totals, tf.TensorSpec([], tf.int32))
    graph = function.graph.as_graph_def()
    (loop,) = [node for node in graph.node if node.op == "While"]
    (body,) = [each for each in graph.library.function if each.signature.name == loop.attr["body"].func.name]
    return collections.Counter(node.device.rpartition("/")[2] for node in body.node_def)


@pytest.mark.slow
def test_operations_of_a_replica_do_not_depend_on_the_number_of_replicas(monkeypatch):
    monkeypatch.setattr(hardware, "has_accelerator", lambda: True)
    monkeypatch.setattr(hardware, "has_instructions_for", lambda precision: True)
    one, two, eight = map(operations, (1, 2, 8))
    first, second, *_ = devices = [f"device:CPU:{i}" for i in range(8)]
    assert two[first] == eight[first] and {eight[device] for device in devices[1:]} == {two[second]}
    assert two[second] < two[first]  # the first device also has the loop
    assert one[first] < two[first] < one[first] + 100  # the reduction, and packing for it
    assert eight.keys() == {*devices, ""} and eight[""] == 4 * two[""] == 8 * one[""]  # and constants without a device
