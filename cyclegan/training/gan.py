"""The state that evolves on the devices (networks, optimizers, image pools) and its train and test steps on one replica."""

import tensorflow as tf

from cyclegan.distribution import collectives
from cyclegan.images.value_range import to_float
from cyclegan.networks import compat, discriminators, flops, generators
from cyclegan.networks.dropout import random_stream
from cyclegan.training import losses
from cyclegan.training.diffaugment import DRAWS, diffaugment
from cyclegan.training.image_pool import ImagePool
from cyclegan.training.optimizers import Adam, LossScale, clip, follow

LOSSES = (
    *(f"{g}/{part}" for g in ("loss_G", "loss_F") for part in ("loss", "cycle", "identity", "total")),
    *("loss_X/loss", "loss_Y/loss"),
)
PENALTIES = ("loss_X/penalty", "loss_Y/penalty")  # with wgan-gp or R1 only
DECAYS = ("weight_decay/generators", "weight_decay/discriminators")  # where it is on
ERRORS = ("error/MAE(X, F(G(X)))", "error/MAE(Y, G(F(Y)))", "error/MAE(X, F(X))", "error/MAE(Y, G(Y))")
CHANGES = ("change/MAE(X, G(X))", "change/MAE(Y, F(Y))", "change/correlation(X, G(X))", "change/correlation(Y, F(Y))")
SAMPLES = "samples"  # the share of a batch that is samples and not filling
LOSS_SCALE = "loss_scale"  # with float16 only
GRADIENTS = ("gradients of the generators", "gradients of the discriminators")  # their norms on a replica
AMPLIFIED = 2.0**10  # by which slopes in float16 are, see `losses.slopes`
# What random numbers are for: the pools, what is changed for the discriminators (4 kinds of pictures), penalties, dropout.
POOLS, AUGMENTED, MIXED, DROPPED, PURPOSES = 0, 2, 6, 8, 9


