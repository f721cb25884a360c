"""A training step and a test step on one replica.

Both only read the state of a `GAN`, except that forward passes change the statistics of batch normalizations. `update` applies the
results of `train_step`.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from cyclegan.images.value_range import to_float
from cyclegan.methods.adversarial import DiscriminatorInput, DiscriminatorNoise
from cyclegan.methods.metric_names import GRADIENTS, LOSS_SCALE, SAMPLES, WEIGHT_DECAY
from cyclegan.methods.objective import GeneratorNoise
from cyclegan.methods.randomness import POOL, StepRandomness
from cyclegan.training.gan import GAN
from cyclegan.training.gradients import pack
from cyclegan.training.image_pool import PoolUpdate

Metrics = dict[str, tf.Tensor]
Gradients = tuple[list[tf.Tensor], list[tf.Tensor]]


class StepNoise(NamedTuple):
    """Random numbers of a training step, but for dropout.

    Attributes:
        pools: Random numbers of the image pools, float32 [N, 2], in the order of the objective's adversaries.
        adversarial: Random numbers of the adversarial losses.
        generators: Random numbers of the other losses of the generators.
    """

    pools: list[tf.Tensor]
    adversarial: DiscriminatorNoise
    generators: GeneratorNoise


class Carry(NamedTuple):
    """Tensors of a training step that `update` needs besides the gradients.

    Attributes:
        pool_updates: Changes of the image pools, in the order of the objective's adversaries; empty without pools.
        statistics: Statistics of the batch normalizations before the step.
        norms: Norms of this replica's gradients of the generators and of the discriminators, without the loss scale.
    """

    pool_updates: list[PoolUpdate]
    statistics: list[tf.Tensor]
    norms: list[tf.Tensor]


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


def make_noise(gan: GAN, step: tf.Tensor | int, shard_size: int) -> StepNoise:
    """Return the random numbers of a step on one replica. XLA would return others, so it must not compile this function."""
    random = _randomness(gan, step, shard_size)
    pools = [random.shard(random.uniform(POOL + i, 2)) for i in range(len(gan.pools))]
    adversarial = gan.objective.adversarial.make_noise(random)
    return StepNoise(pools, adversarial, gan.objective.make_noise(random, gan.image_shape))


def train_step(
    gan: GAN,
    x: tf.Tensor,
    y: tf.Tensor,
    weight: tf.Tensor,
    step: tf.Tensor | int = 0,
    noise: StepNoise | None = None,
    is_pair: tf.Tensor | None = None,
) -> tuple[Metrics, Gradients, Carry]:
    """Return the metrics and gradients of one replica's shard of a batch.

    Generators and discriminators see each other as they were before the step.

    Args:
        gan: The networks and all other state.
        x: Images of domain X, uint8 or uint16 [N, H, W, C].
        y: Images of domain Y.
        weight: Weights of the samples, float32 [N]: 1 for a sample, 0 for padding.
        step: Number of the step. All randomness is a function of the seed and of this number.
        noise: Random numbers from `make_noise`, which this function calls by default.
        is_pair: Where x and y show the same, float32 [N]: 1 or 0; `None` without losses of pairs.

    Returns:
        (metrics, gradients, carry). Metrics are this replica's shares of means over the global batch: losses, penalties, weight
        decay, `SAMPLES` and, with float16, `LOSS_SCALE`. `GRADIENTS` are the norms of this replica's gradients. The gradients
        of the generators and of the discriminators are multiplied by the loss scale, and are as `pack` returns them.
    """
    networks = gan.networks
    random, noise = _randomness(gan, step, x.shape[0]), noise or make_noise(gan, step, x.shape[0])
    statistics = [tf.convert_to_tensor(variable) for variable in networks.statistics]
    scale = tf.convert_to_tensor(gan.loss_scale.scale) if gan.uses_loss_scale else tf.constant(1.0)
    # The tapes meet at the fakes: the generators' tape continues from the gradients that the discriminators' tape computes there.
    with tf.GradientTape() as tape:
        generated = gan.objective.generate(networks, _to_float(x), _to_float(y), weight, random, noise.generators)
        parts = dict(generated.losses)
        if is_pair is not None:
            parts.update(gan.objective.paired_losses(generated, weight * is_pair))
        decay = _weight_decay(gan.optimization.weight_decay, networks.generator_variables)
        decay_share = tf.nn.scale_regularization_loss(decay)
    shown, pool_updates = _query_pools(gan, generated.fakes, weight, noise.pools)
    images = DiscriminatorInput(generated.reals, generated.fakes, shown)
    discriminated = _discriminate(gan, images, weight, noise.adversarial, scale)
    # Every generator minimizes the sum of all losses: the cycle x -> G(x) -> F(G(x)) trains G, too (Zhu et al. 2017, equation 3).
    targets = [*parts.values(), *generated.fakes, decay_share]
    seeds = [*[scale] * len(parts), *discriminated.fake_gradients, scale]
    generator_gradients = _gradients(tape, targets, networks.generator_variables, seeds)
    gradients = pack(generator_gradients), pack(discriminated.gradients)
    metrics = gan.objective.collect({**parts, **discriminated.losses}, weight)
    if gan.optimization.weight_decay:
        decays = decay, _weight_decay(gan.optimization.weight_decay, networks.discriminator_variables)
        metrics.update({name: metrics[SAMPLES] * value for name, value in zip(WEIGHT_DECAY, decays)})
    norms = [tf.linalg.global_norm(part) / scale for part in gradients]
    metrics.update(zip(GRADIENTS, norms))
    if gan.uses_loss_scale:
        metrics[LOSS_SCALE] = scale * x.shape[0] / gan.global_batch_size
    return metrics, gradients, Carry(pool_updates, statistics, norms)


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


def _randomness(gan: GAN, step: tf.Tensor | int, shard_size: int) -> StepRandomness:
    return StepRandomness(gan.optimization.seed, tf.cast(step, tf.int64), gan.global_batch_size, shard_size)


def _query_pools(
    gan: GAN, fakes: tuple[tf.Tensor, ...], weight: tf.Tensor, random: list[tf.Tensor]
) -> tuple[list[tf.Tensor] | None, list[PoolUpdate]]:
    """Return the translations that the discriminators learn from, and the changes of the pools; `None` without pools."""
    if not gan.pools:
        return None, []
    pools = [gan.pools[pair.domain] for pair in gan.objective.adversaries]
    queried = [pool.query(images, weight > 0, each) for pool, images, each in zip(pools, fakes, random)]
    return [shown for shown, _ in queried], [update for _, update in queried]


def _discriminate(
    gan: GAN, images: DiscriminatorInput, weight: tf.Tensor, noise: DiscriminatorNoise, scale: tf.Tensor
) -> Discriminated:
    """Run the discriminators' part of a training step, with a tape of its own."""
    variables = gan.networks.discriminator_variables
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(images.fakes)
        generators, discriminators = gan.objective.adversarial.compute_losses(gan.networks, images, weight, noise)
        decay_share = tf.nn.scale_regularization_loss(_weight_decay(gan.optimization.weight_decay, variables))
        targets = [*discriminators.values(), decay_share]
    fake_gradients = tape.gradient([*generators.values()], images.fakes, [scale] * len(generators))
    gradients = _gradients(tape, targets, variables, [scale] * len(targets))
    return Discriminated({**generators, **discriminators}, fake_gradients, gradients)


def _gradients(
    tape: tf.GradientTape, targets: list[tf.Tensor], variables: list[tf.Variable], seeds: list[tf.Tensor]
) -> list[tf.Tensor]:
    """Return the gradients at the variables, 0 for biases that training leaves out; the tape cannot fill in Keras 3's variables."""
    gradients = zip(tape.gradient(targets, variables, seeds), variables)
    return [tf.zeros(variable.shape) if gradient is None else gradient for gradient, variable in gradients]


def _weight_decay(factor: float, variables: list[tf.Variable]) -> tf.Tensor:
    """Return half the sum of the squares of all kernels, times a factor."""
    if not factor:
        return tf.constant(0.0)
    return factor * tf.add_n([tf.nn.l2_loss(variable) for variable in variables if len(variable.shape) > 1])
