"""The state that evolves on the devices (networks, optimizers) and its train and test steps on one replica."""

import tensorflow as tf

from cyclegan import layers, losses, models
from cyclegan.optimizers import Adam, LossScale

LOSSES = (
    *(f"{g}/{part}" for g in ("loss_G", "loss_F") for part in ("loss", "cycle", "identity", "total")),
    *("loss_X/loss", "loss_Y/loss"),
)
ERRORS = ("error/MAE(X, F(G(X)))", "error/MAE(Y, G(F(Y)))", "error/MAE(X, F(X))", "error/MAE(Y, G(Y))")
CHANGES = ("change/MAE(X, G(X))", "change/MAE(Y, F(Y))", "change/correlation(X, G(X))", "change/correlation(Y, F(Y))")
SAMPLES = "samples"  # the share of a batch that is samples and not filling
LOSS_SCALE = "loss_scale"  # with float16 only
GRADIENTS = ("gradients of the generators", "gradients of the discriminators")  # their norms on a replica


def to_float(images):
    """uint8 [0, 255] or uint16 [0, 65535] -> float32 [-1, 1]."""
    return tf.cast(images, tf.float32) / (tf.as_dtype(images.dtype).max / 2) - 1.0


def _both(network, a, b):
    """(network(a), network(b)), computed as one batch."""
    return tf.split(network(tf.concat([a, b], axis=0), training=True), 2)