class CycleGAN:
    """G: X -> Y and F: Y -> X, their discriminators D_X and D_Y, and what training them needs.

    Make it under the strategy's scope. Two optimizers, not four, as in the paper and pytorch-CycleGAN-and-pix2pix: Adam works on
    each weight by itself, so one over both generators does what two with the same settings do; likewise for the discriminators.

    Args:
        global_batch_size: image pairs per step, over all replicas.
        config: the `Config`: what networks, losses and optimizers are like. With an identity weight of 0 nothing of that
            loss is computed in training; testing still measures it. `precision` "auto" is float32 here. The variables, the
            statistics of normalizations, the generators' tanh and the losses are float32 always.
        shape: (height, width) of the pictures in training; `None` is `config.data.image_shape`.
    """

    def __init__(self, global_batch_size, config, shape=None):
        tf.keras.utils.set_random_seed(config.optimization.seed)
        self.global_batch_size = global_batch_size
        self.config = config
        x, y = config.data.channels_x, config.data.channels_y
        shape = shape or config.data.image_shape
        with compat.precision_policy(
            "float32" if config.performance.precision == "auto" else config.performance.precision
        ):
            self.G = generators.make_generator(config.networks, x, y, name="G")
            self.F = generators.make_generator(config.networks, y, x, name="F")
            self.D_X = discriminators.make_discriminator(config.networks, x, config.objective.has_penalty, name="D_X")
            self.D_Y = discriminators.make_discriminator(config.networks, y, config.objective.has_penalty, name="D_Y")
            if config.optimization.ema:
                self.G_ema = generators.make_generator(config.networks, x, y, name="G_ema")
                self.F_ema = generators.make_generator(config.networks, y, x, name="F_ema")
                self.begin_averages()
        self.generator_variables = self.G.trainable_variables + self.F.trainable_variables
        self.discriminator_variables = self.D_X.trainable_variables + self.D_Y.trainable_variables
        networks = (self.G, self.F, self.D_X, self.D_Y)
        self.statistics = [variable for network in networks for variable in network.non_trainable_variables]
        self.generator_optimizer = Adam(
            self.generator_variables, config.optimization.beta_1, config.optimization.beta_2
        )
        self.discriminator_optimizer = Adam(
            self.discriminator_variables, config.optimization.beta_1, config.optimization.beta_2
        )
        self.loss_scale = LossScale()  # always, so that a checkpoint fits whatever the precision
        self.scaled = config.performance.precision == "float16"
        if config.objective.pool_size:
            self.pool_x, self.pool_y = (
                ImagePool(config.objective.pool_size, (*shape, channels)) for channels in (x, y)
            )
        compared = config.data.channels_x == config.data.channels_y  # or a picture and its translation can't be
        errors, changes = (ERRORS, CHANGES) if compared else (ERRORS[:2], ())
        penalties = PENALTIES if config.objective.has_penalty else ()
        self.figures = {
            "train": (*LOSSES, *penalties, *(DECAYS if config.optimization.weight_decay else ())),
            "test": (*LOSSES, *errors, *changes),
        }

    def state(self):
        """Everything that evolves, by the name that it has in a checkpoint."""
        names = ["G", "F", "D_X", "D_Y", "generator_optimizer", "discriminator_optimizer", "loss_scale"]
        names += ["pool_x", "pool_y"] if self.config.objective.pool_size else []
        names += ["G_ema", "F_ema"] if self.config.optimization.ema else []
        return {name: getattr(self, name) for name in names}

    def begin_averages(self):
        """The running means begin at what the generators are now, where there are any."""
        for network, used in zip((self.G, self.F), self.used):
            used.set_weights(network.get_weights())

    @property
    def used(self):
        """The generators (G, F) for all but training."""
        return (self.G_ema, self.F_ema) if self.config.optimization.ema else (self.G, self.F)

    def parameters(self):
        """(of a generator, of a discriminator): how many parameters each has."""
        return self.G.count_params(), self.D_X.count_params()

    def flops(self, height, width):
        """Floating-point operations that the convolutions of a training step need for one pair of pictures, sizes in pixels.

        Forward is one product; backward is two, for what went in and for the weights. What could be saved (the gradients of the
        pictures themselves) is not counted out, and all that is not a convolution, or a penalty, is not counted in.
        """
        total = 0.0
        for network in (self.G, self.F):  # on a picture, a fake and, for the identity, one more
            passes = 3 * (3 if self.config.objective.lambda_identity > 0 else 2)
            total += passes * flops.count_macs(network, height, width)
        for network in (self.D_X, self.D_Y):  # on two pictures; and for the generators' sake on one of them, or another
            passes = 2 * 3 + (2 if self.config.objective.pool_size else 1)
            total += passes * flops.count_macs(network, height, width)
        return 2.0 * total

    def cycle(self, x, y):
        """Translates there and back. Returns (fake_y, cycle_x, fake_x, cycle_y) for float32 [N, H, W, C] in [-1, 1]."""
        G, F = self.used
        fake_y, fake_x = G(x, training=False), F(y, training=False)
        return fake_y, F(fake_y, training=False), fake_x, G(fake_x, training=False)

    def train_step(self, x, y, weight, step=0):
        """The losses of one replica's share of a batch, and the gradients that `update` applies.

        Both kinds of networks see the others as they were before the step.

        Args:
            x, y: uint8 or uint16 [N, H, W, C], pictures of the two domains.
            weight: float32 [N], 1 for a sample, 0 for one that only fills the batch up.
            step: the number of the step, an integer or scalar. All that is random is a function of the seed and of it.

        Returns:
            (figures, gradients, kept). Figures: this replica's share of each mean over the global batch, scalars already divided
            by it: the losses (`LOSSES`, with `PENALTIES` and `DECAYS` where they are on) and the share of samples in the batch
            (`SAMPLES`); and the norms of its gradients (`GRADIENTS`), which are finite only if all of them are; with float16,
            the loss scale too. Gradients: of the generators, of the discriminators, times the loss scale. Kept: what `update`
            puts into the image pools, and what the statistics of batch normalizations were before.
        """
        config, step = self.config, tf.cast(step, tf.int64)
        before = [tf.convert_to_tensor(variable) for variable in self.statistics]
        draws = self._draws(step, x.shape[0])
        # The tapes meet at the fakes: what the discriminators' tape gives back there goes into the generators' tape.
        with tf.GradientTape() as tape:
            pictures, similar = self._compiled(self._generate)(
                to_float(tf.convert_to_tensor(x)), to_float(tf.convert_to_tensor(y)), weight, step
            )
            decay = self._weight_decay(self.generator_variables)
            share = tf.nn.scale_regularization_loss(decay)
        shown, kept = self._from_pools(pictures[2:4], weight, step)
        scale = tf.convert_to_tensor(self.loss_scale.scale) if self.scaled else tf.constant(1.0)
        judged, received, of_discriminators = self._compiled(self._discriminate)(
            pictures[:4], shown, weight, draws, scale
        )
        # Zhu et al. 2017, eq. 3: both generators descend the sum, so the cycle x -> G(x) -> F(G(x)) trains G too.
        descended = [*similar.values(), *pictures[2:4], share]
        seeds = [*[scale] * len(similar), *received, scale]
        gradients = (tape.gradient(descended, self.generator_variables, seeds), of_discriminators)
        figures = self._figures({**similar, **judged}, weight)
        if config.optimization.weight_decay:
            decays = (decay, self._weight_decay(self.discriminator_variables))
            figures.update({name: figures[SAMPLES] * value for name, value in zip(DECAYS, decays)})
        figures.update({name: tf.linalg.global_norm(part) / scale for name, part in zip(GRADIENTS, gradients)})
        if self.scaled:
            figures[LOSS_SCALE] = scale * x.shape[0] / self.global_batch_size
        return figures, gradients, (kept, before)

    def update(self, gradients, good, kept, step=0, rates=None):
        """One update of all four networks on this replica; call it on every replica with the same arguments.

        Args:
            gradients: what `train_step` gave, summed over the replicas.
            good: bool scalar; where it is false nothing is updated but the loss scale.
            kept, step: see `train_step`.
            rates: float32 [2], the learning rates of the generators and of the discriminators; `None` is those of the config.
        """
        config = self.config
        rates = tf.unstack(
            [config.optimization.lr, config.optimization.lr_discriminator] if rates is None else rates, num=2
        )
        if self.scaled:
            scale = tf.convert_to_tensor(self.loss_scale.scale)
            gradients = tf.nest.map_structure(lambda gradient: gradient / scale, gradients)
            self.loss_scale.update(good)
        if config.optimization.clip_norm:
            gradients = [clip(part, config.optimization.clip_norm) for part in gradients]
        generators, discriminators = (good & turn for turn in self._turns(step))
        self.generator_optimizer.apply(gradients[0], self.generator_variables, rates[0], generators)
        self.discriminator_optimizer.apply(gradients[1], self.discriminator_variables, rates[1], discriminators)
        if config.optimization.ema:
            for network, used in zip((self.G, self.F), self.used):
                follow(used.trainable_variables, network.trainable_variables, config.optimization.ema, generators)
                follow(used.non_trainable_variables, network.non_trainable_variables, 0.0, generators)
        pictures, before = kept
        for pool, part in zip(("pool_y", "pool_x"), pictures):
            getattr(self, pool).store(part, discriminators)
        for variable, value in zip(self.statistics, before):  # forward passes have changed them already
            value = tf.where(good, tf.convert_to_tensor(variable), value)
            tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)

    def test_step(self, x, y, weight):
        """The losses of one replica's share of a batch, and how the pictures compare with their translations.

        Arguments as `train_step`; nothing is updated. The generators are those that are used, see `Config.ema`.

        Returns:
            (figures, None, ()). Figures: as `train_step`, without the gradients, penalties and decays; with mean absolute errors
            (`ERRORS`, in the units of [-1, 1]), and how much the generators change (`CHANGES`): mean absolute differences and
            correlations. Without those that compare pictures of different numbers of channels.
        """
        identity = self.config.data.channels_x == self.config.data.channels_y
        pictures = self._translate(
            to_float(tf.convert_to_tensor(x)), to_float(tf.convert_to_tensor(y)), identity, *self.used, training=False
        )
        deceived, judged = self._judgement(pictures[:4], None, weight, training=False)
        figures = self._figures({**self._similarity(pictures, weight), **deceived, **judged}, weight)
        x, y, fake_y, fake_x, cycle_x, cycle_y, same_x, same_y = pictures
        mae, correlation = losses.mae, losses.correlation
        compared = (
            *zip(ERRORS, (mae,) * 4, (x, y, x, y), (cycle_x, cycle_y, same_x, same_y)),
            *zip(CHANGES, (mae, mae, correlation, correlation), (x, y, x, y), (fake_y, fake_x, fake_y, fake_x)),
        )
        for key, compare, real, other in compared:
            if key in self.figures["test"]:
                figures[key] = self._mean(weight, compare(real, other))
        return figures, None, ()

    def _mean(self, weight, per_sample):
        return losses.reduce_mean(weight * per_sample, self.global_batch_size)

    def _compiled(self, function):
        return (
            tf.function(function, autograph=False, jit_compile=True)
            if self.config.performance.xla == "on"
            else function
        )

    def _turns(self, step):
        """Whether the generators and the discriminators are updated in a step, two bools.

        Of max(N, M) steps the generators take the last N, the discriminators the last M (`generator_steps`,
        `discriminator_steps`): Goodfellow et al. 2014, algorithm 1, with a new batch for every step.
        """
        counts = self.config.optimization.generator_steps, self.config.optimization.discriminator_steps
        longest = max(counts)
        return [step % longest >= longest - count for count in counts]

    def _seed(self, step, purpose):
        return tf.stack([tf.constant(self.config.optimization.seed, tf.int64), PURPOSES * step + purpose])

    def _uniform(self, step, purpose, columns):
        """float32 [global batch, columns], uniform in [0, 1), the same on all replicas."""
        shape = [self.global_batch_size, columns]
        return tf.random.stateless_uniform(shape, self._seed(step, purpose), alg="philox")

    def _start(self, count):
        """The place of this replica's first sample in the global batch, where each has `count` of them."""
        return tf.distribute.get_replica_context().replica_id_in_sync_group * count

    def _share(self, rows, count):
        """This replica's `count` rows of what all replicas have."""
        start = self._start(count)
        return rows[start : start + count]

    def _draws(self, step, count):
        """What this replica's samples need of random numbers: for `diffaugment` and `losses.gradient_penalty`."""
        augmented, mixed = [], []
        if self.config.objective.augmentations:
            augmented = [self._share(self._uniform(step, AUGMENTED + i, DRAWS), count) for i in range(4)]
        if self.config.objective.adversarial == "wgan-gp":
            mixed = [self._share(self._uniform(step, MIXED + i, 1)[:, 0], count) for i in range(2)]
        return augmented, mixed

    def _from_pools(self, fakes, weight, step):
        """What the discriminators are shown in place of (fake_y, fake_x), see `ImagePool.query`, and what to keep.

        Without pools that is None, and not the fakes: in a compiled function, twice the same argument is two tensors.
        """
        if not self.config.objective.pool_size:
            return None, ()
        parts = collectives.all_gather((*fakes, weight))
        shown, kept = [], []
        for i, pool in enumerate((self.pool_y, self.pool_x)):
            pictures, store = pool.query(parts[i], parts[2] > 0, self._uniform(step, POOLS + i, 2))
            shown.append(self._share(pictures, weight.shape[0]))
            kept.append(store)
        return shown, kept

    def _weight_decay(self, variables):
        """weight_decay x half the sum of the squares of all kernels."""
        if not self.config.optimization.weight_decay:
            return tf.constant(0.0)
        kernels = tf.add_n([tf.nn.l2_loss(variable) for variable in variables if len(variable.shape) == 4])
        return self.config.optimization.weight_decay * kernels

    def _generate(self, x, y, weight, step):
        """The pictures of a training step, see `_translate`, and the cycle and identity losses."""
        count = weight.shape[0]
        with random_stream(self._seed(step, DROPPED), self.global_batch_size, self._start(count), count):
            pictures = self._translate(x, y, self.config.objective.lambda_identity > 0, self.G, self.F, training=True)
        return pictures, self._similarity(pictures, weight)

    def _discriminate(self, pictures, shown, weight, draws, scale):
        """What the discriminators say of (x, y, fake_y, fake_x), with the fakes that they are trained on.

        Returns:
            (losses, received, gradients): by name; the gradients of the generators' losses at fake_y and fake_x; and those of
            the discriminators' variables, both times `scale`.
        """
        fakes = pictures[2:4]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(fakes)
            deceived, judged = self._judgement(pictures, shown, weight, training=True, draws=draws)
            decay = tf.nn.scale_regularization_loss(self._weight_decay(self.discriminator_variables))
            descended = [*judged.values(), decay]
        received = tape.gradient([*deceived.values()], fakes, [scale] * 2)
        gradients = tape.gradient(descended, self.discriminator_variables, [scale] * len(descended))
        return {**deceived, **judged}, received, gradients

    def _both(self, network, a, b, training=True):
        """(network(a), network(b)), computed as one batch."""
        if self.config.networks.norm == "batch":  # where a sample is normalized with those beside it
            return network(a, training=training), network(b, training=training)
        return tf.split(network(tf.concat([a, b], axis=0), training=training), 2)

    def _translate(self, x, y, identity, G, F, training):
        """(x, y, fake_y, fake_x, cycle_x, cycle_y, same_x, same_y), float32 [N, H, W, C] in [-1, 1]."""
        # Two inputs of a network that are known at the same time go through it as one batch. That changes nothing, because
        # every sample is normalized by itself, and makes fewer and larger operations of it.
        if identity:
            fake_y, same_y = self._both(G, x, y, training)
            fake_x, same_x = self._both(F, y, x, training)
        else:
            fake_y, fake_x, same_x, same_y = G(x, training=training), F(y, training=training), x, y
        cycle_x, cycle_y = F(fake_y, training=training), G(fake_x, training=training)
        return x, y, fake_y, fake_x, cycle_x, cycle_y, same_x, same_y

    def _similarity(self, pictures, weight):
        """The cycle and identity losses, by name."""
        x, y, _, _, cycle_x, cycle_y, same_x, same_y = pictures
        similar = {}
        for name, real, cycled, same in (("loss_G", y, cycle_y, same_y), ("loss_F", x, cycle_x, same_x)):
            cycle = losses.cycle_loss(real, cycled, self.config.objective.lambda_cycle)
            similar[f"{name}/cycle"] = self._mean(weight, cycle)
            similar[f"{name}/identity"] = tf.constant(0.0)
            if self.config.objective.lambda_identity > 0:
                identity = losses.identity_loss(real, same, self.config.objective.lambda_identity)
                similar[f"{name}/identity"] = self._mean(weight, identity)
        return similar

    def _judgement(self, pictures, shown, weight, training, draws=((), ())):
        """The adversarial losses by name: of the generators, of the discriminators with their penalties.

        Args:
            pictures: (x, y, fake_y, fake_x).
            shown: the (fake_y, fake_x) that the discriminators are trained on; None if they are those of `pictures`.
            draws: see `_draws`.
        """
        config, (augmented, mixed) = self.config, draws
        amplified = AMPLIFIED if self.scaled else 1.0
        x, y, fake_y, fake_x = pictures

        def seen(images, kind):
            return diffaugment(images, config.objective.augmentations, augmented[kind]) if augmented else images

        deceived, judged, penalties = {}, {}, {}
        for i, (name, of, D, real, fake) in enumerate(
            (("G", "Y", self.D_Y, y, fake_y), ("F", "X", self.D_X, x, fake_x))
        ):
            real, fake = seen(real, i), seen(fake, 2 + i)
            other = seen(shown[i], 2 + i) if shown else fake
            real_logits, other_logits = self._both(D, real, other, training)
            fake_logits = D(fake, training=training) if shown else other_logits
            deceived[f"loss_{name}/loss"] = self._mean(
                weight, losses.generator_loss(config.objective.adversarial, fake_logits)
            )
            judged[f"loss_{of}/loss"] = self._mean(
                weight,
                losses.discriminator_loss(
                    config.objective.adversarial, real_logits, other_logits, config.objective.label_smoothing
                ),
            )
            if training and mixed:
                penalty = config.objective.lambda_gp * losses.gradient_penalty(D, real, other, mixed[i], amplified)
                penalties[f"loss_{of}/penalty"] = self._mean(weight, 0.5 * penalty)
            if training and config.objective.r1:
                penalty = self._mean(weight, 0.5 * config.objective.r1 * losses.slopes(D, real, amplified))
                penalties[f"loss_{of}/penalty"] = penalties.get(f"loss_{of}/penalty", 0.0) + penalty
        return deceived, {**judged, **penalties}

    def _figures(self, parts, weight):
        """All losses with the generators' totals, those of `LOSSES` first, and the share of samples."""
        totals = {}
        for name in ("loss_G", "loss_F"):
            # Not a chain of additions: TensorFlow makes one operation of it that adds in the order it happens to get them in.
            of_network = [parts[f"{name}/{part}"] for part in ("loss", "cycle", "identity")]
            totals[f"{name}/total"] = tf.reduce_sum(tf.stack(of_network))
        figures = {**parts, **totals}
        figures = {name: figures[name] for name in (*LOSSES, *PENALTIES) if name in figures}
        return {**figures, SAMPLES: self._mean(weight, tf.ones_like(weight))}
