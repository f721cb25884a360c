#!/usr/bin/env python
"""Fits a line twice, by `compile` and `fit` and in a loop of our own: `python scripts/tutorials/linear_keras.py --devices 2`.

Both begin at the same weights and see the same batches, so they agree up to rounding, on any number of replicas.
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from cyclegan import console
from cyclegan.errors import TrainingError
from scripts.tutorials import command

with console.start():
    import tensorflow as tf

    from cyclegan.distribution.strategy import make_strategy
    from cyclegan.training.losses import reduce_mean

SLOPE, INTERCEPT, NOISE = 3.0, -1.0, 0.1
STEPS = 50  # per epoch
RATE = 0.1  # of gradient descent


def line(examples):
    """Points near the line, in one order for everyone: float32 [examples, 1] twice. x is in [-1, 1)."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (examples, 1))
    return x.astype(np.float32), (SLOPE * x + INTERCEPT + rng.normal(0, NOISE, x.shape)).astype(np.float32)


def make_model():
    """w x + b, with w = b = 0 to begin with. [N, 1] -> [N, 1]."""
    return tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1, kernel_initializer="zeros")])


def by_fit(strategy, dataset, epochs):
    """Keras's way: all it needs of a strategy is that the model is made and compiled under its scope.

    Args:
        dataset: global batches of (x, y), float32 [N, 1]; Keras divides them among the replicas.

    Returns:
        (mean squared errors of the epochs, a list of floats; the model).
    """
    with strategy.scope():
        model = make_model()
        model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(RATE))
    return model.fit(dataset, epochs=epochs, shuffle=False, verbose=0).history["loss"], model


def by_loop(strategy, dataset, epochs, global_batch_size):
    """The same in a loop of our own. `dataset`, and what is returned, as in `by_fit`."""
    with strategy.scope():
        model, optimizer = make_model(), tf.keras.optimizers.SGD(RATE)
        optimizer.build(model.trainable_variables)

    def replica_step(x, y):
        with tf.GradientTape() as tape:
            per_example = tf.square(y - model(x, training=True))[:, 0]
            # The optimizer sums the gradients of the replicas, so each divides by the size of the whole batch.
            loss = reduce_mean(per_example, global_batch_size)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return per_example

    @tf.function
    def step(batch):
        per_example = strategy.run(replica_step, args=batch)
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, per_example, axis=0)  # over replicas and their examples

    distributed = strategy.experimental_distribute_dataset(dataset)
    return [float(np.mean([step(batch) for batch in distributed])) for _ in range(epochs)], model


def main(argv=None):
    """Fits the line both ways and prints them side by side. Returns ((losses, model) of `fit`, and of the loop).

    Raises:
        UserError: what was asked for can't be.
        TrainingError: the two did not find the same.
    """
    parser = command.parser("Fit a line by Keras's fit and in a loop of our own.", epochs=5, batch_size=12)
    options = parser.parse_args(argv)
    with console.start():
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
            "Keras's fit and the loop have different losses: expected the same; something is wrong here"
        )
    return results


if __name__ == "__main__":
    sys.exit(console.run(main))
