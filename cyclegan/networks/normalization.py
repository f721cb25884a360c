"""Instance and batch normalization, and the convolution of spectral normalization."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf

from cyclegan.distribution import hardware
from cyclegan.networks import compat
from cyclegan.networks.layers import Convolution, normal

EPSILON = 1e-3  # of instance normalization: default of TensorFlow Addons
PYTORCH_EPSILON = 1e-5
MOMENTUM = 0.9  # of batch normalization: PyTorch's default of 0.1 is 1 minus this
LARGE_SAMPLE = 2**16  # values of a sample from which a CPU is faster with one fused operation per sample

_unit = tf.math.l2_normalize
_active = threading.local()  # `moments`: in this thread, instance normalization uses them instead of its own


def call_with_moments(
    generator: tf.keras.Model, images: tf.Tensor, given: Sequence[tf.Tensor], core: tf.Tensor, corrects: tf.Tensor
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Call a generator without training, with given mean and variance in each instance normalization.

    Args:
        generator: The generator.
        images: float32 [N, H, W, C].
        given: For each normalization [2, C]: mean and variance. With `corrects`, a shift in standard deviations, and a
            ratio: they change the mean and the variance of the input of the normalization.
        core: int32 [4], (top, bottom, left, right) in pixels of the images: the part whose mean and variance count.
        corrects: Whether `given` are corrections.

    Returns:
        The translations; and for each normalization [4, C]: mean and variance of its input, mean and variance used.
    """
    measured: list[tf.Tensor] = []

    def moments(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        top, bottom, left, right = tf.unstack(core * tf.shape(x)[1] // tf.shape(images)[1])
        mean, variance = (part[0, 0, 0] for part in exact_moments(x[:, top:bottom, left:right], batch=True))
        first, second = tf.unstack(given[len(measured)])
        shifted = mean + first * tf.sqrt(variance + PYTORCH_EPSILON)
        scaled = tf.maximum((variance + PYTORCH_EPSILON) * second - PYTORCH_EPSILON, 0.0)
        used = tf.where(corrects, shifted, first), tf.where(corrects, scaled, second)
        measured.append(tf.stack([mean, variance, *used]))
        return used

    _active.moments = moments
    try:
        return generator(images, training=False), measured
    finally:
        _active.moments = None


def exact_moments(x: tf.Tensor, batch: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the mean and the variance over the height, width and, with `batch`, samples of features [N, H, W, C].

    They are float32 [N, 1, 1, C] or [1, 1, 1, C]. On a CPU, a float32 sum over a million pixels is wrong by a percent
    and more. Sums over the width and then over the height have a thousand summands each.
    """

    def mean(values: tf.Tensor) -> tf.Tensor:
        for axis in (2, 1, 0) if batch else (2, 1):
            values = tf.reduce_mean(values, axis, keepdims=True)
        return values

    center = mean(x)
    return center, mean(tf.math.squared_difference(x, center))


def widths(generator: tf.keras.Model) -> list[int]:
    """Return the numbers of channels of the instance normalizations of a generator, in the order of their calls."""
    return [layer.output.shape[-1] for layer in generator.layers if isinstance(layer, InstanceNormalization)]


def make_instance_normalization(
    epsilon: float = EPSILON, affine: bool = True, second_derivatives: bool = False
) -> tf.keras.layers.Layer:
    """Return a layer of (x - mean) / sqrt(variance + epsilon) * gamma + beta, of each instance (Ulyanov et al. 2016).

    [N, H, W, C] -> [N, H, W, C]; mean and variance are over H and W. The layer computes in float32 and returns the type
    of its input: statistics in bfloat16 are badly wrong for inputs with a large mean. With `affine`, it learns gamma,
    initially N(0, 0.02), and beta, initially 0.
    """
    kind = PlainInstanceNormalization if second_derivatives else InstanceNormalization
    settings = {"epsilon": epsilon, "center": affine, "scale": affine, "gamma_initializer": normal()}
    return kind(**settings, dtype="float32", autocast=False)


class PlainInstanceNormalization(tf.keras.layers.Layer):
    """Instance normalization whose derivatives of any order are right; it takes the arguments of Addons' layer."""

    gamma: tf.Variable | None = None
    beta: tf.Variable | None = None

    def __init__(self, epsilon: float, center: bool, scale: bool, gamma_initializer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon, self.center, self.scale = epsilon, center, scale
        self.gamma_initializer = gamma_initializer

    def build(self, input_shape: tf.TensorShape) -> None:
        """Create the variables for inputs of this shape."""
        channels = (input_shape[-1],)
        if self.scale:
            self.gamma = self.add_weight(name="gamma", shape=channels, initializer=self.gamma_initializer)
        if self.center:
            self.beta = self.add_weight(name="beta", shape=channels, initializer="zeros")
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Normalize features [N, H, W, C]."""
        dtype, x = x.dtype, tf.cast(x, tf.float32)
        # Not tf.nn.moments, which stops the gradient of the mean in the variance: right for first derivatives only.
        mean = tf.reduce_mean(x, axis=[1, 2], keepdims=True)
        variance = tf.reduce_mean(tf.square(x - mean), axis=[1, 2], keepdims=True)
        y = tf.nn.batch_normalization(x, mean, variance, self.beta, self.gamma, self.epsilon)
        return tf.cast(y, dtype)


_Base: Any = compat.instance_normalization_of_addons() or PlainInstanceNormalization


class InstanceNormalization(_Base):
    """The layer of TensorFlow Addons where it is installed; first derivatives are right.

    Training takes one operation per sample, and for samples below `LARGE_SAMPLE` on a CPU the plain form, which is
    faster there.
    """

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Normalize features [N, H, W, C]."""
        values = x.shape[1:].num_elements() or 0  # 0 if the shape is not known yet
        single, moments = tf.cast(x, tf.float32), getattr(_active, "moments", None) or exact_moments
        if moments is exact_moments and training and x.shape[0] and values:
            if values >= LARGE_SAMPLE or hardware.has_accelerator():
                return self._normalize_fused(x)
            moments = functools.partial(tf.nn.moments, axes=[1, 2], keepdims=True)
        mean, variance = moments(single)
        y = tf.nn.batch_normalization(single, mean, variance, self.beta, self.gamma, self.epsilon)
        return tf.cast(y, x.dtype)

    def _normalize_fused(self, x: tf.Tensor) -> tf.Tensor:
        """Normalize each sample with the operation for batch normalization; its statistics are float32."""
        channels = x.shape[-1:]
        gamma = tf.ones(channels) if self.gamma is None else tf.convert_to_tensor(self.gamma)
        beta = tf.zeros(channels) if self.beta is None else tf.convert_to_tensor(self.beta)
        normalize = functools.partial(
            tf.raw_ops.FusedBatchNormV3, scale=gamma, offset=beta, mean=[], variance=[], epsilon=self.epsilon
        )
        return tf.concat([normalize(x=each).y for each in tf.split(x, x.shape[0])], axis=0)


class BatchNormalization(tf.keras.layers.Layer):
    """Normalize each channel: (x - mean) / sqrt(variance + epsilon) * gamma + beta (Ioffe and Szegedy 2015).

    [N, H, W, C] -> [N, H, W, C], always in float32. In training, mean and variance are computed over the global batch,
    of which all replicas have equal parts, and padding samples count like any other. Each training call moves the
    running statistics, which calls without `training` use, a tenth of the way to the statistics of the batch; their
    variance is unbiased, as in PyTorch. Statistics that are not finite are ignored.

    On several replicas, a function that is compiled with XLA inside of `strategy.run` can't contain this layer.
    """

    gamma: tf.Variable  # initially N(1, 0.02)
    beta: tf.Variable
    moving_mean: tf.Variable
    moving_variance: tf.Variable
    epsilon = PYTORCH_EPSILON

    def __init__(self) -> None:
        super().__init__(dtype="float32")

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
    # The caller computes the sum. In here, as in TensorFlow's all_reduce, each call would search the graphs of all
    # replicas for variables. The time to trace a network would then grow with the square of its layers.
    return tf.identity(total), lambda dy: (_sum_over_replicas(dy), None)


def _sum_over_replicas(tensor: tf.Tensor) -> tf.Tensor:
    """Return the sum of a tensor over the replicas, on each replica; it has no gradient."""

    def merge(strategy: tf.distribute.Strategy, tensor: tf.Tensor) -> tf.Tensor:
        return strategy.extended.reduce_to(tf.distribute.ReduceOp.SUM, tensor, tensor)

    return tf.distribute.get_replica_context().merge_call(merge, args=(tensor,))


class SpectralConvolution(Convolution):
    """Convolve with the kernel divided by its largest singular value (Miyato et al. 2018).

    The kernel counts as a matrix [height * width * C, filters]. Each training call takes one step of power iteration
    (algorithm 1 of the paper); it depends on the kernel alone, so all replicas have the same vector. Gradients treat
    the vectors as constants.
    """

    direction: tf.Variable  # float32 [filters], the estimated singular vector on the side of the filters

    def build(self, input_shape: tf.TensorShape) -> None:
        """Create the variables for inputs of this shape."""
        super().build(input_shape)
        self.direction = self.add_weight(
            name="direction",
            shape=(self.filters,),
            initializer=tf.keras.initializers.RandomNormal(),
            trainable=False,
            **compat.WITHOUT_AUTOCAST,
        )

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Convolve features [N, H, W, C]; in training, improve the estimated vector."""
        if training:
            matrix, direction = self._matrix(self.kernel), tf.convert_to_tensor(self.direction)
            improved = _unit(tf.linalg.matvec(matrix, _unit(tf.linalg.matvec(matrix, direction)), transpose_a=True))
            tf.raw_ops.AssignVariableOp(resource=self.direction.handle, value=tf.stop_gradient(improved))
        return super().call(inputs, training)

    def convolution_op(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Convolve features [N, H, W, C] with the divided kernel, without the bias; Keras calls this."""
        kernel = tf.convert_to_tensor(kernel)  # the `dtype` of Keras 2's variable is not the one that it is read in
        matrix, direction = self._matrix(kernel), _unit(tf.convert_to_tensor(self.direction))
        left = tf.stop_gradient(_unit(tf.linalg.matvec(matrix, direction)))
        norm = tf.reduce_sum(left * tf.linalg.matvec(matrix, tf.stop_gradient(direction)))
        return super().convolution_op(inputs, kernel / tf.cast(norm, kernel.dtype))

    def _matrix(self, kernel: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.cast(kernel, tf.float32), [-1, self.filters])
