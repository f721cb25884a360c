"""The state of a training run on the devices, one training step from images to updated networks, and one test step.

`train_step` returns the losses and gradients of one replica. It changes no state, except that forward passes change the
statistics of batch normalizations. `reduce_dict` sums its results over the replicas, and `update` applies the sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow as tf

from cyclegan.config.config import Config
from cyclegan.config.sections import OptimizationConfig
from cyclegan.distribution.train_function import Outcome, Scalars, all_finite, make_train_function, reduce_dict
from cyclegan.images.value_range import to_float
from cyclegan.methods import OBJECTIVES, losses
from cyclegan.methods.objective import COMPARISONS, GRADIENTS, LOSS_SCALE, NO_MASKS, SAMPLES, Generated, Inputs
from cyclegan.methods.randomness import POOL, Noise, StepRandomness
from cyclegan.networks.network_set import NetworkSet
from cyclegan.training.image_pool import ImagePool, PoolUpdate
from cyclegan.training.optimizers import LossScale, pack, update_ema

FLOAT16_PENALTY_SCALE = 2.0**10  # because gradients inside of a penalty are too small for float16

Gradients = tuple[list[tf.Tensor], list[tf.Tensor]]  # of the generators and of the discriminators, see `pack`


class Batch(NamedTuple):
    """One replica's shard of a batch.

    Attributes:
        x: Images of domain X, uint8 or uint16 [N, H, W, C].
        y: Images of domain Y.
        weight: Weights of the samples, float32 [N]: 1 for a sample, 0 for padding.
        is_pair: float32 [N]: 1 if x and y show the same scene, else 0; `None` without losses of pairs.
        masks: Masks of x and of y, uint8 [N, H, W, 1], 1 where the generators may change pixels; empty without masks.
    """

    x: tf.Tensor
    y: tf.Tensor
    weight: tf.Tensor
    is_pair: tf.Tensor | None = None
    masks: Sequence[tf.Tensor] = ()

    @classmethod
    def from_parts(cls, parts: Sequence[tf.Tensor]) -> Batch:
        """Return the batch of tensors in the order of `UnpairedDataset.batches`."""
        x, y, weight, *rest = parts
        is_pair, masks = (rest[0], rest[1:]) if len(rest) % 2 else (None, rest)
        return cls(x, y, weight, is_pair, masks)


class GAN:
    """Networks, optimizers, loss scale and image pools of a run; create it in the scope of the strategy.

    There are two optimizers, as in the paper and pytorch-CycleGAN-and-pix2pix: Adam updates each weight separately, so
    one optimizer for the generators and the heads equals several with the same settings.

    Attributes:
        global_batch_size: Image pairs of a step, over all replicas.
        optimization: Settings of the updates, and the seed.
        image_shape: (height, width) of the images in training.
        uses_loss_scale: Whether the losses are scaled before gradients are taken.
        penalty_scale: Factor on the gradients inside of a penalty while they are computed.
        objective: The losses.
        networks: The generators and discriminators.
        generator_optimizer: Optimizer of the generators and the heads of their features, see `optimizers.OPTIMIZERS`.
        discriminator_optimizer: Optimizer of the discriminators.
        loss_scale: Factor on the losses, which float16 needs.
        pools: Earlier translations to each domain, "X" and "Y"; empty without pools.
        metric_names: Names of the metrics of "train" and "test".
    """

    def __init__(self, global_batch_size: int, config: Config, image_shape: tuple[int, int] | None = None) -> None:
        """Create all variables from the seed. `image_shape` is by default the size in the configuration."""
        self.optimization, data, precision = config.optimization, config.data, config.performance.precision
        tf.keras.utils.set_random_seed(self.optimization.seed)
        self.global_batch_size = global_batch_size
        self.uses_loss_scale = precision == "float16"
        self.penalty_scale = FLOAT16_PENALTY_SCALE if self.uses_loss_scale else 1.0
        self.image_shape = image_shape or data.image_shape
        self.objective = OBJECTIVES[config.objective.objective](config)
        channels = {"X": data.channels_x, "Y": data.channels_y}
        self.networks = NetworkSet(config)
        self.generator_optimizer = self.optimization.make_optimizer(self.networks.generator_variables)
        self.discriminator_optimizer = self.optimization.make_optimizer(self.networks.discriminator_variables)
        self.loss_scale = LossScale()  # always, so that a checkpoint fits every precision
        size = config.objective.pool_size
        self.pools = {
            domain: ImagePool(size, global_batch_size, (*self.image_shape, channels[domain]))
            for domain in sorted(pair.domain for pair in self.objective.adversaries)
            if size
        }
        self.metric_names = self.objective.metric_names

    def state(self) -> dict[str, tf.Module | tf.keras.Model]:
        """Return everything that evolves, by its name in a checkpoint."""
        return {
            **self.networks.generators,
            **self.networks.discriminators,
            **{"heads" if name == "G" else f"heads_{name}": each for name, each in self.networks.heads.items()},
            "generator_optimizer": self.generator_optimizer.state,
            "discriminator_optimizer": self.discriminator_optimizer.state,
            "loss_scale": self.loss_scale.state,
            **{f"pool_{domain.lower()}": pool for domain, pool in self.pools.items()},
            **{f"{name}_ema": network for name, network in self.networks.ema_generators.items()},
        }


class Carry(NamedTuple):
    """Tensors of this replica that `update` needs besides the gradients."""

    pool_updates: list[PoolUpdate]  # in the order of the objective's adversaries; empty without pools
    statistics: list[tf.Tensor]  # of the batch normalizations before the step
    norms: list[tf.Tensor]  # of this replica's gradients: generators, discriminators; divided by the loss scale


def train_step(
    gan: GAN, batch: Batch, step: tf.Tensor | int = 0, noise: Noise | None = None, progress: tf.Tensor | float = 0.0
) -> tuple[Scalars, Gradients, Carry]:
    """Return the metrics and gradients of one replica's shard of a batch.

    Generators and discriminators see each other as they were before the step.

    Args:
        gan: The networks and all other state.
        batch: The shard.
        step: Number of the step. All randomness is a function of the seed and of this number.
        noise: Random numbers of the step; by default those of `Objective.make_noise`.
        progress: Share of the training that is done, in [0, 1].

    Returns:
        (metrics, gradients, carry). Metrics are this replica's shares of means over the global batch: losses, `SAMPLES`
        and, with float16, `LOSS_SCALE`. `GRADIENTS` are the norms of this replica's gradients. The gradients are
        multiplied by the loss scale.
    """
    networks, settings, weight = gan.networks, gan.objective.settings, batch.weight
    random = _randomness(gan, batch, step)
    noise = gan.objective.make_noise(random, networks, gan.image_shape) if noise is None else noise
    given = _inputs(batch, noise, progress)
    statistics = [tf.convert_to_tensor(variable) for variable in networks.statistics]
    scale = tf.convert_to_tensor(gan.loss_scale.scale) if gan.uses_loss_scale else tf.constant(1.0)

    # The generators translate. The direct losses need no discriminator.
    with tf.GradientTape() as generator_tape:
        with random.dropout():
            generated = gan.objective.generate(networks, given)
        reals, fakes = _reals_and_fakes(gan, given, generated)
        paired = losses.paired_losses(settings, reals, fakes, batch.is_pair, given.masks)
        decay = _weight_decay(gan, networks.generators, networks.heads)
        direct = _means(gan, {**generated.losses, **decay, **paired}, weight)

    # The discriminators see the fakes, and learn from the images that the pools show instead.
    shown, pool_updates = _query_pools(gan, fakes, weight, noise)
    with tf.GradientTape(persistent=True) as discriminator_tape:
        discriminator_tape.watch(fakes)
        adversarial, own = losses.adversarial_losses(settings, networks, reals, fakes, noise, shown, gan.penalty_scale)
        adversarial = _means(gan, adversarial, weight)
        own = _means(gan, {**own, **_weight_decay(gan, networks.discriminators)}, weight)

    # Every generator minimizes the sum of all losses: the cycle x -> G(x) -> F(G(x)) trains G, too (Zhu et al. 2017,
    # equation 3). The tapes meet at the fakes, where the generators' tape continues from the adversarial gradients.
    at_fakes = discriminator_tape.gradient([*adversarial.values()], fakes, [scale] * len(adversarial))
    targets, scales = [*direct.values(), *fakes], [*[scale] * len(direct), *at_fakes]
    gradients = (
        _gradients(generator_tape, targets, scales, networks.generator_variables),
        _gradients(discriminator_tape, [*own.values()], [scale] * len(own), networks.discriminator_variables),
    )
    norms = [tf.linalg.global_norm(part) / scale for part in gradients]
    metrics = {**_collect(gan, {**direct, **adversarial, **own}, weight, "train"), **dict(zip(GRADIENTS, norms))}
    if gan.uses_loss_scale:
        metrics[LOSS_SCALE] = scale * batch.x.shape[0] / gan.global_batch_size
    return metrics, gradients, Carry(pool_updates, statistics, norms)


def update(
    gan: GAN,
    gradients: Gradients,
    finite: tf.Tensor,
    carry: Carry,
    step: tf.Tensor | int = 0,
    learning_rates: tf.Tensor | None = None,
) -> None:
    """Update all networks on this replica; call it on every replica with the sums of the gradients from `train_step`.

    If the bool scalar `finite` is false, because a metric of the step is not finite, only the loss scale changes.
    `learning_rates` begins with the learning rates of the generators and of the discriminators, by default the initial
    ones.
    """
    optimization, networks = gan.optimization, gan.networks
    initial_rates = [optimization.lr, optimization.lr_discriminator]
    rates = tf.unstack(initial_rates if learning_rates is None else learning_rates)[:2]
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
    `discriminator_steps`). Every step has a new batch (Goodfellow et al. 2014, algorithm 1). The generators begin after
    `discriminator_warmup` steps.
    """
    counts = optimization.generator_steps, optimization.discriminator_steps
    generators, discriminators = (step % max(counts) >= max(counts) - count for count in counts)
    warmup = optimization.discriminator_warmup
    return generators & (step >= warmup) if warmup else generators, discriminators


