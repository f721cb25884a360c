"""The layers that networks are made of; and the one place that knows which stack this is.

TensorFlow 2.15 has Keras 2 and TensorFlow Addons; later ones have Keras 3 and no Addons. See `instance_normalization`.
"""

import contextlib
import threading
import warnings

import tensorflow as tf

from cyclegan import devices

KERAS = int(getattr(tf.keras, "__version__", "2").split(".")[0])  # TensorFlow 2.15 does not say
EPSILON = 1e-3  # added to the variance, as in TensorFlow Addons
GAIN = 0.02  # the scale of initial values
LARGE = 2**16  # values of a sample: from there on the CPU normalizes a few of them faster by one operation each
ops = (
    tf.keras.ops if KERAS > 2 else tf
)  # of these, `pad`, `round` and `cast` work on what goes through a network in the making


def stack():
    """The versions that a checkpoint depends on. Checkpoints fit where `keras`, the major version, is the same."""
    return {"keras": KERAS, "tensorflow": tf.__version__}


@contextlib.contextmanager
def computing_in(precision):
    """While it is entered, layers are made that compute in "float32", "bfloat16" or "float16", with float32 variables."""
    before = tf.keras.mixed_precision.global_policy()
    level = tf.get_logger().level
    tf.get_logger().setLevel("ERROR")  # Keras 2 warns that float16 is slow on a CPU, in terms of its own
    tf.keras.mixed_precision.set_global_policy(precision if precision == "float32" else f"mixed_{precision}")
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)
        tf.get_logger().setLevel(level)


def network(inputs, outputs, name):
    """A Keras model whose layers each keep their own precision."""
    model = tf.keras.Model(inputs, outputs, name=name)
    if KERAS > 2:  # it would have the variables of float32 layers rounded to the precision that it was made in
        model.dtype_policy = tf.keras.mixed_precision.Policy("float32")
    return model


def normal(mean=0.0):
    """Initial values N(mean, 0.02) (Zhu et al. 2017, section 4)."""
    return tf.keras.initializers.RandomNormal(mean, GAIN)


def kernels(init):
    """The initial values of a convolution's kernel, as `init_weights` of pytorch-CycleGAN-and-pix2pix has them.

    "normal": N(0, 0.02). The others are N(0, s) with s^2 = 0.02^2 * 2 / (fan_in + fan_out) for "xavier" (Glorot and Bengio 2010,
    eq. 16) and 2 / fan_in for "kaiming" (He et al. 2015, eq. 10), or 0.02 times a random "orthogonal" matrix (Saxe et al. 2014).
    The fan_in of a transposed convolution is what PyTorch takes for it, kernel area * output channels.
    """
    initializers = tf.keras.initializers
    if init == "xavier":
        return initializers.VarianceScaling(GAIN**2, "fan_avg", "untruncated_normal")
    if init == "kaiming":
        return initializers.VarianceScaling(2.0, "fan_in", "untruncated_normal")
    return initializers.Orthogonal(GAIN) if init == "orthogonal" else normal()


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
        if self.fused and training and x.shape[0] and values >= LARGE and not devices.accelerated():
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
    if twice or KERAS > 2 or not devices.accelerated():
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


_drawing = threading.local()  # replicas are traced in a thread each


@contextlib.contextmanager
def draws(seed, rows, start, count):
    """While it is entered, in this thread, `Dropout` layers may be called with training=True; what they draw is given by this.

    What a sample meets is a function of the seed, of its place in the global batch and of how many dropout layers were called
    before in this context: so it is another one in every layer and in every call of a network, and the same one on any number of
    replicas and in a run that was stopped and resumed.

    Args:
        seed: int32 or int64 tensor [2], another one in each step.
        rows: samples in the global batch, an int.
        start: the place of this replica's first sample in it, an int or an int tensor.
        count: samples on this replica, an int.
    """
    before = getattr(_drawing, "of", None)
    _drawing.of = _Draws(seed, rows, start, count)
    try:
        yield
    finally:
        _drawing.of = before


class _Draws:
    def __init__(self, seed, rows, start, count):
        self.seed, self.rows, self.start, self.count = tf.convert_to_tensor(seed), rows, start, count
        self.calls = 0

    def uniform(self, shape):
        """float32 [N, ...] in [0, 1), this replica's share of what is drawn for the global batch.

        N is `count`, or a multiple of it: several inputs of a network, one after the other, as one batch.
        """
        if shape[0] is None or shape[0] % self.count:
            raise ValueError(f"a batch of {shape[0]} for dropout; expected {self.count} samples or a multiple of it")
        inputs, rest = shape[0] // self.count, shape[1:]
        # Of 64 bits, as in `pool.ImagePool`.
        seed = tf.random.fold_in(self.seed, tf.constant(self.calls, tf.int64), alg="philox")
        self.calls += 1
        all_rows = tf.random.stateless_uniform([inputs, self.rows, *rest], seed, alg="philox")
        ours = tf.slice(all_rows, [0, self.start, *(0 for _ in rest)], [inputs, self.count, *rest])
        return tf.reshape(ours, shape)


