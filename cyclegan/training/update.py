"""Application of a training step: weights, EMA weights, image pools, statistics and loss scale."""

from __future__ import annotations

import tensorflow as tf

from cyclegan.config.optimization import OptimizationConfig
from cyclegan.training.gan import GAN
from cyclegan.training.optimizers import update_ema
from cyclegan.training.step import Carry, Gradients


def update(
    gan: GAN,
    gradients: Gradients,
    finite: tf.Tensor,
    carry: Carry,
    step: tf.Tensor | int = 0,
    learning_rates: tf.Tensor | None = None,
) -> None:
    """Update all networks on this replica; call it on every replica with the same arguments.

    Args:
        gan: The networks and all other state.
        gradients: Gradients from `train_step`, summed over the replicas.
        finite: Whether all metrics of the step are finite, a bool scalar. If not, only the loss scale changes.
        carry: Carry from `train_step`.
        step: Number of the step.
        learning_rates: Learning rates of the generators and of the discriminators, float32 [2]; by default the initial ones.
    """
    optimization, networks = gan.optimization, gan.networks
    initial_rates = [optimization.lr, optimization.lr_discriminator]
    rates = tf.unstack(initial_rates if learning_rates is None else learning_rates, num=2)
    if gan.uses_loss_scale:
        scale = tf.convert_to_tensor(gan.loss_scale.scale)
        gradients = tf.nest.map_structure(lambda gradient: gradient / scale, gradients)
        gan.loss_scale.update(finite)
    if optimization.clip_norm:
        # Gradients summed over several replicas have another norm than the replica's own.
        norms = carry.norms if tf.distribute.get_replica_context().num_replicas_in_sync == 1 else [None, None]
        clipped = (tf.clip_by_global_norm(part, optimization.clip_norm, norm) for part, norm in zip(gradients, norms))
        gradients = tuple(part for part, _ in clipped)
    train_generators, train_discriminators = (finite & turn for turn in turns(optimization, step))
    gan.generator_optimizer.apply(gradients[0], networks.generator_variables, rates[0], train_generators)
    gan.discriminator_optimizer.apply(gradients[1], networks.discriminator_variables, rates[1], train_discriminators)
    for name, ema in networks.ema_generators.items():
        network = networks.generators[name]
        update_ema(ema.trainable_variables, network.trainable_variables, optimization.ema, train_generators)
        update_ema(ema.non_trainable_variables, network.non_trainable_variables, 0.0, train_generators)
    for pair, pool_update in zip(gan.objective.adversaries, carry.pool_updates):
        gan.pools[pair.domain].store(pool_update, train_discriminators)
    for variable, value in zip(networks.statistics, carry.statistics):  # the forward passes have changed them already
        value = tf.where(finite, tf.convert_to_tensor(variable), value)
        tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


def turns(optimization: OptimizationConfig, step: tf.Tensor | int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return whether a step updates the generators, and whether it updates the discriminators.

    Out of max(N, M) steps the generators take the last N and the discriminators the last M (`generator_steps` and
    `discriminator_steps`). Every step has a new batch (Goodfellow et al. 2014, algorithm 1).
    """
    counts = optimization.generator_steps, optimization.discriminator_steps
    period = max(counts)
    generators, discriminators = (step % period >= period - count for count in counts)
    return generators, discriminators
