"""Optimizers with their settings, the loss scale of float16, and EMA weights; all update in place, on one replica."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from cyclegan.config.fields import WARN, flag
from cyclegan.config.sections import OptimizationConfig
from cyclegan.distribution import hardware
from cyclegan.lazy_tensorflow import tf

SMALLEST_SCALE, LARGEST_SCALE = 1.0, 2.0**24


def pack(gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the gradients as one vector on accelerators, which start few kernels then; else as they are.

    A CPU would lose time with the copies. Several replicas copy the vector once more, to reduce it with the metrics.
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


def zero_unless(applies: tf.Tensor, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the gradients, or zeros if the update does not apply, whatever the gradients are."""
    if not hardware.has_accelerator():
        return [tf.where(applies, each, tf.zeros_like(each)) for each in gradients]
    # This product is 0 for 0 times infinity. It reads no zeros, as `tf.where` does; on a CPU, it is slower.
    return [tf.math.multiply_no_nan(each, tf.cast(applies, tf.float32)) for each in gradients]


def _make_state(**variables: Any) -> tf.Module:
    """Return variables as an object for checkpoints; a subclass of `tf.Module` would import TensorFlow too early."""
    state = tf.Module()
    for name, variable in variables.items():
        setattr(state, name, variable)
    return state


@dataclasses.dataclass(frozen=True)
class AdamSettings(OptimizationConfig):
    """Adam (Kingma and Ba 2015)."""

    beta_1: float = flag(0.5, WARN, below=1)
    """Adam's decay of the mean gradient"""
    beta_2: float = flag(0.999, WARN, below=1)
    """Adam's decay of the mean squared gradient"""
    epsilon: float = flag(  # the defaults of Keras and PyTorch
        1e-7, WARN, positive=True, derive=lambda settings: 1e-8 if settings["variant"] == "paper" else 1e-7
    )
    """term that Adam adds to the root of the mean squared gradient (default: 1e-7; --variant paper: 1e-8)"""

    def make_optimizer(self, variables: Sequence[tf.Variable]) -> Adam:
        """Return Adam for these variables; call it in the scope of the strategy."""
        return Adam(variables, self.beta_1, self.beta_2, self.epsilon)


OPTIMIZERS: dict[str, type[OptimizationConfig]] = {"adam": AdamSettings}  # by --optimizer


class Adam:
    """Adam (Kingma and Ba 2015), with the bias correction in the learning rate (section 2, last paragraph).

    Update t of a variable with the decaying mean m and the decaying mean square v of its gradients is

        variable -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)

    So `epsilon`, the paper's "epsilon hat", is not corrected for bias. PyTorch divides by sqrt(v / (1 - beta_2^t)) +
    epsilon and corrects m only: the same update with epsilon * sqrt(1 - beta_2^t) in place of epsilon.

    The updates equal the updates of Keras's Adam, except for rounding. A single operation of TensorFlow reads and
    writes each number once; the ten operations of Keras take a noticeable part of a step.

    Create it in the scope of the strategy.
    """

    def __init__(self, variables: Sequence[tf.Variable], beta_1: float, beta_2: float, epsilon: float) -> None:
        """Create the state for these variables, of which only the shapes are used here."""
        self.iterations = tf.Variable(0, trainable=False, dtype=tf.int64, name="iterations")
        self.means = [tf.Variable(tf.zeros(v.shape), trainable=False, name="mean") for v in variables]
        self.squares = [tf.Variable(tf.zeros(v.shape), trainable=False, name="square") for v in variables]
        self.state = _make_state(iterations=self.iterations, means=self.means, squares=self.squares)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        variables: Sequence[tf.Variable],
        learning_rate: tf.Tensor | float,
        applies: tf.Tensor,
    ) -> None:
        """Update the variables on this replica; call it on every replica with the same gradients.

        Args:
            gradients: float32 tensors, summed over the replicas, as `pack` returns them.
            variables: Variables of the constructor, in the same order.
            learning_rate: Learning rate, a float32 scalar.
            applies: Whether the update applies, a bool scalar. If not, nothing changes, whatever the gradients are.
                There is no branch, so that the host need not wait for the device.
        """
        iterations = self.iterations.handle
        tf.raw_ops.AssignAddVariableOp(resource=iterations, value=tf.cast(applies, tf.int64))
        count = tf.raw_ops.ReadVariableOp(resource=iterations, dtype=tf.int64)
        time = tf.cast(tf.maximum(count, 1), tf.float32)
        # Betas of 1 keep the means, and a learning rate of 0 keeps the variables.
        settings = {
            "beta1_power": tf.pow(self.beta_1, time),
            "beta2_power": tf.pow(self.beta_2, time),
            "lr": tf.where(applies, learning_rate, 0.0),
            "beta1": tf.where(applies, self.beta_1, 1.0),
            "beta2": tf.where(applies, self.beta_2, 1.0),
            "epsilon": self.epsilon,
        }
        gradients = unpack(zero_unless(applies, gradients), variables)
        for gradient, variable, mean, square in zip(gradients, variables, self.means, self.squares):
            handles = {"var": variable.handle, "m": mean.handle, "v": square.handle}
            tf.raw_ops.ResourceApplyAdam(**handles, grad=gradient, **settings)


def update_ema(
    averages: Sequence[tf.Variable], variables: Sequence[tf.Variable], decay: float, applies: tf.Tensor
) -> None:
    """Move EMA variables on this replica to decay x average + (1 - decay) x variable, if `applies` is true."""
    step = tf.where(applies, 1.0 - decay, 0.0)
    for average, variable in zip(averages, variables):
        value = (tf.convert_to_tensor(average) - tf.convert_to_tensor(variable)) * step
        tf.raw_ops.AssignSubVariableOp(resource=average.handle, value=value)


class LossScale:
    """Factor that keeps float16 gradients away from zero (Micikevicius et al. 2018, section 3.2), adapted in training.

    It is halved after a step that was not finite, and doubled after `patience` finite steps in a row. A limit keeps
    gradients of zero from doubling it to infinity, which halving cannot undo. Keras's LossScaleOptimizer skips steps
    silently, and differs between Keras 2 and Keras 3.
    """

    def __init__(self, initial: float = 2.0**15, patience: int = 2000) -> None:
        """Create the factor `scale` and `good_steps`, the number of finite steps since it changed."""
        self.scale = tf.Variable(initial, trainable=False, name="scale")
        self.good_steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="good_steps")
        self.state = _make_state(scale=self.scale, good_steps=self.good_steps)
        self.patience = patience

    def update(self, finite: tf.Tensor) -> None:
        """Adapt the factor to whether a step was finite, a bool scalar; call it on every replica after each step."""
        scale, steps = tf.convert_to_tensor(self.scale), tf.convert_to_tensor(self.good_steps) + 1
        grow = steps >= self.patience
        larger = tf.where(grow, tf.minimum(2.0 * scale, LARGEST_SCALE), scale)
        smaller = tf.maximum(scale / 2.0, SMALLEST_SCALE)
        steps = tf.where(finite & ~grow, steps, tf.zeros_like(steps))
        tf.raw_ops.AssignVariableOp(resource=self.scale.handle, value=tf.where(finite, larger, smaller))
        tf.raw_ops.AssignVariableOp(resource=self.good_steps.handle, value=steps)
