"""Recompute the table of memory in docs/performance.md, and count the numbers of its formula in the graph of a step."""

import functools
import itertools
import pathlib
import re

import pytest
import tensorflow as tf

from cyclegan.benchmarking import census
from cyclegan.config import Config
from cyclegan.distribution import hardware
from cyclegan.training.gan import GAN
from cyclegan.training.step import train_step

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
PER_PIXEL = {False: 8050, True: 4400}  # numbers that a pair of images keeps for the backward pass, by --recompute
MORE_OPERATIONS = 0.27  # of a step with --recompute
COPIES = 6  # of all weights, in float32: weights, two of Adam, gradients, packed gradients, copies in bfloat16
WEIGHTS = 2 * (11_383_427 + 2_765_633)
POOL_BYTES = 2 * 50 * 3 * 4  # of both image pools, for each pixel
USABLE = 0.8
SIDES, CARDS = (128, 256, 512, 1024), (8, 12, 16, 24, 40, 80)
RECOMPUTED = (512, 1024)  # sides with rows for --recompute
BYTES = {"bfloat16": 2, "float32": 4}
PASSING_ON = ("Identity", "IdentityN", "Reshape")


def constant_gb(side):
    return (4 * COPIES * WEIGHTS + POOL_BYTES * side**2) / 1e9


def pair_gb(side, precision, recompute=False):
    return PER_PIXEL[recompute] * side**2 * BYTES[precision] / 1e9


def batch(card, *settings):
    """Return the largest batch per GPU that fits into a card with this memory in GB; 0 if none does."""
    return int((USABLE * card - constant_gb(settings[0])) / pair_gb(*settings))


def table():
    for side, precision, recompute in itertools.product(SIDES, BYTES, PER_PIXEL):
        if side in RECOMPUTED or not recompute:
            total = constant_gb(side) + pair_gb(side, precision, recompute)
            batches = " | ".join(str(batch(card, side, precision, recompute) or "-") for card in CARDS)
            flag = ", `--recompute`" if recompute else ""
            yield f"| {side} px, {precision}{flag} | {total:.1f} | {batches} |"


def test_table_is_the_formula():
    found = re.findall(r"^\| \d+ px, .*", PAGE, re.MULTILINE)
    assert found == list(table())


def test_text_has_the_numbers_of_the_formula():
    text = " ".join(PAGE.split())
    assert f"{4 * COPIES * WEIGHTS / 1e9:.2f} GB + {POOL_BYTES:,} B x side²" in text
    assert f"{PER_PIXEL[False]:,} numbers x side²" in text and f"{100 * USABLE:.0f} %" in text
    assert f"{PER_PIXEL[True]:,} instead of {PER_PIXEL[False]:,} numbers, for {100 * MORE_OPERATIONS:.0f} %" in text


def source(tensor, passing_on):
    """Return the tensor that operations of some types pass on."""
    while tensor.op.type in passing_on:
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor


def kept_for_backward(function):
    """Return the bytes of the tensors that operations of the backward pass read from the forward pass, without weights."""
    kept, backward = {}, set()
    for operation in function.graph.get_operations():
        # Recomputed operations depend on a gradient, so that they cannot run earlier.
        if "gradient_tape" not in operation.name and not any(tensor.op in backward for tensor in operation.inputs):
            continue
        backward.add(operation)
        for tensor in operation.inputs:
            if tensor.op in backward or not tensor.shape.is_fully_defined():
                continue
            tensor = source(tensor, PASSING_ON)
            if source(tensor, (*PASSING_ON, "Cast")).op.type not in ("Const", "ReadVariableOp"):
                kept[tensor.name] = tensor.shape.num_elements() * tensor.dtype.size
    return sum(kept.values())


@functools.lru_cache(None)
def counted(precision, recompute):
    """Return the bytes that a step at 256 px keeps, and its multiplications and additions."""
    image = tf.TensorSpec([1, 256, 256, 3], tf.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardware, "has_accelerator", lambda: True)
        patch.setattr(hardware, "has_instructions_for", lambda precision: True)
        gan = GAN(1, Config.from_settings(precision=precision, pool_size=1, recompute=recompute))
        assert gan.networks.parameter_counts() == (11_383_427, 2_765_633, 0)
        step = tf.function(lambda x, y: train_step(gan, x, y, tf.ones([1]))[:2], autograph=False)
        function = step.get_concrete_function(image, image)
    return kept_for_backward(function), sum(map(census._flops, function.graph.get_operations()))


@pytest.mark.slow
@pytest.mark.parametrize("precision, recompute", [("bfloat16", False), ("float32", False), ("bfloat16", True)])
def test_a_step_keeps_as_many_numbers_as_the_formula_has(precision, recompute):
    kept, _ = counted(precision, recompute)
    assert pair_gb(256, precision, recompute) == pytest.approx(kept / 1e9, rel=0.01)


@pytest.mark.slow
def test_recomputation_adds_as_many_operations_as_the_text_has():
    (_, plain), (_, again) = (counted("bfloat16", recompute) for recompute in PER_PIXEL)
    assert again / plain - 1 == pytest.approx(MORE_OPERATIONS, abs=0.005)
