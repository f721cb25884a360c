#!/usr/bin/env python
"""Fit a line twice, by `fit` and in a custom loop: `python scripts/tutorials/linear_keras.py --devices 2`.

Both begin at the same weights and use the same batches, so they agree up to rounding on any number of replicas.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import cyclegan  # noqa: F401  first, because it explains which package is missing

# isort: split
from collections.abc import Sequence

import numpy as np

from cyclegan import terminal
from cyclegan.errors import TrainingError
from scripts.tutorials import command

with terminal.start():
    import tensorflow as tf

    from cyclegan.distribution.strategy import make_strategy
    from cyclegan.methods.losses import reduce_mean

SLOPE, INTERCEPT, NOISE = 3.0, -1.0, 0.1
STEPS = 50  # per epoch
RATE = 0.1  # of gradient descent


def line(examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x in [-1, 1) and y of points near the line, always the same: float32 [examples, 1] each."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (examples, 1))
    return x.astype(np.float32), (SLOPE * x + INTERCEPT + rng.normal(0, NOISE, x.shape)).astype(np.float32)


def make_model() -> tf.keras.Model:
    """Return the model w x + b from [N, 1] to [N, 1], with w = b = 0."""
    return tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1, kernel_initializer="zeros")])


def by_fit(
    strategy: tf.distribute.Strategy, dataset: tf.data.Dataset, epochs: int
) -> tuple[list[float], tf.keras.Model]:
    """Fit the line with Keras, which only needs a model that was made and compiled in the scope of the strategy.

    Args:
        strategy: The strategy.
        dataset: Global batches of (x, y), float32 [N, 1]; Keras divides them among the replicas.
        epochs: Number of epochs.

    Returns:
        The mean squared error of each epoch, and the model.
    """
    with strategy.scope():
        model = make_model()
        model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(RATE))
    return model.fit(dataset, epochs=epochs, shuffle=False, verbose=0).history["loss"], model


def by_loop(
    strategy: tf.distribute.Strategy, dataset: tf.data.Dataset, epochs: int, global_batch_size: int
) -> tuple[list[float], tf.keras.Model]:
    """Fit the line in a custom loop; arguments and results are the same as in `by_fit`."""
    with strategy.scope():
        model, optimizer = make_model(), tf.keras.optimizers.SGD(RATE)
        optimizer.build(model.trainable_variables)

    def replica_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            per_example = tf.square(y - model(x, training=True))[:, 0]
            # The optimizer sums the gradients of the replicas, so each divides by the size of the global batch.
            loss = reduce_mean(per_example, global_batch_size)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return per_example

    @tf.function
    def step(batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        per_example = strategy.run(replica_step, args=batch)
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, per_example, axis=0)  # over replicas and their examples

    distributed = strategy.experimental_distribute_dataset(dataset)
    return [float(np.mean([step(batch) for batch in distributed])) for _ in range(epochs)], model


def main(argv: Sequence[str] | None = None) -> tuple[tuple[list[float], tf.keras.Model], ...]:
    """Fit the line both ways and print the losses side by side; return (losses, model) of `fit` and of the loop.

    Raises:
        UserError: The command line is wrong.
        TrainingError: The two results differ.
    """
    parser = command.parser("Fit a line by Keras's fit and in a custom loop.", epochs=5, batch_size=12)
    options = parser.parse_args(argv)
    with terminal.start():
        strategy = make_strategy(options.devices)
    batch = strategy.num_replicas_in_sync * options.batch_size
    print(f"Replicas: {strategy.num_replicas_in_sync}, global batch: {batch}", flush=True)
    dataset = tf.data.Dataset.from_tensor_slices(line(STEPS * batch)).batch(batch, drop_remainder=True)
    results = by_fit(strategy, dataset, options.epochs), by_loop(strategy, dataset, options.epochs, batch)
    for epoch, losses in enumerate(zip(*(losses for losses, _ in results)), 1):
        print("Epoch {}, loss by fit: {:.6f}, by the loop: {:.6f}".format(epoch, *losses))
    for name, (_, model) in zip(("fit", "the loop"), results):
        slope, intercept = (float(variable.numpy().item()) for variable in model.trainable_variables)
        print(f"The line by {name}: {slope:.4f} x + {intercept:.4f}; points are near {SLOPE} x + {INTERCEPT}")
    (fitted, _), (looped, _) = results
    if not np.allclose(fitted, looped, rtol=1e-3, atol=1e-6):
        raise TrainingError(
            "Keras's fit and the loop have different losses: expected the same;"
            " check the devices and the TensorFlow of this machine"
        )
    return results


if __name__ == "__main__":
    sys.exit(terminal.run(main))
