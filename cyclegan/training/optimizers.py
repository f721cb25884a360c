"""What turns gradients, summed over the replicas already, into updates: Adam, and the loss scale that float16 needs."""

import tensorflow as tf

SMALLEST_SCALE, LARGEST_SCALE = 1.0, 2.0**24


class Adam(tf.Module):
    """Adam (Kingma and Ba 2015), with the bias correction in the learning rate as in section 2, the last paragraph.

    The same updates as Keras's Adam but for rounding. TensorFlow has this update as a single operation, which reads and writes
    each number once; written in ten operations, as Keras has it, it takes a noticeable part of a step.

    Make it under the strategy's scope, with the variables it will be applied to.

    Args:
        variables: what will be updated; only their shapes are used here.
        epsilon: added to the root of the mean squared gradient.
    """

    def __init__(self, variables, beta_1, beta_2, epsilon=1e-7):
        super().__init__(name="adam")
        self.iterations = tf.Variable(0, trainable=False, dtype=tf.int64, name="iterations")
        self.means = [tf.Variable(tf.zeros(v.shape), trainable=False, name="mean") for v in variables]
        self.squares = [tf.Variable(tf.zeros(v.shape), trainable=False, name="square") for v in variables]
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def apply(self, gradients, variables, rate, good):
        """Updates the variables on this replica; call it on every replica with the same gradients.

        Args:
            gradients: float32 tensors, summed over the replicas.
            variables: the variables of the constructor, in the same order.
            rate: float32 scalar, the learning rate.
            good: bool scalar. Where it is false nothing changes, whatever the gradients are. No branch, so that the host need
                not wait for the device to know which way to go.
        """
        step = self.iterations.handle
        tf.raw_ops.AssignAddVariableOp(resource=step, value=tf.cast(good, tf.int64))
        time = tf.cast(tf.maximum(tf.raw_ops.ReadVariableOp(resource=step, dtype=tf.int64), 1), tf.float32)
        # With betas of 1 the averages stay, with a learning rate of 0 the variables do.
        keep = {
            "beta1_power": tf.pow(self.beta_1, time),
            "beta2_power": tf.pow(self.beta_2, time),
            "lr": tf.where(good, rate, 0.0),
            "beta1": tf.where(good, self.beta_1, 1.0),
            "beta2": tf.where(good, self.beta_2, 1.0),
            "epsilon": self.epsilon,
        }
        for gradient, variable, mean, square in zip(gradients, variables, self.means, self.squares):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=mean.handle,
                v=square.handle,
                grad=tf.where(good, gradient, tf.zeros_like(gradient)),
                **keep,
            )


def clip(gradients, norm):
    """The gradients, scaled down together where their global norm is larger than `norm` (Pascanu et al. 2013)."""
    times = norm / tf.maximum(tf.linalg.global_norm(gradients), norm)
    return [gradient * times for gradient in gradients]


def follow(averages, variables, decay, good):
    """Moves running means toward the variables, on this replica: decay x average + (1 - decay) x variable; not if not `good`."""
    step = tf.where(good, 1.0 - decay, 0.0)
    for average, variable in zip(averages, variables):
        value = (tf.convert_to_tensor(average) - tf.convert_to_tensor(variable)) * step
        tf.raw_ops.AssignSubVariableOp(resource=average.handle, value=value)


class LossScale(tf.Module):
    """The factor that keeps float16 gradients away from zero (Micikevicius et al. 2018, section 3.2), found as training goes.

    It is halved after a step that was not finite, and doubled after `patience` good ones in a row; not beyond what
    helps, for from infinity, which gradients of zero would let it come to, no halving leads back. Not Keras's
    LossScaleOptimizer, which would skip steps where nobody sees it, and is another one in Keras 2 and in Keras 3.
    """

    def __init__(self, initial=2.0**15, patience=2000):
        super().__init__(name="loss_scale")
        self.scale = tf.Variable(initial, trainable=False, name="scale")
        self.good_steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="good_steps")
        self.patience = patience

    def update(self, good):
        """Call it on every replica after each step. `good` is a bool scalar, whether the step was finite."""
        scale, steps = tf.convert_to_tensor(self.scale), tf.convert_to_tensor(self.good_steps) + 1
        grow = steps >= self.patience
        larger = tf.where(grow, tf.minimum(2.0 * scale, LARGEST_SCALE), scale)
        smaller = tf.maximum(scale / 2.0, SMALLEST_SCALE)
        steps = tf.where(good & ~grow, steps, tf.zeros_like(steps))
        tf.raw_ops.AssignVariableOp(resource=self.scale.handle, value=tf.where(good, larger, smaller))
        tf.raw_ops.AssignVariableOp(resource=self.good_steps.handle, value=steps)