def test_step(gan: GAN, batch: Batch) -> Scalars:
    """Return the metrics of one replica's shard of held-out images, with the generators in use."""
    given, weight = _inputs(batch), batch.weight
    generated = gan.objective.generate(gan.networks.in_use, given)
    reals, fakes = _reals_and_fakes(gan, given, generated)
    of_generators, of_discriminators = losses.adversarial_losses(gan.objective.settings, gan.networks, reals, fakes)
    terms = {**generated.losses, **of_generators, **of_discriminators}
    metrics = _collect(gan, _means(gan, terms, weight), weight, "test")
    for name in gan.objective.test_names:
        compare, domain, output = COMPARISONS[name]
        original, mask = (given.x, given.masks[0]) if domain == "X" else (given.y, given.masks[1])
        value = compare(original, generated.images[output])
        if mask is not None and compare is losses.mae:  # the mean over the pixels inside, because others are equal
            value = tf.math.divide_no_nan(value, losses.mean_per_sample(tf.cast(mask, value.dtype)))
        metrics.update(_means(gan, {name: value}, weight))
    return metrics


def compile_train_step(strategy: tf.distribute.Strategy, gan: GAN, xla: bool = False) -> Callable:
    """Return the train function: steps on all replicas with one all-reduce each, see `make_train_function`.

    With `xla`, XLA compiles all of a step, or on several replicas the parts before and after the all-reduce.
    """
    is_split = strategy.num_replicas_in_sync > 1

    def compiled(function: Callable, applies: bool) -> Callable:
        return tf.function(function, autograph=False, jit_compile=True) if xla and applies else function

    def compute(batch: Batch, number: tf.Tensor, rates: Any, noise: Noise) -> tuple[Scalars, Gradients, Carry]:
        return train_step(gan, batch, number, noise, 0.0 if rates is None else rates[2])

    def finish(metrics: Scalars, gradients: Gradients, carry: Carry, number: tf.Tensor, rates: Any) -> tf.Tensor:
        finite = all_finite(metrics)
        update(gan, gradients, finite, carry, number, rates)
        return finite

    def whole(batch: Batch, number: tf.Tensor, rates: Any, requests: Scalars, noise: Noise) -> Outcome:
        metrics, gradients, carry = compiled(compute, is_split)(batch, number, rates, noise)
        metrics, gradients = reduce_dict({**metrics, **requests}, gradients)
        return metrics, compiled(finish, is_split)(metrics, gradients, carry, number, rates)

    def on_replica(parts: Sequence[tf.Tensor], number: tf.Tensor, rates: Any, requests: Scalars) -> Outcome:
        batch = Batch.from_parts(parts)
        # Outside of what XLA compiles, which would return other random numbers.
        noise = gan.objective.make_noise(_randomness(gan, batch, number), gan.networks, gan.image_shape)
        return compiled(whole, not is_split)(batch, number, rates, requests, noise)

    return make_train_function(strategy, on_replica, gan.global_batch_size)