class CycleGAN:
    """G: X -> Y and F: Y -> X, their discriminators D_X and D_Y, and what training them needs.

    Make it under the strategy's scope. Two optimizers, not four, as in the paper and pytorch-CycleGAN-and-pix2pix: Adam works on
    each weight by itself, so one over both generators does what two with the same settings do; likewise for the discriminators.

    Args:
        global_batch_size: image pairs per step, over all replicas.
        config: the `Config`: what networks, losses and optimizers are like. With an identity weight of 0 nothing of that loss is
            computed. `precision` "auto" is float32 here. The variables, the statistics of normalizations, the generators' tanh
            and the losses are float32 always.
    """

    def __init__(self, global_batch_size, config):
        tf.keras.utils.set_random_seed(config.seed)
        self.global_batch_size = global_batch_size
        self.config = config
        precision = "float32" if config.precision == "auto" else config.precision
        x, y = config.channels_x, config.channels_y
        with layers.computing_in(precision):
            self.G = models.generator(config, x, y, name="G")
            self.F = models.generator(config, y, x, name="F")
            self.D_X = models.discriminator(config, x, name="D_X")
            self.D_Y = models.discriminator(config, y, name="D_Y")
        self.generator_variables = self.G.trainable_variables + self.F.trainable_variables
        self.discriminator_variables = self.D_X.trainable_variables + self.D_Y.trainable_variables
        self.generator_optimizer = Adam(self.generator_variables, config.lr, config.beta_1, config.beta_2)
        self.discriminator_optimizer = Adam(
            self.discriminator_variables, config.lr_discriminator, config.beta_1, config.beta_2
        )
        self.loss_scale = LossScale()  # always, so that a checkpoint fits whatever the precision
        self.scaled = precision == "float16"

    def state(self):
        """Everything that evolves, by the name that it has in a checkpoint."""
        names = ("G", "F", "D_X", "D_Y", "generator_optimizer", "discriminator_optimizer", "loss_scale")
        return {name: getattr(self, name) for name in names}

    @property
    def learning_rate(self):
        """Of both optimizers, a float."""
        return float(self.generator_optimizer.learning_rate.numpy())

    @learning_rate.setter
    def learning_rate(self, value):
        for optimizer in (self.generator_optimizer, self.discriminator_optimizer):
            optimizer.learning_rate.assign(value)

    def parameters(self):
        """(of a generator, of a discriminator): how many parameters each has."""
        return self.G.count_params(), self.D_X.count_params()

    def flops(self, size):
        """Floating-point operations that the convolutions of a training step need for one pair of pictures of a (height, width).

        Forward is one product; backward is two, for what went in and for the weights. What could be saved (the gradients of the
        pictures themselves) is not counted out, and all that is not a convolution is not counted in.
        """
        generator, discriminator = (models.multiplications(network, *size) for network in (self.G, self.D_X))
        # Each generator on a picture, a fake and, for the identity, one more; each discriminator on two pictures, once more
        # backward for the generators' sake.
        passes = 2 * (3 if self.config.lambda_identity > 0 else 2) * 3
        return 2.0 * (passes * generator + 2 * (2 * 3 + 1) * discriminator)

    def cycle(self, x, y):
        """Translates there and back. Returns (fake_y, cycle_x, fake_x, cycle_y) for float32 [N, H, W, 3] in [-1, 1]."""
        fake_y, fake_x = self.G(x, training=False), self.F(y, training=False)
        return fake_y, self.F(fake_y, training=False), fake_x, self.G(fake_x, training=False)

    def train_step(self, x, y, weight):
        """The losses of one replica's share of a batch, and the gradients that `update` applies.

        Every network runs once on each of its inputs, and both kinds of networks see the others as they were before the step.

        Args:
            x, y: uint8 [N, H, W, 3], pictures of the two domains.
            weight: float32 [N], 1 for a sample, 0 for one that only fills the batch up.

        Returns:
            (figures, gradients). Figures: this replica's share of each mean over the global batch, scalars already divided by
            it: the losses (`LOSSES`) and the share of samples in the batch (`SAMPLES`); and the norms of its gradients
            (`GRADIENTS`), which are finite only if all of them are; with float16, the loss scale too. Gradients: of the
            generators, of the discriminators, times the loss scale.
        """
        # The tapes meet at the fakes: what the discriminators' tape gives back there goes into the generators' tape.
        with tf.GradientTape() as generators:
            pictures = self._translate(to_float(x), to_float(y), identity=self.config.lambda_identity > 0)
            similar = self._similarity(pictures, weight)
        fakes = pictures[2:4]
        with tf.GradientTape(persistent=True) as discriminators:
            discriminators.watch(fakes)
            deceived, judged = self._judgement(pictures, weight)
        scale = tf.convert_to_tensor(self.loss_scale.scale) if self.scaled else tf.constant(1.0)
        scales = [scale] * 4
        # Zhu et al. 2017, eq. 3: both generators descend the sum, so the cycle x -> G(x) -> F(G(x)) trains G too.
        received = discriminators.gradient([*deceived.values()], fakes, scales[:2])
        gradients = (
            generators.gradient([*similar.values(), *fakes], self.generator_variables, [*scales, *received]),
            discriminators.gradient([*judged.values()], self.discriminator_variables, scales[:2]),
        )
        figures = self._figures(similar, deceived, judged, weight)
        figures.update({name: tf.linalg.global_norm(part) / scale for name, part in zip(GRADIENTS, gradients)})
        if self.scaled:
            figures[LOSS_SCALE] = scale * x.shape[0] / self.global_batch_size
        return figures, gradients

    def update(self, gradients, good):
        """One update of all four networks on this replica; call it on every replica with the same gradients.

        Args:
            gradients: what `train_step` gave, summed over the replicas.
            good: bool scalar; where it is false nothing is updated but the loss scale.
        """
        if self.scaled:
            scale = tf.convert_to_tensor(self.loss_scale.scale)
            gradients = tf.nest.map_structure(lambda gradient: gradient / scale, gradients)
            self.loss_scale.update(good)
        self.generator_optimizer.apply(gradients[0], self.generator_variables, good)
        self.discriminator_optimizer.apply(gradients[1], self.discriminator_variables, good)

    def test_step(self, x, y, weight):
        """The losses of one replica's share of a batch, and how the pictures compare with their translations.

        Arguments as `train_step`; nothing is updated.

        Returns:
            (figures, None). Figures: as `train_step`, without the gradients; with four mean absolute errors (`ERRORS`, in the
            units of [-1, 1]), and how much the generators change (`CHANGES`): mean absolute differences and correlations.
        """
        pictures = self._translate(to_float(x), to_float(y), identity=True)
        figures = self._figures(self._similarity(pictures, weight), *self._judgement(pictures, weight), weight)
        x, y, fake_y, fake_x, cycle_x, cycle_y, same_x, same_y = pictures
        mae, correlation = losses.mae, losses.correlation
        compared = (
            *zip(ERRORS, (mae,) * 4, (x, y, x, y), (cycle_x, cycle_y, same_x, same_y)),
            *zip(CHANGES, (mae, mae, correlation, correlation), (x, y, x, y), (fake_y, fake_x, fake_y, fake_x)),
        )
        for key, compare, real, other in compared:
            figures[key] = self._mean(weight, compare(real, other))
        return figures, None

    def _mean(self, weight, per_sample):
        return losses.reduce_mean(weight * per_sample, self.global_batch_size)

    def _translate(self, x, y, identity):
        """(x, y, fake_y, fake_x, cycle_x, cycle_y, same_x, same_y), float32 [N, H, W, 3] in [-1, 1]."""
        # Two inputs of a network that are known at the same time go through it as one batch. That changes nothing, because
        # every sample is normalized by itself, and makes fewer and larger operations of it.
        if identity:
            fake_y, same_y = _both(self.G, x, y)
            fake_x, same_x = _both(self.F, y, x)
        else:
            fake_y, fake_x, same_x, same_y = self.G(x, training=True), self.F(y, training=True), x, y
        cycle_x, cycle_y = self.F(fake_y, training=True), self.G(fake_x, training=True)
        return x, y, fake_y, fake_x, cycle_x, cycle_y, same_x, same_y

    def _similarity(self, pictures, weight):
        """The cycle and identity losses, by name."""
        x, y, _, _, cycle_x, cycle_y, same_x, same_y = pictures
        return {
            "loss_G/cycle": self._mean(weight, losses.cycle_loss(y, cycle_y, self.config.lambda_cycle)),
            "loss_G/identity": self._mean(weight, losses.identity_loss(y, same_y, self.config.lambda_identity)),
            "loss_F/cycle": self._mean(weight, losses.cycle_loss(x, cycle_x, self.config.lambda_cycle)),
            "loss_F/identity": self._mean(weight, losses.identity_loss(x, same_x, self.config.lambda_identity)),
        }

    def _judgement(self, pictures, weight):
        """The adversarial losses by name: of the generators, of the discriminators."""
        x, y, fake_y, fake_x = pictures[:4]
        real_x_logits, fake_x_logits = _both(self.D_X, x, fake_x)
        real_y_logits, fake_y_logits = _both(self.D_Y, y, fake_y)
        generator, discriminator = losses.generator_loss, losses.discriminator_loss
        return {
            "loss_G/loss": self._mean(weight, generator(self.config.adversarial, fake_y_logits)),
            "loss_F/loss": self._mean(weight, generator(self.config.adversarial, fake_x_logits)),
        }, {
            "loss_X/loss": self._mean(weight, discriminator(self.config.adversarial, real_x_logits, fake_x_logits)),
            "loss_Y/loss": self._mean(weight, discriminator(self.config.adversarial, real_y_logits, fake_y_logits)),
        }

    def _figures(self, similar, deceived, judged, weight):
        """All losses with the generators' totals, in the order of `LOSSES`, and the share of samples."""
        figures = {**similar, **deceived, **judged}
        for name in ("loss_G", "loss_F"):
            # Not a chain of additions: TensorFlow makes one operation of it that adds in the order it happens to get them in.
            parts = [figures[f"{name}/{part}"] for part in ("loss", "cycle", "identity")]
            figures[f"{name}/total"] = tf.reduce_sum(tf.stack(parts))
        return {**{name: figures[name] for name in LOSSES}, SAMPLES: self._mean(weight, tf.ones_like(weight))}
