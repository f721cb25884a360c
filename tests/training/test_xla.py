import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.networks import instance_normalization
from cyclegan.training.gan import GAN
from cyclegan.training.step import compile_train_step
from tests.training.helpers import SETS, TINIER, as_trained, eager_step, flat, per_replica_batches, weights, with_sgd

COMPILED = {
    "a pool": {"pool_size": 2},
    "all at once": {**SETS["wgan-gp"], "pool_size": 2, "diffaugment": "color,cutout", "ema": 0.9, "clip_norm": 1.0},
    "no pool, no identity": {"pool_size": 0, "lambda_identity": 0.0, "adversarial": "bce", "weight_decay": 0.1},
    "cut": {"objective": "cut"},
    "bfloat16": {"precision": "bfloat16"},
    "float16": {"precision": "float16"},
}


@pytest.mark.slow
@pytest.mark.parametrize("replicas, name", [(1, "a pool"), (2, "a pool"), *((1, name) for name in list(COMPILED)[1:])])
def test_the_compiled_program_equals_the_plain_step_but_for_rounding(
    strategies, make_images, replicas, name, monkeypatch
):
    monkeypatch.setattr(instance_normalization, "LARGE_SAMPLE", 1)  # as for images of a usual size
    strategy = strategies[replicas]
    batch = per_replica_batches(
        strategy, *(make_images(2 * replicas, 16, seed).reshape(2, replicas, 16, 16, 3) for seed in (1, 2))
    )
    outcomes = []
    for xla in (False, True):
        with strategy.scope():
            gan = with_sgd(as_trained(GAN(replicas, Config.from_settings(**{**TINIER, **COMPILED[name]}))), 0.1)
        gan.loss_scale.scale.assign(1024.0)  # the first one would make the first step overflow
        before = weights(gan)
        step = compile_train_step(strategy, gan, xla)
        _, good, metrics = step(batch, {}, tf.constant(2))
        assert good.numpy().all()
        graph = step.get_concrete_function(batch, {}, tf.constant(2)).graph.as_graph_def()
        compiled = [part for part in graph.library.function if part.attr["_XlaMustCompile"].b]
        assert len(compiled) == (0 if not xla else 1 if replicas == 1 else 2 * replicas)
        outcomes.append(({key: value.numpy() for key, value in metrics.items()}, before, weights(gan)))
    (plain, before, after), (compiled, _, after_compiled) = outcomes
    bound = 3e-2 if "precision" in COMPILED[name] else 1e-3
    for key, values in plain.items():
        np.testing.assert_allclose(compiled[key], values, rtol=bound, atol=1e-6, err_msg=key)
    moved = np.sqrt(sum(np.square(a - b).sum() for a, b in zip(before, after)))
    apart = np.sqrt(sum(np.square(a - b).sum() for a, b in zip(after, after_compiled)))
    assert moved > 1e-2 and apart < bound * moved


@pytest.mark.slow
def test_the_compiled_program_equals_the_eager_step_but_for_rounding(strategies, make_images, monkeypatch):
    monkeypatch.setattr(instance_normalization, "LARGE_SAMPLE", 1)
    images = [make_images(1, 16, seed) for seed in (1, 2)]
    with strategies[1].scope():
        eager, compiled = (with_sgd(as_trained(GAN(1, Config.from_settings(**TINIER))), 0.1) for _ in range(2))
    before = flat(weights(eager))
    expected = eager_step(eager, *images)
    batch = per_replica_batches(strategies[1], *(part[None] for part in images))
    _, _, metrics = compile_train_step(strategies[1], compiled, xla=True)(batch, {}, tf.constant(1))
    for key, value in expected.items():
        np.testing.assert_allclose(metrics[key].numpy(), [value], rtol=1e-3, atol=1e-6, err_msg=key)
    after, after_compiled = flat(weights(eager)), flat(weights(compiled))
    assert np.linalg.norm(after - before) > 1e-2
    assert np.linalg.norm(after_compiled - after) < 1e-3 * np.linalg.norm(after - before)
