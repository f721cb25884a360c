"""The learning rates at every place in training; no TensorFlow."""

import math


def factor(kind, epochs, decay_from, done):
    """What the learning rates are multiplied with.

    It is 1 for `decay_from` epochs; from there to the end it falls to 0, by every step, in a straight line (Zhu et al. 2017,
    appendix) or along half a cosine (Loshchilov and Hutter 2017, without restarts).

    Args:
        kind: "linear", "cosine" or "constant".
        epochs: of the whole training.
        done: epochs done, with the part of the present one as a fraction.
    """
    if kind == "constant" or done <= decay_from:
        return 1.0
    part = min(1.0, (done - decay_from) / (epochs - decay_from)) if epochs > decay_from else 0.0
    return 1.0 - part if kind == "linear" else 0.5 + 0.5 * math.cos(math.pi * part)


def rates(config, done):
    """The learning rates (of the generators, of the discriminators) when so many epochs are done, see `factor`.

    A function of the place alone: a run that is resumed with other --epochs goes on as though it always had those.
    """
    times = factor(config.optimization.lr_schedule, config.optimization.epochs, config.optimization.decay_from, done)
    return config.optimization.lr * times, config.optimization.lr_discriminator * times
