"""Flags that change the program of a step, the arithmetic of the devices, or where training ends have this effect."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.distribution import hardware
from cyclegan.distribution.strategy import make_strategy
from cyclegan.training import setup
from cyclegan.training.gan import GAN
from cyclegan.training.step import compile_train_step
from tests.training.callbacks.test_evaluate import Scored
from tests.training.helpers import per_replica_batches
from tests.training.test_options import BASE

PROGRAM_FLAGS = {"precision": ["bfloat16", "float16"], "recompute": [True], "xla": ["on"]}
ARITHMETIC_FLAGS = {"tf32": ["off"], "deterministic": [True]}  # these change how the devices compute the same program
END_FLAGS = {"patience": [2], "max_bad_steps": [3]}


def cases(flags):
    """Return all pairs of a flag and one of its values."""
    return [(name, value) for name, values in flags.items() for value in values]


@functools.cache
def program(name=None, value=None):
    """Return how often the program of a training step has each operation on each type, and how many parts XLA compiles."""
    flag = {name: value} if name else {}
    config = Config.from_settings(**{**BASE, "image_size": 16, "discriminator_layers": 1, "residual_blocks": 1, **flag})
    gan, images = GAN(1, config), np.zeros((1, 1, 16, 16, 3), np.uint8)
    strategy = make_strategy(1)
    step = compile_train_step(strategy, gan, config.performance.xla == "on")
    batch = per_replica_batches(strategy, images, images)
    graph = step.get_concrete_function(batch, {}, tf.constant(1)).graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    compiled = sum(function.attr["_XlaMustCompile"].b for function in graph.library.function)
    return collections.Counter((node.op, node.attr["T"].type) for node in nodes), compiled


@pytest.mark.parametrize("name, value", cases(PROGRAM_FLAGS))
def test_flags_of_the_program_change_it(name, value):
    assert program(name, value) != program()


@pytest.mark.parametrize("name, value", cases(ARITHMETIC_FLAGS))
def test_flags_of_the_arithmetic_reach_tensorflow(monkeypatch, name, value):
    monkeypatch.setenv("TF_DISABLE_SCATTER_OP_DETERMINISM", "1")
    calls = []

    def enable(setting):
        return lambda *arguments: calls.append((setting, *arguments))

    for setting in ("enable_tensor_float_32_execution", "enable_op_determinism"):
        monkeypatch.setattr(tf.config.experimental, setting, enable(setting))
    monkeypatch.setattr(hardware, "measure_peak", lambda precision: calls.append("measured") or {}["the end"])
    for flag in ({}, {name: value}):
        with pytest.raises(KeyError):
            setup.make_trainer(Config.from_settings(precision="float32", **flag), None, None, None, None)
    plain, changed = calls[: calls.index("measured")], calls[calls.index("measured") + 1 : -1]
    assert plain != changed and calls[-1] == "measured"


@pytest.mark.parametrize("name, value", cases(END_FLAGS))
def test_flags_of_the_end_change_where_training_ends(fit, name, value):
    """Train with scores that never improve, and with steps that are not finite in the second epoch."""
    ends = []
    for flag in ({}, {name: value}):
        options = {"evaluation": Scored([0.5] * 99), "evaluate_every": 1, "bad": (4, 5, 6)}
        state = fit(9, **options, **flag)[2].state
        ends.append((state.epoch, state.step, state.reshuffles))
    assert ends[0] != ends[1]
