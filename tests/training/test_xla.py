import functools

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.networks import instance_normalization
from cyclegan.training import step as step_module
from cyclegan.training.compiled_steps import compile_train_step
from cyclegan.training.gan import GAN
from cyclegan.training.metric_names import GRADIENTS
from cyclegan.training.step import train_step
from tests.training.helpers import FEW_LAYERS, SETS, TINY, as_trained, per_replica_batches, weights, with_sgd

ALL_AT_ONCE = {**SETS["wgan-gp"], "dropout": 0.3, "pool_size": 0}


COMPILED = {
    "with a pool": {"pool_size": 2},
    "without a pool": {"pool_size": 0},
    "without identity": {"pool_size": 0, "lambda_identity": 0.0, "adversarial": "bce"},
    "all at once": ALL_AT_ONCE,
    "batch": {"norm": "batch", "pool_size": 0},
    "bfloat16": {"precision": "bfloat16", "pool_size": 0},
    "float16": {"precision": "float16"},
}


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name, xla",
    [
        *((name, False) for name in COMPILED),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in ("without a pool", "all at once", "bfloat16")),
    ],
)
def test_compiled_parts_match(make_images, name, xla, monkeypatch):
    """Compare parts compiled with XLA, which rounds differently."""
    outcomes = []
    for in_functions in (False, True):
        gan = as_trained(GAN(2, Config.from_settings(**{**TINY, **FEW_LAYERS, **COMPILED[name]})))
        if in_functions:
            compiled = functools.partial(tf.function, autograph=False, jit_compile=xla)
            monkeypatch.setattr(step_module, "_compiled", lambda gan, function, compiled=compiled: compiled(function))
        images = make_images(2, seed=1), make_images(2, seed=2)
        metrics, parts, _ = train_step(gan, *images, tf.ones([2]), tf.constant(1))
        norms = [float(metrics.pop(norm)) for norm in GRADIENTS]
        metrics = {key: float(value) for key, value in metrics.items()}
        outcomes.append((metrics, norms, [np.concatenate([g.numpy().ravel() for g in part]) for part in parts]))
    (metrics, norms, parts), (others, other_norms, other_parts) = outcomes
    bound = 3e-2 if "precision" in COMPILED[name] else 1e-4
    assert others == pytest.approx(metrics, rel=bound, abs=1e-6) and other_norms == pytest.approx(norms, rel=bound)
    for part, other in zip(parts, other_parts):
        assert 0 < np.linalg.norm(part) and np.linalg.norm(other - part) < bound * np.linalg.norm(part)


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_xla_changes_only_rounding(strategies, make_images, replicas, monkeypatch):
    """Compare steps with and without XLA; compiling takes a minute."""
    monkeypatch.setattr(instance_normalization, "LARGE_SAMPLE", 1)  # as for images of a usual size
    strategy = strategies[replicas]
    x, y = (make_images(replicas, 16, seed)[None] for seed in (1, 2))
    outcomes = []
    for xla in ("off", "on"):
        with strategy.scope():
            config = Config.from_settings(filters=2, residual_blocks=0, image_size=16, xla=xla)
            gan = with_sgd(GAN(replicas, config), 0.1)
        before = weights(gan)
        step = compile_train_step(strategy, gan)
        _, good, metrics = step(per_replica_batches(strategy, x, y), {}, tf.constant(1))
        assert good[0]
        library = (
            step.get_concrete_function(per_replica_batches(strategy, x, y), {}, tf.constant(1))
            .graph.as_graph_def()
            .library
        )
        compiled = " ".join(part.signature.name for part in library.function if part.attr["_XlaMustCompile"].b)
        for name in ("__forward_generate", "__backward_generate", "__inference_discriminate"):
            assert (name in compiled) == (xla == "on")
        outcomes.append(({key: float(value[0]) for key, value in metrics.items()}, before, weights(gan)))
    (plain, before, after), (compiled, _, after_compiled) = outcomes
    assert compiled == pytest.approx(plain, rel=1e-4)
    moved = max(np.abs(a - b).max() for a, b in zip(before, after))
    apart = max(np.abs(a - b).max() for a, b in zip(after, after_compiled))
    assert moved > 1e-2 and apart < 1e-4 * moved