def compile_test_step(strategy: tf.distribute.Strategy, gan: GAN) -> Callable:
    """Return the function of test steps on all replicas; see `make_train_function`."""

    def on_replica(parts: Sequence[tf.Tensor], number: tf.Tensor, rates: Any, requests: Scalars) -> Outcome:
        metrics, _ = reduce_dict({**test_step(gan, Batch.from_parts(parts)), **requests})
        return metrics, all_finite(metrics)

    return make_train_function(strategy, on_replica, gan.global_batch_size)


def _inputs(batch: Batch, noise: Noise | None = None, progress: tf.Tensor | float = 1.0) -> Inputs:
    """Return the inputs of the generators: images in [-1, 1], and masks as bool."""
    x, y = (to_float(tf.convert_to_tensor(images)) for images in (batch.x, batch.y))
    masks = (tf.cast(batch.masks[0], tf.bool), tf.cast(batch.masks[1], tf.bool)) if batch.masks else NO_MASKS
    return Inputs(x, y, noise, progress, masks)


def _reals_and_fakes(gan: GAN, given: Inputs, generated: Generated) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Return the images of each discriminator's domain, and the translations to it."""
    pairs = gan.objective.adversaries
    fakes = [generated.images[f"{pair.generator}({pair.source})"] for pair in pairs]
    return [given.y if pair.domain == "Y" else given.x for pair in pairs], fakes


