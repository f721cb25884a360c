"""The layers that networks are made of; and the one place that knows which stack this is."""

import contextlib
import threading

import tensorflow as tf

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
