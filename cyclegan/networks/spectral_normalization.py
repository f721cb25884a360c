"""Convolution whose kernel has the largest singular value 1 (Miyato et al. 2018)."""

from __future__ import annotations

import tensorflow as tf

from cyclegan.networks.compat import WITHOUT_AUTOCAST
from cyclegan.networks.convolution import Convolution


@tf.keras.utils.register_keras_serializable("cyclegan")
class SpectralConvolution(Convolution):
    """Convolve with the kernel divided by its largest singular value; [N, H, W, C] -> [N, h, w, filters].

    The kernel counts as a matrix [height * width * C, filters]. Each training call takes one step of power iteration (algorithm 1
    of the paper). Gradients treat the singular vectors as constants. The vector depends on the kernel alone, so all replicas have
    the same one.

    Attributes:
        direction: float32 variable [filters], the estimated singular vector on the side of the filters.
    """

    direction: tf.Variable

    def build(self, input_shape: tf.TensorShape) -> None:
        """Create the variables for inputs of this shape."""
        super().build(input_shape)
        self.direction = self.add_weight(
            name="direction",
            shape=(self.filters,),
            initializer=tf.keras.initializers.RandomNormal(),
            trainable=False,
            **WITHOUT_AUTOCAST,
        )

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Convolve features [N, H, W, C]; in training, improve the estimated vector."""
        if training:
            matrix, direction = self._matrix(self.kernel), tf.convert_to_tensor(self.direction)
            improved = _unit(tf.linalg.matvec(matrix, _project(matrix, direction), transpose_a=True))
            tf.raw_ops.AssignVariableOp(resource=self.direction.handle, value=tf.stop_gradient(improved))
        return super().call(inputs, training)

    def convolution_op(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Convolve features [N, H, W, C] with the divided kernel, without the bias; Keras calls this."""
        kernel = tf.convert_to_tensor(kernel)  # the `dtype` of Keras 2's variable is not the one that it is read in
        matrix, direction = self._matrix(kernel), _unit(tf.convert_to_tensor(self.direction))
        left = tf.stop_gradient(_project(matrix, direction))
        norm = tf.reduce_sum(left * tf.linalg.matvec(matrix, tf.stop_gradient(direction)))
        return super().convolution_op(inputs, kernel / tf.cast(norm, kernel.dtype))

    def _matrix(self, kernel: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.cast(kernel, tf.float32), [-1, self.filters])


def _project(matrix: tf.Tensor, direction: tf.Tensor) -> tf.Tensor:
    return _unit(tf.linalg.matvec(matrix, direction))


def _unit(vector: tf.Tensor) -> tf.Tensor:
    return tf.math.l2_normalize(vector)
