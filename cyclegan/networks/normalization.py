"""The layers that networks are made of; and the one place that knows which stack this is."""

import warnings

import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks.compat import KERAS
from cyclegan.networks.initializers import normal

EPSILON = 1e-3  # added to the variance, as in TensorFlow Addons


LARGE = 2**16  # values of a sample: from there on the CPU normalizes a few of them faster by one operation each


@tf.keras.utils.register_keras_serializable("cyclegan")
class InstanceNormalization(tf.keras.layers.Layer):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, mean and variance per sample and channel over H and W.

    Ulyanov et al. 2016. [N, H, W, C] -> [N, H, W, C], computed in float32, given back in the type that came in. Without `affine`
    there are no gamma and beta. Made by `instance_normalization`. Derivatives of any order are right if it is not `fused`; else
    first derivatives are: in training, on a CPU, large samples are normalized by one operation each, see `LARGE`.
    """

    def __init__(self, epsilon=EPSILON, affine=True, fused=True, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32", "autocast": False})
        self.epsilon, self.affine, self.fused = epsilon, affine, fused
        self.gamma = self.beta = None

    def build(self, input_shape):
        channels = (input_shape[-1],)
        if self.affine:
            self.gamma = self.add_weight(name="gamma", shape=channels, initializer=normal())
            self.beta = self.add_weight(name="beta", shape=channels, initializer="zeros")
        self.built = True

    def call(self, x, training=False):
        values = x.shape[1:].num_elements() or 0  # 0 where they are not known yet
        if self.fused and training and x.shape[0] and values >= LARGE and not hardware.accelerated():
            return self._by_sample(x)
        kind, x = x.dtype, tf.cast(x, tf.float32)
        # Not tf.nn.moments, which stops the gradient of the mean in the variance: right for first derivatives only.
        mean = tf.reduce_mean(x, axis=[1, 2], keepdims=True)
        variance = tf.reduce_mean(tf.square(x - mean), axis=[1, 2], keepdims=True)
        y = tf.nn.batch_normalization(x, mean, variance, self.beta, self.gamma, self.epsilon)
        return tf.cast(y, kind)

    def _by_sample(self, x):
        """By the operation for batch normalization, with the sample as its batch: it has float32 statistics for all types."""
        channels = x.shape[-1:]
        gamma, beta = (self.gamma, self.beta) if self.affine else (tf.ones(channels), tf.zeros(channels))
        gamma, beta = tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta)
        normal = [
            tf.raw_ops.FusedBatchNormV3(x=part, scale=gamma, offset=beta, mean=[], variance=[], epsilon=self.epsilon).y
            for part in tf.split(x, x.shape[0])
        ]
        return tf.concat(normal, axis=0)

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon, "affine": self.affine, "fused": self.fused}


def instance_normalization(epsilon=EPSILON, affine=True, twice=False):
    """An instance normalization layer with gamma ~ N(0, 0.02) and beta 0. On GPUs from TensorFlow Addons, where that exists.

    Always in float32, whatever the precision policy: statistics in bfloat16 are badly wrong for inputs with a large mean. `twice`
    asks for right second derivatives.
    """
    if twice or KERAS > 2 or not hardware.accelerated():
        return InstanceNormalization(epsilon, affine, fused=not twice)
    return addons_normalization(epsilon, affine)


def addons_normalization(epsilon=EPSILON, affine=True):
    """The layer of TensorFlow Addons, with the same initial values and in float32, too; with Keras 2 only."""
    with warnings.catch_warnings():
        # Its only message is that Addons has ended, which is why the later stack does without it.
        warnings.filterwarnings("ignore", category=UserWarning, module="tensorflow_addons")
        import tensorflow_addons as tfa
    return tfa.layers.InstanceNormalization(
        epsilon=epsilon, center=affine, scale=affine, gamma_initializer=normal(), dtype="float32"
    )


@tf.keras.utils.register_keras_serializable("cyclegan")
class BatchNormalization(tf.keras.layers.Layer):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, mean and variance per channel (Ioffe and Szegedy 2015).

    [N, H, W, C] -> [N, H, W, C], float32 always. With `training`, mean and variance are those of the global batch, N H W values on
    each of the replicas, all of which have the same N, H and W; so they, and the gradients, do not depend on the number of
    replicas. Samples that only fill a batch up, which have weight 0 in the losses, count like any other. The running statistics,
    which take their place without `training`, move a tenth of the way to those of the batch (with the variance's unbiased
    estimate, as in PyTorch), unless these are not finite: so no bad step can spoil them.

    On several replicas it can't be in a function that is compiled with XLA inside of `strategy.run`.
    """

    MOMENTUM = 0.9  # PyTorch's 0.1 is 1 minus this

    def __init__(self, epsilon=1e-5, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.epsilon = epsilon

    def build(self, input_shape):
        channels, still = (input_shape[-1],), {"trainable": False}
        self.gamma = self.add_weight(name="gamma", shape=channels, initializer=normal(1.0))
        self.beta = self.add_weight(name="beta", shape=channels, initializer="zeros")
        self.moving_mean = self.add_weight(name="moving_mean", shape=channels, initializer="zeros", **still)
        self.moving_variance = self.add_weight(name="moving_variance", shape=channels, initializer="ones", **still)
        self.built = True

    def call(self, x, training=False):
        if training:
            mean, variance, count = _global_moments(x)
            self._remember(mean, variance * count / tf.maximum(count - 1.0, 1.0))
        else:
            mean, variance = tf.convert_to_tensor(self.moving_mean), tf.convert_to_tensor(self.moving_variance)
        return tf.nn.batch_normalization(x, mean, variance, self.beta, self.gamma, self.epsilon)

    def _remember(self, mean, variance):
        finite = tf.reduce_all(tf.math.is_finite(tf.concat([mean, variance], axis=0)))
        for running, new in ((self.moving_mean, mean), (self.moving_variance, variance)):
            old = tf.convert_to_tensor(running)
            moved = tf.where(finite, self.MOMENTUM * old + (1.0 - self.MOMENTUM) * new, old)
            # On each replica its own copy: they all get the same values.
            tf.raw_ops.AssignVariableOp(resource=running.handle, value=moved)

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


def _global_moments(x):
    """(mean [C], variance [C], count): of the N H W values per channel on all replicas, which have as many each."""
    mean, variance = tf.nn.moments(x, axes=[0, 1, 2])
    count = tf.cast(tf.reduce_prod(tf.shape(x)[:3]), tf.float32)
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas == 1:
        return mean, variance, count
    # Each replica has a row of what is summed, so that one reduction tells all rows to all of them. (The sums of the values and
    # of their squares would need no rows, but lose the variance of values with a large mean.)
    row = tf.one_hot(context.replica_id_in_sync_group, replicas)[:, None, None]
    own = row * tf.stack([mean, variance])
    means, variances = tf.unstack(_reduced(own, _sum_over_replicas(own)), axis=1)
    mean, apart = tf.nn.moments(means, axes=[0])
    return mean, tf.reduce_mean(variances, axis=0) + apart, count * replicas


@tf.custom_gradient
def _reduced(own, total):
    """`total`, the sum of all replicas' `own`. What comes back to it is summed as well: each replica's loss depends on it."""
    # With the sum itself in here, as in TensorFlow's all_reduce, each call would search the graphs of all replicas for variables,
    # and the time to trace a network would grow with the square of its layers.
    return tf.identity(total), lambda dy: (_sum_over_replicas(dy), None)


def _sum_over_replicas(tensor):
    """The sum, on every replica; without a gradient."""

    def merge(strategy, tensor):
        return strategy.extended.reduce_to(tf.distribute.ReduceOp.SUM, tensor, tensor)

    return tf.distribute.get_replica_context().merge_call(merge, args=(tensor,))