@tf.keras.utils.register_keras_serializable("cyclegan")
class Dropout(tf.keras.layers.Layer):
    """With `training`, each value is 0 with probability `rate` and divided by 1 - rate otherwise (Srivastava et al. 2014).

    Works only inside of `draws` then, and for inputs whose shape is known; without `training` it is the identity.

    Raises:
        RuntimeError: called with training=True outside of `draws`.
    """

    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate

    def call(self, x, training=False):
        if not training:
            return x
        drawing = getattr(_drawing, "of", None)
        if drawing is None:
            raise RuntimeError("Dropout with training=True outside of layers.draws; expected to be called inside of it")
        kept = drawing.uniform(x.shape) >= self.rate
        return tf.where(kept, x / tf.cast(1.0 - self.rate, x.dtype), tf.zeros_like(x))

    def get_config(self):
        return {**super().get_config(), "rate": self.rate}


@tf.keras.utils.register_keras_serializable("cyclegan")
class ReflectionPadding2D(tf.keras.layers.Layer):
    """Mirrors `padding` pixels at each side, the edge itself not repeated. [N, H, W, C] -> [N, H + 2p, W + 2p, C].

    H and W must be greater than `padding`.
    """

    def __init__(self, padding, **kwargs):
        super().__init__(**kwargs)
        self.padding = padding

    def call(self, x):
        p = self.padding
        return tf.pad(x, [[0, 0], [p, p], [p, p], [0, 0]], mode="REFLECT")

    def get_config(self):
        return {**super().get_config(), "padding": self.padding}


@tf.keras.utils.register_keras_serializable("cyclegan")
class LeakyReLU(tf.keras.layers.Layer):
    """x where x > 0, 0.2 x elsewhere (Keras 2 and 3 name the slope of their own layer differently)."""

    def call(self, x):
        return tf.nn.leaky_relu(x, 0.2)


@tf.keras.utils.register_keras_serializable("cyclegan")
class Doubling(tf.keras.layers.Layer):
    """Every pixel becomes 2 x 2 of them, as the nearest neighbour says. [N, H, W, C] -> [N, 2 H, 2 W, C]."""

    def call(self, x):
        return tf.nn.depth_to_space(tf.tile(x, [1, 1, 1, 4]), 2)


def convolution(filters, size, stride=1, padding="same", use_bias=False, init="normal"):
    """A convolution layer; see `kernels` for `init`."""
    return Convolution(filters, size, stride, padding, use_bias=use_bias, kernel_initializer=kernels(init))


def upsampling_convolution(filters, size, padding="same", use_bias=False, init="normal"):
    """A transposed convolution layer with stride 2: [N, H, W, C] -> [N, 2 H, 2 W, filters]; see `UpsamplingConvolution`."""
    return UpsamplingConvolution(filters, size, 2, padding, use_bias=use_bias, kernel_initializer=kernels(init))


FEW = 8  # output channels up to which a convolution on the CPU is one to few channels, see `convolve_to_few`


