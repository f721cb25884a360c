"""The state that evolves on the devices (networks, optimizers) and its train and test steps on one replica."""

import tensorflow as tf

from cyclegan import losses, models

ERRORS = ("error/MAE(X, F(G(X)))", "error/MAE(Y, G(F(Y)))", "error/MAE(X, F(X))", "error/MAE(Y, G(Y))")
CHANGES = ("change/MAE(X, G(X))", "change/MAE(Y, F(Y))", "change/correlation(X, G(X))", "change/correlation(Y, F(Y))")
SAMPLES = "samples"  # the share of a batch that is samples and not filling
GRADIENTS = ("gradients of the generators", "gradients of the discriminators")  # their norms on a replica


def to_float(images):
    """uint8 [0, 255] -> float32 [-1, 1]."""
    return tf.cast(images, tf.float32) / 127.5 - 1.0


def _both(network, a, b):
    """(network(a), network(b)), computed as one batch."""
    return tf.split(network(tf.concat([a, b], axis=0), training=True), 2)


class CycleGAN:
    """G: X -> Y and F: Y -> X, their discriminators D_X and D_Y, and what training them needs.

    Make it under the strategy's scope. Two optimizers, not four: Adam works on each weight by itself, so one Adam over both
    generators does what two with the same settings do, with one reduction over the replicas instead of two; likewise for
    the discriminators. It is also what the paper and pytorch-CycleGAN-and-pix2pix do.

    Args:
        global_batch_size: image pairs per step, over all replicas.
        filters, residual_blocks: see `models.generator`.
        lr, beta_1, beta_2: of both Adams.
        lambda_cycle, lambda_identity: weights of these losses; with an identity weight of 0 nothing of it is computed.
        adversarial: a key of `losses.ADVERSARIAL`.
        seed: of the initial weights.
    """

    def __init__(
        self,
        global_batch_size,
        filters=64,
        residual_blocks=9,
        lr=2e-4,
        beta_1=0.5,
        beta_2=0.999,
        lambda_cycle=10.0,
        lambda_identity=5.0,
        adversarial="lsgan",
        seed=0,
    ):
        tf.keras.utils.set_random_seed(seed)
        self.global_batch_size = global_batch_size
        self.lambda_cycle = lambda_cycle
        self.lambda_identity = lambda_identity
        self.adversarial = adversarial
        self.G = models.generator(filters, residual_blocks, name="G")
        self.F = models.generator(filters, residual_blocks, name="F")
        self.D_X = models.discriminator(filters, name="D_X")
        self.D_Y = models.discriminator(filters, name="D_Y")
        self.generator_variables = self.G.trainable_variables + self.F.trainable_variables
        self.discriminator_variables = self.D_X.trainable_variables + self.D_Y.trainable_variables
        self.generator_optimizer = tf.keras.optimizers.Adam(lr, beta_1, beta_2)
        self.generator_optimizer.build(self.generator_variables)
        self.discriminator_optimizer = tf.keras.optimizers.Adam(lr, beta_1, beta_2)
        self.discriminator_optimizer.build(self.discriminator_variables)

    def state(self):
        """Everything that evolves, by the name that it has in a checkpoint."""
        names = ("G", "F", "D_X", "D_Y", "generator_optimizer", "discriminator_optimizer")
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

    def cycle(self, x, y):
        """Translates there and back. Returns (fake_y, cycle_x, fake_x, cycle_y) for float32 [N, H, W, 3] in [-1, 1]."""
        fake_y, fake_x = self.G(x, training=False), self.F(y, training=False)
        return fake_y, self.F(fake_y, training=False), fake_x, self.G(fake_x, training=False)

    def train_step(self, x, y, weight):
        """The losses of one replica's share of a batch, and the gradients that `update` applies.

        Every network runs once on each of its inputs; one backward pass serves both generators, another both
        discriminators. Both see the discriminators as they were before the step.

        Args:
            x, y: uint8 [N, H, W, 3], pictures of the two domains.
            weight: float32 [N], 1 for a sample, 0 for one that only fills the batch up.

        Returns:
            (figures, gradients). Figures: this replica's share of each mean over the global batch, scalars already divided by
            it: the losses (`LOSSES`) and the share of samples in the batch (`SAMPLES`); and the norms of its gradients
            (`GRADIENTS`), which are finite only if all of them are. Gradients: of the generators, of the discriminators.
        """
        with tf.GradientTape(persistent=True) as tape:
            figures = self._losses(x, y, weight, identity=self.lambda_identity > 0)[0]
            # Zhu et al. 2017, eq. 3: both generators descend the sum, so the cycle x -> G(x) -> F(G(x)) trains G too.
            generator_total = figures["loss_G/total"] + figures["loss_F/total"]
            discriminator_total = figures["loss_X/loss"] + figures["loss_Y/loss"]
        gradients = (
            tape.gradient(generator_total, self.generator_variables),
            tape.gradient(discriminator_total, self.discriminator_variables),
        )
        del tape
        figures.update({name: tf.linalg.global_norm(part) for name, part in zip(GRADIENTS, gradients)})
        return figures, gradients

    def update(self, gradients):
        """One update of all four networks on every replica, by the sum of what `train_step` gave on each."""
        # apply_gradients sums over the replicas, which is why the losses are divided by the global batch.
        self.generator_optimizer.apply_gradients(zip(gradients[0], self.generator_variables))
        self.discriminator_optimizer.apply_gradients(zip(gradients[1], self.discriminator_variables))

    def test_step(self, x, y, weight):
        """The losses of one replica's share of a batch, and how the pictures compare with their translations.

        Arguments as `train_step`; nothing is updated.

        Returns:
            (figures, None). Figures: as `train_step`, without the gradients; with four mean absolute errors (`ERRORS`, in the
            units of [-1, 1]), and how much the generators change (`CHANGES`): mean absolute differences and correlations.
        """
        figures, pictures = self._losses(x, y, weight, identity=True)
        x, y, fake_y, fake_x, cycle_x, cycle_y, same_x, same_y = pictures
        mae, correlation = losses.mae, losses.correlation
        compared = (
            *zip(ERRORS, (mae,) * 4, (x, y, x, y), (cycle_x, cycle_y, same_x, same_y)),
            *zip(CHANGES, (mae, mae, correlation, correlation), (x, y, x, y), (fake_y, fake_x, fake_y, fake_x)),
        )
        for key, compare, real, other in compared:
            figures[key] = losses.reduce_mean(weight * compare(real, other), self.global_batch_size)
        return figures, None

    def _losses(self, x, y, weight, identity):
        x, y = to_float(x), to_float(y)
        # Two inputs of a network that are known at the same time go through it as one batch. That changes nothing, because
        # every sample is normalized by itself, and makes fewer and larger operations of it.
        if identity:
            fake_y, same_y = _both(self.G, x, y)
            fake_x, same_x = _both(self.F, y, x)
        else:
            fake_y, fake_x, same_x, same_y = self.G(x, training=True), self.F(y, training=True), x, y
        cycle_x, cycle_y = self.F(fake_y, training=True), self.G(fake_x, training=True)
        real_x_logits, fake_x_logits = _both(self.D_X, x, fake_x)
        real_y_logits, fake_y_logits = _both(self.D_Y, y, fake_y)

        def mean(per_sample):
            return losses.reduce_mean(weight * per_sample, self.global_batch_size)

        figures = {}
        for name, real, cycled, same, fake_logits in (
            ("loss_G", y, cycle_y, same_y, fake_y_logits),
            ("loss_F", x, cycle_x, same_x, fake_x_logits),
        ):
            parts = {
                "loss": mean(losses.generator_loss(self.adversarial, fake_logits)),
                "cycle": mean(losses.cycle_loss(real, cycled, self.lambda_cycle)),
                "identity": mean(losses.identity_loss(real, same, self.lambda_identity)),
            }
            # Not a chain of additions: TensorFlow makes one operation of it that adds in the order it happens to get them in.
            parts["total"] = tf.reduce_sum(tf.stack(list(parts.values())))
            figures.update({f"{name}/{part}": value for part, value in parts.items()})
        figures["loss_X/loss"] = mean(losses.discriminator_loss(self.adversarial, real_x_logits, fake_x_logits))
        figures["loss_Y/loss"] = mean(losses.discriminator_loss(self.adversarial, real_y_logits, fake_y_logits))
        figures[SAMPLES] = mean(tf.ones_like(weight))
        return figures, (x, y, fake_y, fake_x, cycle_x, cycle_y, same_x, same_y)


LOSSES = tuple(f"{g}/{part}" for g in ("loss_G", "loss_F") for part in ("loss", "cycle", "identity", "total")) + (
    "loss_X/loss",
    "loss_Y/loss",
)