def _randomness(gan: GAN, batch: Batch, step: tf.Tensor | int) -> StepRandomness:
    return StepRandomness(gan.optimization.seed, tf.cast(step, tf.int64), gan.global_batch_size, batch.x.shape[0])


def _query_pools(
    gan: GAN, fakes: Sequence[tf.Tensor], weight: tf.Tensor, noise: Noise
) -> tuple[list[tf.Tensor] | None, list[PoolUpdate]]:
    """Return the images that the discriminators see as fakes, `None` without pools, and the changes of the pools."""
    if not gan.pools:
        return None, []
    pools = [gan.pools[pair.domain] for pair in gan.objective.adversaries]
    queried = [pool.query(fake, weight > 0, noise[POOL + i]) for i, (pool, fake) in enumerate(zip(pools, fakes))]
    return [shown for shown, _ in queried], [update for _, update in queried]


def _gradients(
    tape: tf.GradientTape, targets: list[tf.Tensor], scales: list[tf.Tensor], variables: list[tf.Variable]
) -> list[tf.Tensor]:
    """Return the gradients of targets times `scales` at the variables, packed; 0 for biases left out of training."""
    # The tape's own `unconnected_gradients` fails for variables of Keras 3.
    gradients = zip(tape.gradient(targets, variables, scales), variables)
    return pack([tf.zeros(variable.shape) if gradient is None else gradient for gradient, variable in gradients])


def _weight_decay(
    gan: GAN, networks: Mapping[str, tf.keras.Model], heads: Mapping[str, tf.keras.Model] | None = None
) -> dict[str, tf.Tensor]:
    """Return the weight decay of each network by name: factor / 2 x sum of squared kernels, the same for any sample."""
    decay, factor = {}, gan.optimization.weight_decay
    for name, network in networks.items() if factor else ():
        trained = [network, *(each for of, each in (heads or {}).items() if of == name)]
        kernels = [each for part in trained for each in part.trainable_variables if len(each.shape) > 1]
        decay[f"loss_{name[-1]}/weight_decay"] = factor * tf.add_n([tf.nn.l2_loss(kernel) for kernel in kernels])
    return decay


def _means(gan: GAN, terms: Mapping[str, tf.Tensor], weight: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return this replica's shares of the weighted means of values per sample, [N], over the global batch."""
    return {name: losses.reduce_mean(weight * term, gan.global_batch_size) for name, term in terms.items()}


def _collect(gan: GAN, parts: Mapping[str, tf.Tensor], weight: tf.Tensor, split: str) -> Scalars:
    """Return all losses of "train" or "test" by name, with the totals of the networks and `SAMPLES`.

    Raises:
        ValueError: A loss has no name in `metric_names`, so it would be trained without being logged.
    """
    names, metrics = gan.metric_names[split], {}
    if unknown := set(parts) - {*names}:
        objective = type(gan.objective).__name__
        raise ValueError(f"losses {sorted(unknown)} of {objective}: expected only losses named in its `parts`")
    for name in names:
        network, part = name.split("/", 1)
        if part == "total":
            terms = [parts[other] for other in names if other in parts and other.startswith(f"{network}/")]
            # Not a chain of additions: TensorFlow fuses it into one operation that adds in the order of arrival.
            metrics[name] = tf.reduce_sum(tf.stack(terms))
        elif name in parts:
            metrics[name] = parts[name]
    return {**metrics, **_means(gan, {SAMPLES: tf.ones_like(weight)}, weight)}