@tf.keras.utils.register_keras_serializable("cyclegan")
class Convolution(tf.keras.layers.Conv2D):
    """Keras's layer, the same but for rounding, with faster ways on the CPU.

    To few channels, as a picture's, with stride 1: `convolve_to_few`. In a precision that the CPU has no instructions for, where
    TensorFlow takes fifteen times as long: float32 in between, inputs and outputs rounded as asked. The bias is added in float32
    always, because its gradient is a sum over all pixels: TensorFlow adds bfloat16 on the CPU so that of 65,536 equal numbers 256
    are left.
    """

    def call(self, inputs):
        if not self.use_bias or self.compute_dtype == "float32":
            return super().call(inputs)
        y = _with_bias(self.convolution_op(inputs, self.kernel), self.bias)
        return y if self.activation is None else self.activation(y)

    def convolution_op(self, inputs, kernel):
        plain = self.strides == self.dilation_rate == (1, 1)
        few = self.filters <= FEW and plain and not devices.accelerated()
        return _in_native(self._to_few if few else super().convolution_op, inputs, kernel)

    def _to_few(self, inputs, kernel):
        if self.padding == "same":
            before_after = [[(size - 1) // 2, size // 2] for size in self.kernel_size]
            inputs = tf.pad(inputs, [[0, 0], *before_after, [0, 0]])
        return convolve_to_few(inputs, kernel)


@tf.keras.utils.register_keras_serializable("cyclegan")
class UpsamplingConvolution(tf.keras.layers.Conv2DTranspose):
    """A transposed convolution in a native precision, see `Convolution`. [N, H, W, C] -> [N, 2 H, 2 W, filters] with stride 2.

    With padding "same" it is Keras's layer. With "valid", and a kernel that is wider than the stride by 1, it is PyTorch's with
    padding 1 and output padding 1: y[2 i + k - 1] += x[i] kernel[k], where "same" has y[2 i + k].
    """

    def call(self, inputs):
        cut = int(self.padding == "valid")

        def convolve(x, kernel):
            batch, height, width = (given or n for given, n in zip(x.shape[:3], tf.unstack(tf.shape(x)[:3])))
            shape = [batch, height * self.strides[0] + cut, width * self.strides[1] + cut, self.filters]
            y = tf.nn.conv2d_transpose(x, kernel, shape, self.strides, self.padding.upper())
            return y[:, 1:, 1:] if cut else y

        y = _in_native(convolve, inputs, self.kernel)
        return _with_bias(y, self.bias) if self.use_bias else y

    def compute_output_shape(self, input_shape):
        height, width = (n and n * stride for n, stride in zip(input_shape[1:3], self.strides))
        return (input_shape[0], height, width, self.filters)


def _with_bias(y, bias):
    """The sum in float32, in the type of y."""
    return tf.cast(tf.cast(y, tf.float32) + tf.cast(bias, tf.float32), y.dtype)


def _in_native(convolve, x, kernel):
    kernel = tf.convert_to_tensor(kernel)
    if devices.is_native(x.dtype.name if hasattr(x.dtype, "name") else x.dtype):
        return convolve(x, kernel)
    return tf.cast(convolve(tf.cast(x, tf.float32), tf.cast(kernel, tf.float32)), x.dtype)


@tf.custom_gradient
def convolve_to_few(x, kernel):
    """A convolution without padding, [N, H, W, C] by [K, L, C, D] -> [N, H - K + 1, W - L + 1, D], fast for a small D.

    Forward, pixels are taken two by two: an output block is a convolution of blocks with four times as many channels.
    Backward, what comes back, which has few channels, takes the part of the input: both gradients are convolutions of it.
    """
    height, width = kernel.shape[:2]

    def gradients(dy):
        dy = tf.pad(dy, [[0, 0], [height - 1] * 2, [width - 1] * 2, [0, 0]])
        swapped = tf.transpose(kernel[::-1, ::-1], [0, 1, 3, 2])  # [K, L, D, C], turned by 180 degrees
        dkernel = tf.raw_ops.Conv2DBackpropFilter(
            input=dy, filter_sizes=tf.shape(swapped), out_backprop=x, strides=[1, 1, 1, 1], padding="VALID"
        )
        return tf.nn.conv2d(dy, swapped, 1, "VALID"), tf.transpose(dkernel, [0, 1, 3, 2])[::-1, ::-1]

    rows, columns = (None if n is None else n - size + 1 for n, size in zip(x.shape[1:3], (height, width)))
    if rows is None or columns is None or height % 2 == 0 or width % 2 == 0 or rows % 2 or columns % 2:
        return tf.nn.conv2d(x, kernel, 1, "VALID"), gradients
    y = tf.nn.conv2d(tf.nn.space_to_depth(x, 2), _kernel_of_blocks(kernel), 1, "VALID")
    return tf.nn.depth_to_space(y, 2), gradients


def _kernel_of_blocks(kernel):
    """The kernel on blocks of 2 x 2 pixels that does what a kernel does on pixels.

    [K, L, C, D] with odd K and L -> [(K + 1) / 2, (L + 1) / 2, 4 C, 4 D], channels as `tf.nn.space_to_depth` has them.
    """
    height, width, channels, filters = kernel.shape
    moved = [
        tf.pad(kernel, [[i, 1 - i], [j, 1 - j], [0, 0], [0, 0]]) for i in (0, 1) for j in (0, 1)
    ]  # one per output pixel
    split = tf.reshape(tf.stack(moved, axis=3), [(height + 1) // 2, 2, (width + 1) // 2, 2, channels, 4 * filters])
    return tf.reshape(
        tf.transpose(split, [0, 2, 1, 3, 4, 5]), [(height + 1) // 2, (width + 1) // 2, 4 * channels, 4 * filters]
    )
