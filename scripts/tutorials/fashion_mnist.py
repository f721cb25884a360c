#!/usr/bin/env python
"""Classify Fashion MNIST in a custom loop on all replicas: `python scripts/tutorials/fashion_mnist.py --devices 2`.

The order is: a step on one replica, a step on all replicas, an epoch, and the training. docs/tutorials.md explains it.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import cyclegan  # noqa: F401  first, because it explains which package is missing

# isort: split
from collections.abc import Iterator, Sequence

import numpy as np

from cyclegan import terminal
from cyclegan.errors import TrainingError, UserError
from scripts.tutorials import command

with terminal.start():
    import tensorflow as tf

    from cyclegan.distribution import train_function
    from cyclegan.distribution.strategy import make_strategy
    from cyclegan.methods.losses import reduce_mean
    from scripts.tutorials.fashion import WANTED, batches, load, make_model


class Trainer:
    """Trainer of a model on the replicas of a strategy.

    Args:
        strategy: The strategy.
        global_batch_size: Examples per step, over all replicas.
    """

    def __init__(self, strategy: tf.distribute.Strategy, global_batch_size: int) -> None:
        self.strategy, self.global_batch_size = strategy, global_batch_size
        # One value per example: Keras's mean covers one replica only, so the sum over the replicas would be too large.
        self.cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        with strategy.scope():  # a variable made here has a copy on each replica
            self.model = make_model()
            self.optimizer = tf.keras.optimizers.Adam(1e-3)
            self.optimizer.build(self.model.trainable_variables)
            self.accuracy, self.test_accuracy = (tf.keras.metrics.SparseCategoricalAccuracy() for _ in range(2))
            self.test_loss = tf.keras.metrics.Mean()

    def replica_step(self, images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> dict[str, tf.Tensor]:
        """Train one replica; return the sums over all replicas."""
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            loss = reduce_mean(weights * self.cross_entropy(labels, logits), self.global_batch_size)
            # Every replica has the same penalty, which would count once per replica without the division.
            penalty = tf.add_n(self.model.losses) / self.strategy.num_replicas_in_sync
        variables = self.model.trainable_variables
        gradients = tape.gradient([loss, penalty], variables)  # of the sum of both
        self.optimizer.apply_gradients(zip(gradients, variables))  # sums over the replicas
        self.accuracy.update_state(labels, logits, weights)
        metrics, _ = train_function.reduce_dict({"loss": loss, "penalty": penalty, "examples": tf.reduce_sum(weights)})
        return metrics

    @tf.function
    def step(self, batch: tuple[tf.Tensor, ...]) -> dict[str, tf.Tensor]:
        """Train all replicas on a global batch; return its metrics, scalars by name."""
        metrics = self.strategy.run(self.replica_step, args=batch)  # the same on all replicas
        return {name: self.strategy.experimental_local_results(value)[0] for name, value in metrics.items()}

    def epoch(self, iterator: Iterator, steps: int) -> dict[str, tf.Tensor]:
        """Return the metrics, summed over the steps. Python runs the loop; in a `tf.function`, TensorFlow does."""
        sums = {"loss": 0.0, "penalty": 0.0, "examples": 0.0}
        for _ in tf.range(steps):
            metrics = self.step(next(iterator))
            sums = {name: sums[name] + metrics[name] for name in sums}
        return sums

    whole_epoch = tf.function(epoch)

    def train(self, dataset: tf.data.Dataset, whole: bool) -> dict[str, float]:
        """Train for an epoch; return the mean loss and the accuracy of its examples, each from its own step."""
        self.accuracy.reset_state()
        iterator, steps = iter(self.strategy.experimental_distribute_dataset(dataset)), len(dataset)
        sums = (self.whole_epoch if whole else self.epoch)(iterator, steps)
        # Over the examples, because the last batch may have fewer; the penalty has one value per step.
        loss = sums["loss"] * self.global_batch_size / sums["examples"] + sums["penalty"] / steps
        return {"loss": float(loss), "accuracy": float(self.accuracy.result())}

    @tf.function
    def test_step(self, batch: tuple[tf.Tensor, ...]) -> None:
        """Update the metrics, which count over replicas and batches, with one value per example."""

        def replica_test_step(images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> None:
            logits = self.model(images, training=False)
            self.test_loss.update_state(self.cross_entropy(labels, logits), weights)
            self.test_accuracy.update_state(labels, logits, weights)

        self.strategy.run(replica_test_step, args=batch)

    def test(self, dataset: tf.data.Dataset) -> dict[str, float]:
        """Return the mean loss, without the penalty, and the accuracy."""
        for metric in (self.test_loss, self.test_accuracy):
            metric.reset_state()
        for batch in self.strategy.experimental_distribute_dataset(dataset):
            self.test_step(batch)
        return {"test loss": float(self.test_loss.result()), "test accuracy": float(self.test_accuracy.result())}


def restored_accuracy(checkpoint: str, dataset: tf.data.Dataset) -> float:
    """Return the accuracy of the model of a checkpoint, restored without a strategy into plain variables."""
    model, accuracy = make_model(), tf.keras.metrics.SparseCategoricalAccuracy()
    tf.train.Checkpoint(model=model).read(checkpoint).expect_partial()
    for images, labels, weights in dataset:
        accuracy.update_state(labels, model(images, training=False), weights)
    return float(accuracy.result())


def main(argv: Sequence[str] | None = None) -> tuple[list[dict[str, float]], float]:
    """Train and restore; return the metrics of each epoch and the accuracy of the restored model.

    Raises:
        UserError: The command line or the data is wrong.
        TrainingError: Training failed, or the restored model differs from the trained one.
    """
    parser = command.parser("Classify Fashion MNIST in a custom loop.", epochs=10, batch_size=64)
    parser.add_argument("--data", metavar="FILE", help=f"an .npz file with {WANTED} (default: Fashion MNIST)")
    parser.add_argument("--output_dir", default="runs/fashion_mnist", help="its checkpoints are replaced")
    parser.add_argument("--seed", type=int, default=0, help="of weights and order (default: %(default)s)")
    parser.add_argument("--whole_epoch", action="store_true", help="compile the loop over an epoch, not just the step")
    options = parser.parse_args(argv)
    with terminal.start():
        strategy = make_strategy(options.devices)
    x_train, y_train, x_test, y_test = load(options.data)
    batch = strategy.num_replicas_in_sync * options.batch_size
    print(f"Replicas: {strategy.num_replicas_in_sync}, global batch: {batch} of {len(y_train)} examples", flush=True)
    if batch > len(y_train):
        raise UserError(f"--batch_size {options.batch_size}: expected a global batch of at most all examples")
    tf.keras.utils.set_random_seed(options.seed)
    trainer = Trainer(strategy, batch)
    checkpoint = tf.train.Checkpoint(model=trainer.model, optimizer=trainer.optimizer)
    checkpoints = tf.train.CheckpointManager(checkpoint, options.output_dir, max_to_keep=3, checkpoint_name="epoch")
    test, history = batches(x_test, y_test, batch), []
    for epoch in range(1, options.epochs + 1):
        trained = trainer.train(batches(x_train, y_train, batch, [options.seed, epoch]), options.whole_epoch)
        history.append({**trained, **trainer.test(test)})
        print(f"Epoch {epoch}", *(f"{name}: {value:.4f}" for name, value in history[-1].items()), sep=", ", flush=True)
        if not np.isfinite(history[-1]["loss"]):
            raise TrainingError(f"the loss of epoch {epoch} is not finite: expected a number, so it is not saved")
        if epoch % 2 == 0 or epoch == options.epochs:
            saved = checkpoints.save(checkpoint_number=epoch)
    restored = restored_accuracy(saved, test)
    print(f"Restored without a strategy from {saved}, test accuracy: {restored:.4f}")
    expected = history[-1]["test accuracy"]
    if abs(restored - expected) * len(y_test) > 1.5:  # one example whose classes are equally probable may change
        raise TrainingError(f"the restored model's accuracy is {restored:.4f}: expected {expected:.4f}, as trained")
    return history, restored


if __name__ == "__main__":
    sys.exit(terminal.run(main))
