"""Each optimization that `benchmark.py --without` names is off."""

import collections
from time import sleep

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.benchmarking import forms, levers
from cyclegan.benchmarking.settings import LEVERS, Setting
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.distribution import hardware
from cyclegan.methods.cyclegan import LOSSES
from cyclegan.methods.metric_names import SAMPLES
from cyclegan.networks import normalization
from cyclegan.training import in_flight


def operations(strategy, lever):
    """Return the number of operations of each type in a step."""
    count = strategy.num_replicas_in_sync
    setting = Setting("default", 16, count, "float32", "off", count, 5.0, 1, 2, 0)
    images = np.zeros((2, count, 20, 20, 3), np.uint8)
    batches = next(UnpairedDataset(*images, count, (16, 16), seed=0).distributed(strategy))
    totals = {key: tf.constant(0.0, tf.float64) for key in (*LOSSES, SAMPLES)}
    with levers.without(lever):
        _, function, _ = forms.default_form(strategy, setting)
        graph = function.get_concrete_function(batches, totals, tf.constant(1)).graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return collections.Counter(node.op for node in nodes)


@pytest.mark.slow
def test_levers_change_the_operations(strategies, monkeypatch):
    monkeypatch.setattr(normalization, "LARGE_SAMPLE", 1)  # as for large images
    one, two = operations(strategies[1], ""), operations(strategies[2], "")
    few, both, adam = (operations(strategies[1], lever) for lever in ("few", "both", "adam"))
    monkeypatch.setattr(hardware, "has_accelerator", lambda: True)  # where no sample is too small
    norm = operations(strategies[1], "norm")
    packed_adam = operations(strategies[1], "adam")  # takes one vector of gradients
    assert one["FusedBatchNormV3"] > 0 and norm["FusedBatchNormV3"] == 0
    assert one["SpaceToDepth"] > 0 and few["SpaceToDepth"] == 0
    assert both["Conv2D"] > 1.2 * one["Conv2D"]
    assert one["ResourceApplyAdam"] > 0 and adam["ResourceApplyAdam"] == packed_adam["ResourceApplyAdam"] == 0
    for other in (few, norm, both):
        assert other["ResourceApplyAdam"] == one["ResourceApplyAdam"]
    monkeypatch.undo()
    assert operations(strategies[2], "packed")["IdentityN"] > 2 * two["IdentityN"]  # one sum per gradient


def test_prefetching_changes_only_when_images_are_read(strategies, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (2, 7, 20, 20, 3), np.uint8)
    read, read_image = [], UnpairedDataset.image
    pairs = UnpairedDataset(*images, 2, (16, 16), seed=0, steps_per_call=2)
    ahead = pairs.distributed(strategies[1])
    expected = [[part.numpy() for part in next(ahead)] for _ in range(5)]
    pairs = UnpairedDataset(*images, 2, (16, 16), seed=0, steps_per_call=2)  # threads still read the first dataset
    monkeypatch.setattr(pairs, "image", lambda *at: read.append(at) or read_image(pairs, *at))
    ahead = pairs.distributed(strategies[1])
    next(ahead)
    for _ in range(100):  # wait until the next call's images are read ahead
        sleep(0.1)
        if len(read) >= sum(pairs.call(call)[2] for call in range(2)) * 4:
            break
    else:
        pytest.fail(f"{len(read)} images were read ahead")
    pairs = UnpairedDataset(*images, 2, (16, 16), seed=0, steps_per_call=2)
    read = []
    monkeypatch.setattr(pairs, "image", lambda *at: read.append(at) or read_image(pairs, *at))
    with levers.without("prefetch"):
        batches = pairs.distributed(strategies[1])
        for number, parts in enumerate(expected):
            for part, other in zip(next(batches), parts):
                np.testing.assert_array_equal(part, other)
            assert len(read) == sum(pairs.call(call)[2] for call in range(number + 1)) * 4


def test_ahead_is_off_within_the_context_only():
    before = in_flight.AHEAD
    with levers.without("ahead"):
        assert in_flight.AHEAD == 0
    assert in_flight.AHEAD == before > 0


def test_the_benchmark_knows_every_lever():
    assert LEVERS == {"steps": tuple(levers.STEP), "data": tuple(levers.FEEDING)}
