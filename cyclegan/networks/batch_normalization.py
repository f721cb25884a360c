"""Batch normalization over the global batch of all replicas."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from cyclegan.networks.initializers import normal

EPSILON = 1e-5  # default of PyTorch
MOMENTUM = 0.9  # PyTorch's default of 0.1 is 1 minus this


@tf.keras.utils.register_keras_serializable("cyclegan")
class BatchNormalization(tf.keras.layers.Layer):
    """Normalize each channel: (x - mean) / sqrt(variance + epsilon) * gamma + beta (Ioffe and Szegedy 2015).

    [N, H, W, C] -> [N, H, W, C], always in float32. In training, mean and variance are computed over the global batch.
    All replicas must have the same N, H and W. The result and the gradients do not depend on the number of replicas.
    Padding samples count like any other. Without `training`, the running statistics are used. Each training call moves
    them a tenth of the way to the statistics of the batch, with the unbiased variance as in PyTorch. Statistics that are
    not finite are ignored.

    On several replicas, a function that is compiled with XLA inside of `strategy.run` can't contain this layer.

    Attributes:
        epsilon: Added to the variance.
        gamma: float32 variable [C], initially N(1, 0.02).
        beta: float32 variable [C].
        moving_mean: float32 variable [C], the running mean.
        moving_variance: float32 variable [C], the running variance.
    """

    gamma: tf.Variable
    beta: tf.Variable
    moving_mean: tf.Variable
    moving_variance: tf.Variable

    def __init__(self, epsilon: float = EPSILON, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.epsilon = epsilon

    def build(self, input_shape: tf.TensorShape) -> None:
        """Create the variables for inputs of this shape."""
        channels, fixed = (input_shape[-1],), {"trainable": False}
        self.gamma = self.add_weight(name="gamma", shape=channels, initializer=normal(1.0))
        self.beta = self.add_weight(name="beta", shape=channels, initializer="zeros")
        self.moving_mean = self.add_weight(name="moving_mean", shape=channels, initializer="zeros", **fixed)
        self.moving_variance = self.add_weight(name="moving_variance", shape=channels, initializer="ones", **fixed)
        self.built = True

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Normalize features [N, H, W, C]; in training, update the running statistics."""
        if training:
            mean, variance, count = _global_moments(x)
            self._update_statistics(mean, variance * count / tf.maximum(count - 1.0, 1.0))
        else:
            mean, variance = tf.convert_to_tensor(self.moving_mean), tf.convert_to_tensor(self.moving_variance)
        return tf.nn.batch_normalization(x, mean, variance, self.beta, self.gamma, self.epsilon)

    def _update_statistics(self, mean: tf.Tensor, variance: tf.Tensor) -> None:
        finite = tf.reduce_all(tf.math.is_finite(tf.concat([mean, variance], axis=0)))
        for running, new in ((self.moving_mean, mean), (self.moving_variance, variance)):
            old = tf.convert_to_tensor(running)
            moved = tf.where(finite, MOMENTUM * old + (1.0 - MOMENTUM) * new, old)
            # Each replica assigns its own copy: all of them get the same values.
            tf.raw_ops.AssignVariableOp(resource=running.handle, value=moved)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make this layer again."""
        return {**super().get_config(), "epsilon": self.epsilon}


def _global_moments(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return mean [C], variance [C] and count of the values per channel over all replicas, which have equal counts."""
    mean, variance = tf.nn.moments(x, axes=[0, 1, 2])
    count = tf.cast(tf.reduce_prod(tf.shape(x)[:3]), tf.float32)
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas == 1:
        return mean, variance, count
    # Each replica fills one row of a matrix, so one all-reduce gives every replica the statistics of all. (Sums of the
    # values and of their squares would need no rows, but lose the variance if the mean is large.)
    row = tf.one_hot(context.replica_id_in_sync_group, replicas)[:, None, None]
    own = row * tf.stack([mean, variance])
    means, variances = tf.unstack(_with_summed_gradient(own, _sum_over_replicas(own)), axis=1)
    mean, variance_of_means = tf.nn.moments(means, axes=[0])
    return mean, tf.reduce_mean(variances, axis=0) + variance_of_means, count * replicas


@tf.custom_gradient
def _with_summed_gradient(own: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple]]:
    """Return `total`, the sum of `own` over the replicas, with a gradient that is summed over the replicas, too."""
    # The caller computes the sum. In here, as in TensorFlow's all_reduce, each call would search the graphs of all replicas
    # for variables. The time to trace a network would then grow with the square of its layers.
    return tf.identity(total), lambda dy: (_sum_over_replicas(dy), None)


def _sum_over_replicas(tensor: tf.Tensor) -> tf.Tensor:
    """Return the sum of a tensor over the replicas, on each replica; it has no gradient."""

    def merge(strategy: tf.distribute.Strategy, tensor: tf.Tensor) -> tf.Tensor:
        return strategy.extended.reduce_to(tf.distribute.ReduceOp.SUM, tensor, tensor)

    return tf.distribute.get_replica_context().merge_call(merge, args=(tensor,))
