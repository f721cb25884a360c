"""A training step and a test step on one replica.

Both only read the state of a `GAN`, except that forward passes change the statistics of batch normalizations. `update` applies the
results of `train_step`.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Union

import tensorflow as tf

from cyclegan.images.value_range import to_float
from cyclegan.training.gan import GAN
from cyclegan.training.image_pool import PoolUpdate
from cyclegan.training.metric_names import GRADIENTS, LOSS_SCALE, SAMPLES, WEIGHT_DECAY
from cyclegan.training.objectives.adversarial import DiscriminatorInput, DiscriminatorNoise
from cyclegan.training.objectives.objective import Generated
from cyclegan.training.randomness import POOL, StepRandomness

Metrics = dict[str, tf.Tensor]
Gradients = tuple[list[tf.Tensor], list[tf.Tensor]]


class Carry(NamedTuple):
    """Tensors of a training step that `update` needs besides the gradients.

    Attributes:
        pool_updates: Changes of the image pools, in the order of the objective's adversaries; empty without pools.
        statistics: Statistics of the batch normalizations before the step.
    """

    pool_updates: list[PoolUpdate]
    statistics: list[tf.Tensor]


class Discriminated(NamedTuple):
    """Outputs of the discriminators in a training step; gradients are multiplied by the loss scale.

    Attributes:
        losses: Adversarial losses of the generators, losses and penalties of the discriminators, by name.
        fake_gradients: Gradients of the generators' losses at the fakes.
        gradients: Gradients of the discriminators' losses at their variables.
    """

    losses: Metrics
    fake_gradients: list[tf.Tensor]
    gradients: list[tf.Tensor]


def train_step(
    gan: GAN, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor, step: Union[tf.Tensor, int] = 0
) -> tuple[Metrics, Gradients, Carry]:
    """Return the metrics and gradients of one replica's shard of a batch.

    Generators and discriminators see each other as they were before the step.

    Args:
        gan: The networks and all other state.
        x: Images of domain X, uint8 or uint16 [N, H, W, C].
        y: Images of domain Y.
        weight: Weights of the samples, float32 [N]: 1 for a sample, 0 for padding.
        step: Number of the step. All randomness is a function of the seed and of this number.

    Returns:
        (metrics, gradients, carry). Metrics are this replica's shares of means over the global batch: losses, penalties, weight
        decay, `SAMPLES` and, with float16, `LOSS_SCALE`. `GRADIENTS` are the norms of this replica's gradients. The gradients
        of the generators and of the discriminators are multiplied by the loss scale.
    """
    networks = gan.networks
    random = StepRandomness(gan.optimization.seed, tf.cast(step, tf.int64), gan.global_batch_size, x.shape[0])
    statistics = [tf.convert_to_tensor(variable) for variable in networks.statistics]
    noise = gan.objective.adversarial.draw(random)
    scale = tf.convert_to_tensor(gan.loss_scale.scale) if gan.uses_loss_scale else tf.constant(1.0)
    # The tapes meet at the fakes: the generators' tape continues from the gradients that the discriminators' tape computes there.
    with tf.GradientTape() as tape:
        generated = _generate(gan, x, y, weight, random)
        decay = _weight_decay(gan.optimization.weight_decay, networks.generator_variables)
        decay_share = tf.nn.scale_regularization_loss(decay)
    shown, pool_updates = _query_pools(gan, generated.fakes, weight, random)
    images = DiscriminatorInput(generated.reals, generated.fakes, shown)
    discriminated = _discriminate(gan, images, weight, noise, scale)
    # Every generator minimizes the sum of all losses: the cycle x -> G(x) -> F(G(x)) trains G, too (Zhu et al. 2017, equation 3).
    targets = [*generated.losses.values(), *generated.fakes, decay_share]
    seeds = [*[scale] * len(generated.losses), *discriminated.fake_gradients, scale]
    gradients = (tape.gradient(targets, networks.generator_variables, seeds), discriminated.gradients)
    metrics = gan.objective.collect({**generated.losses, **discriminated.losses}, weight)
    if gan.optimization.weight_decay:
        decays = decay, _weight_decay(gan.optimization.weight_decay, networks.discriminator_variables)
        metrics.update({name: metrics[SAMPLES] * value for name, value in zip(WEIGHT_DECAY, decays)})
    metrics.update({name: tf.linalg.global_norm(part) / scale for name, part in zip(GRADIENTS, gradients)})
    if gan.uses_loss_scale:
        metrics[LOSS_SCALE] = scale * x.shape[0] / gan.global_batch_size
    return metrics, gradients, Carry(pool_updates, statistics)


def test_step(gan: GAN, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor) -> tuple[Metrics, None, tuple[()]]:
    """Return the metrics of one replica's shard of a batch, with the generators in use.

    Args:
        gan: The networks.
        x: Images of domain X, uint8 or uint16 [N, H, W, C].
        y: Images of domain Y.
        weight: Weights of the samples, float32 [N]: 1 for a sample, 0 for padding.

    Returns:
        (metrics, None, ()), as the train function expects. Metrics are this replica's shares of means over the global batch.
    """
    return gan.objective.test(gan.networks.in_use, _to_float(x), _to_float(y), weight), None, ()


def _to_float(images: tf.Tensor) -> tf.Tensor:
    return to_float(tf.convert_to_tensor(images))


def _compiled(gan: GAN, function: Callable) -> Callable:
    """Return a function compiled with XLA if the configuration asks for it, else the function itself."""
    return tf.function(function, autograph=False, jit_compile=True) if gan.compiles_with_xla else function


def _generate(gan: GAN, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor, random: StepRandomness) -> Generated:
    """Run the generators' part of a training step."""

    def generate(x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor) -> Generated:
        return gan.objective.generate(gan.networks, x, y, weight, random)

    return _compiled(gan, generate)(_to_float(x), _to_float(y), weight)


