"""Recompute the table of memory in docs/performance.md, and count the numbers of its formula in the graph of a step."""

import pathlib
import re

import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.distribution import hardware
from cyclegan.training.gan import GAN
from cyclegan.training.step import train_step

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
PER_PIXEL = 8950  # numbers that a pair of images keeps for the backward pass, for each pixel
COPIES = 6  # of all weights, in float32: weights, two of Adam, gradients, packed gradients, copies in bfloat16
WEIGHTS = 2 * (11_383_427 + 2_765_633)
POOL_BYTES = 2 * 50 * 3 * 4  # of both image pools, for each pixel
USABLE = 0.8
SIDES, CARDS = (128, 256, 512, 1024), (8, 12, 16, 24, 40, 80)
BYTES = {"bfloat16": 2, "float32": 4}
PASSING_ON = ("Identity", "Reshape")


def constant_gb(side):
    return (4 * COPIES * WEIGHTS + POOL_BYTES * side**2) / 1e9


def pair_gb(side, precision):
    return PER_PIXEL * side**2 * BYTES[precision] / 1e9


def batch(card, side, precision):
    """Return the largest batch per GPU that fits into a card with this memory in GB; 0 if none does."""
    return int((USABLE * card - constant_gb(side)) / pair_gb(side, precision))


def table():
    for side in SIDES:
        for precision in BYTES:
            total = constant_gb(side) + pair_gb(side, precision)
            batches = " | ".join(str(batch(card, side, precision) or "-") for card in CARDS)
            yield f"| {side} px, {precision} | {total:.1f} | {batches} |"


def test_table_is_the_formula():
    found = re.findall(r"^\| \d+ px, .*", PAGE, re.MULTILINE)
    assert found == list(table())


def test_text_has_the_numbers_of_the_formula():
    text = " ".join(PAGE.split())
    assert f"{4 * COPIES * WEIGHTS / 1e9:.2f} GB + {POOL_BYTES:,} B x side²" in text
    assert f"{PER_PIXEL:,} numbers x side²" in text and f"{USABLE:.0%}".replace("%", " %") in text


def kept_for_backward(function):
    """Return the bytes of the tensors that operations of the backward pass read from the forward pass."""
    kept = {}
    for operation in function.graph.get_operations():
        if "gradient_tape" not in operation.name:
            continue
        for tensor in operation.inputs:
            if "gradient_tape" in tensor.op.name or not tensor.shape.is_fully_defined():
                continue
            while tensor.op.type in PASSING_ON:
                tensor = tensor.op.inputs[0]
            if tensor.op.type not in ("Const", "ReadVariableOp"):
                kept[tensor.name] = tensor.shape.num_elements() * tensor.dtype.size
    return sum(kept.values())


@pytest.mark.slow
@pytest.mark.parametrize("precision", BYTES)
def test_a_step_keeps_as_many_numbers_as_the_formula_has(monkeypatch, precision):
    monkeypatch.setattr(hardware, "has_accelerator", lambda: True)
    monkeypatch.setattr(hardware, "has_instructions_for", lambda precision: True)
    side, image = 256, tf.TensorSpec([1, 256, 256, 3], tf.uint8)
    gan = GAN(1, Config.from_settings(precision=precision, pool_size=1))
    assert gan.networks.parameter_counts() == (11_383_427, 2_765_633)
    step = tf.function(lambda x, y: train_step(gan, x, y, tf.ones([1]))[:2], autograph=False)
    kept = kept_for_backward(step.get_concrete_function(image, image)) / 1e9
    copies = (
        4 * WEIGHTS / 1e9 if precision == "bfloat16" else 0.0
    )  # two copies in bfloat16 are counted with the weights
    assert pair_gb(side, precision) == pytest.approx(kept - copies, rel=0.03)
