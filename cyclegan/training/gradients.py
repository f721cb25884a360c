"""Gradients as one vector, where one large operation beats many small ones."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from cyclegan.distribution import hardware


def pack(gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the gradients as one vector on accelerators, which start few kernels then; else as they are.

    A CPU would lose time with the copies.
    """
    if not hardware.has_accelerator():
        return list(gradients)
    return [tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], axis=0)]


def unpack(gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """Return gradients from `pack` with the shapes of their variables."""
    if len(gradients) == len(variables):
        return list(gradients)
    parts = tf.split(gradients[0], [variable.shape.num_elements() for variable in variables])
    return [tf.reshape(part, variable.shape) for part, variable in zip(parts, variables)]