def _query_pools(
    gan: GAN, fakes: tuple[tf.Tensor, ...], weight: tf.Tensor, random: StepRandomness
) -> tuple[Union[list[tf.Tensor], None], list[PoolUpdate]]:
    """Return the translations that the discriminators learn from, and the changes of the pools.

    Without pools the translations are `None`, not the fakes: a compiled function would duplicate a tensor that is passed twice.
    """
    if not gan.pools:
        return None, []
    shown, updates = [], []
    for i, (pair, images) in enumerate(zip(gan.objective.adversaries, fakes)):
        chances = random.shard(random.uniform(POOL + i, 2))
        chosen, update = gan.pools[pair.domain].query(images, weight > 0, chances)
        shown.append(chosen)
        updates.append(update)
    return shown, updates


def _discriminate(
    gan: GAN, images: DiscriminatorInput, weight: tf.Tensor, noise: DiscriminatorNoise, scale: tf.Tensor
) -> Discriminated:
    """Run the discriminators' part of a training step, with a tape of its own."""
    variables = gan.networks.discriminator_variables

    def discriminate(
        images: DiscriminatorInput, weight: tf.Tensor, noise: DiscriminatorNoise, scale: tf.Tensor
    ) -> Discriminated:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(images.fakes)
            generators, discriminators = gan.objective.adversarial.compute_losses(gan.networks, images, weight, noise)
            decay_share = tf.nn.scale_regularization_loss(_weight_decay(gan.optimization.weight_decay, variables))
            targets = [*discriminators.values(), decay_share]
        fake_gradients = tape.gradient([*generators.values()], images.fakes, [scale] * len(generators))
        gradients = tape.gradient(targets, variables, [scale] * len(targets))
        return Discriminated({**generators, **discriminators}, fake_gradients, gradients)

    return _compiled(gan, discriminate)(images, weight, noise, scale)


def _weight_decay(factor: float, variables: list[tf.Variable]) -> tf.Tensor:
    """Return half the sum of the squares of all kernels, times a factor."""
    if not factor:
        return tf.constant(0.0)
    return factor * tf.add_n([tf.nn.l2_loss(variable) for variable in variables if len(variable.shape) == 4])
