import numpy as np
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.run.checkpoints import ShardedState
from cyclegan.training.step import GAN, Batch, train_step, update

FEW_LAYERS = {"residual_blocks": 0, "discriminator_layers": 1}  # many layers take long to trace
TINY = {"filters": 4, **FEW_LAYERS, "residual_blocks": 1, "image_size": 32, "precision": "float32"}
TINIER = {**TINY, **FEW_LAYERS, "image_size": 16}

# The losses of CycleGAN.
LOSSES = (
    *(f"loss_{network}/{part}" for network in "GF" for part in ("loss", "cycle", "identity", "total")),
    *("loss_X/loss", "loss_Y/loss"),
)
# All options of the method that change a step, in as few runs as possible.
SETS = {
    "batch": {**FEW_LAYERS, "norm": "batch", "dropout": 0.3, "adversarial": "hinge", "pool_size": 2, "ema": 0.5},
    "wgan-gp": {
        **FEW_LAYERS,
        **{"adversarial": "wgan-gp", "lambda_gp": 2.0, "r1": 0.5, "diffaugment": "color,translation,cutout"},
        **{"pool_size": 2, "ema": 0.5, "clip_norm": 0.3, "weight_decay": 0.01, "discriminator_steps": 2},
        "discriminator_norm": "spectral",
    },
    "resize": {
        **{"residual_blocks": 0, "upsample": "resize", "discriminator": "pixel", "discriminator_layers": None},
        **{"channels_x": 1, "channels_y": 2, "pool_size": 2},
    },
    "cut": {
        **{"objective": "cut", "nce": "hdce", "residual_blocks": 1, "dropout": 0.3, "ema": 0.5},
        **{"dataset": "folder", "paired_names": True, "paired_share": 0.6, "lambda_paired": 5.0},
    },
    "fastcut": {"objective": "fastcut", "residual_blocks": 1},
    "dclgan": {"objective": "dclgan", "residual_blocks": 1, "pool_size": 2, "diffaugment": "translation"},
    "bce": {
        **{**FEW_LAYERS, "adversarial": "bce", "label_smoothing": 0.2, "generator_steps": 2, "pool_size": 4},
        **{"dataset": "folder", "paired_names": True, "paired_share": 0.6, "lambda_paired": 5.0, "lambda_ssim": 2.0},
    },
    "unet": {
        **{"generator": "unet_128", "residual_blocks": None, "image_size": 128, "image_width": 128, "load_size": 128},
        **{
            "discriminator": "pixel",
            "discriminator_layers": None,
            "init": "xavier",
            "pool_size": 2,
            "lr_schedule": "cosine",
        },
    },
}


class SGD:
    """Update by gradient descent, which shows gradients that are summed twice or not at all; Adam hides them."""

    def __init__(self, lr):
        self.lr, self.state = lr, tf.Module()
        self.iterations = tf.Variable(0, trainable=False)

    def apply(self, gradients, variables, learning_rate, finite):
        tf.raw_ops.AssignAddVariableOp(resource=self.iterations.handle, value=1)
        for gradient, variable in zip(gradients, variables):
            tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=self.lr, delta=gradient)


def with_sgd(gan, lr):
    gan.generator_optimizer, gan.discriminator_optimizer = SGD(lr), SGD(lr)
    return gan


def as_trained(gan):
    """Give the normalizations values as after some training; before it, the output hardly depends on the input."""
    rng = np.random.default_rng(0)
    for variable in (*gan.networks.generator_variables, *gan.networks.discriminator_variables):
        if len(variable.shape) == 1:
            middle = 0.3 if "gamma" in variable.name else 0.0
            variable.assign(rng.normal(middle, 0.1, variable.shape))
    return gan


def weights(gan):
    return [
        tf.convert_to_tensor(w).numpy() for w in gan.networks.generator_variables + gan.networks.discriminator_variables
    ]


def flat(arrays):
    return np.concatenate([np.ravel(tf.convert_to_tensor(array)) for array in arrays])


def state_values(gan):
    """Return the values of all variables in a checkpoint; of the image pools, the values of all replicas."""
    values = []
    for part in gan.state().values():
        sharded = isinstance(part, ShardedState)
        values += part.read().values() if sharded else [tf.convert_to_tensor(v).numpy() for v in part.variables]
    return values


def assign_state(gan, values):
    """Set all variables in a checkpoint to values from `state_values`."""
    values = iter(values)
    for part in gan.state().values():
        if isinstance(part, ShardedState):
            part.write(dict(zip(part.read(), values)))
        else:
            for variable in part.variables:
                variable.assign(next(values))


def eager_step(gan, x, y, weight=None):
    weight = np.ones(len(x), np.float32) if weight is None else np.array(weight, np.float32)
    metrics, gradients, carry = train_step(gan, Batch(x, y, tf.constant(weight)))
    update(gan, gradients, tf.constant(True), carry)
    return {key: float(value) for key, value in metrics.items()}


def per_replica_batches(strategy, x, y):
    """Return batches of one sample of weight 1 per replica for several steps, from [steps, replicas, H, W, 3] twice."""
    return tuple(
        strategy.experimental_distribute_values_from_function(
            lambda context, part=part: tf.constant(part[:, context.replica_id_in_sync_group, None])
        )
        for part in (x, y, np.ones(x.shape[:2], np.float32))
    )


def sgd_gradients(gan, *batch):
    """Return the gradients of a training step, as the change that SGD with learning rate 1 makes."""
    with_sgd(gan, 1.0)
    before = weights(gan)
    eager_step(gan, *batch)
    return [old - new for old, new in zip(before, weights(gan))]


def sgd_gradients_with(config, make_images):
    """Return a GAN with these settings and its gradients for two image pairs."""
    gan = as_trained(GAN(2, Config.from_settings(**{**TINY, "pool_size": 0, **config})))
    return gan, sgd_gradients(gan, make_images(2, seed=1), make_images(2, seed=2))
