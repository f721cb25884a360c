"""Run one of several workers with a tiny step instead of training: `worker.py NAME` with TF_CONFIG set.

Print the result of the function NAME as a line of JSON, or the error.
"""

import json
import os
import signal
import sys
import time
import zlib

import cyclegan  # noqa: F401  before TensorFlow: it silences the notices
from cyclegan import terminal
from cyclegan.config import Config
from cyclegan.errors import UserError

with terminal.start():
    import numpy as np
    import tensorflow as tf

    from cyclegan.data.unpaired import UnpairedDataset
    from cyclegan.distribution import rendezvous, train_function
    from cyclegan.distribution.collectives import reduce_dict
    from cyclegan.distribution.startup import start_workers
    from cyclegan.training.gan import GAN
    from cyclegan.training.image_pool import ImagePool
    from cyclegan.training.step import compile_train_step

RANDOM = np.random.default_rng(0).random((3, 4, 2), np.float32)  # for the image pool in `steps`: step, sample, number


def main(name):
    config = Config.from_settings(start_timeout=int(os.environ.get("START_TIMEOUT", "120")))
    if name == "vanish":
        met = rendezvous.meet
        rendezvous.meet = lambda cluster, *rest: (met(cluster, *rest), _leave_as(cluster.index))
    with terminal.start():
        workers = start_workers(config.distribution)
    with workers.report_lost():
        return {"steps": steps, "differ": differ, "lose": lose, "gradients": gradients}[name](workers)


def steps(workers):
    """Run three steps on images, of which each replica gets its share, and agree on values."""
    strategy = workers.strategy
    values = np.arange(12 * 16 * 16 * 3, dtype=np.int64).reshape(12, 16, 16, 3) % 251
    read = set()

    class Watched:
        """Record which images of a domain are read."""

        shape, dtype = values.shape, np.dtype(np.uint8)

        def __len__(self):
            return len(values)

        def __getitem__(self, index):
            read.add(int(index))
            return values[index].astype(np.uint8)

    replicas = strategy.num_replicas_in_sync
    pairs = UnpairedDataset(Watched(), Watched(), 2 * replicas, (16, 16))
    with strategy.scope():
        weight = tf.Variable(float(workers.index), name="weight")  # the chief's value has to win
        pool = ImagePool(4, 2 * replicas, (16, 16, 3))
        shown_images = tf.Variable(tf.zeros([3, 2 * replicas, 16, 16, 3]))  # of all samples, by step

    def samples():
        return 2 * tf.distribute.get_replica_context().replica_id_in_sync_group + tf.range(2)

    def step(batch, number, rates, requests):
        x, _, weights = batch
        random = tf.gather(tf.gather(RANDOM, number), samples())
        mean = tf.reduce_sum(tf.cast(x, tf.float32)) / (12 * 16 * 16 * 3)
        shown, kept = pool.query(tf.cast(x, tf.float32), weights > 0, random)
        shown = tf.tensordot(
            tf.one_hot(samples(), 2 * replicas, axis=0), shown, 1
        )  # zeros for samples of other replicas
        metrics = {"mean": mean, "samples": tf.reduce_sum(weights) / 12, **requests}
        metrics, (mean, shown) = reduce_dict(metrics, [tf.reshape(mean, [1]), shown])
        finite = train_function.all_finite(metrics)
        weight.assign_add(mean[0])
        pool.store(kept, finite)
        tf.raw_ops.ResourceScatterUpdate(resource=shown_images.handle, indices=[number], updates=shown[None])
        return metrics, finite

    run = train_function.make_train_function(strategy, step, 12)
    batches = pairs.distributed(strategy)
    totals = {"mean": tf.constant(0.0, tf.float64), "samples": tf.constant(0.0, tf.float64)}
    seen = []
    for number in range(12 // (2 * replicas)):
        requests = {"stop": tf.constant(float(workers.index == 1 and number == 1)), "save": tf.constant(0.0)}
        totals, _, metrics = run(next(batches), totals, tf.constant(1), tf.constant(number), requests=requests)
        seen.append(float(metrics["stop"][0]))
    return {
        "replicas": replicas,
        "totals": {name: float(total) for name, total in totals.items()},
        "weight": float(weight.numpy()),
        "pool": [checksum(image) for slot in pool.read()["images"] for image in slot],
        "shown": [[checksum(image) for image in images] for images in shown_images.numpy()],
        "stop": seen,
        "read": sorted(read),
        "gathered": workers.all_gather([workers.index, 10**15 + workers.index]).tolist(),
        "agreed": [
            workers.all_true(True),
            workers.all_true(workers.index == 0),
            workers.broadcast_from_chief(7 + workers.index),
        ],
    }


def checksum(image):
    """Return a number that differs for almost any other bits of the image in float32."""
    return zlib.crc32(image.astype(np.float32).tobytes())


def gradients(workers):
    """Run a training step of the real networks."""
    return first_moments(workers.strategy)


def first_moments(strategy):
    """Return two sums of Adam's mean gradient after one step for each variable: plain, and weighted by position.

    The weighted sum shows gradients that were mixed up.
    """
    config = Config.from_settings(dataset="stripes", image_size=16, filters=2, residual_blocks=0, load_size=16)
    images = np.random.default_rng(0).integers(0, 256, (2, 6, 16, 16, 3)).astype(np.uint8)
    with strategy.scope():
        model = GAN(6, config)
    step = compile_train_step(strategy, model)
    step(next(UnpairedDataset(*images, 6, (16, 16), seed=0).distributed(strategy)), {}, tf.constant(1), tf.constant(0))
    optimizers = (model.generator_optimizer, model.discriminator_optimizer)
    moments = [mean.numpy() for optimizer in optimizers for mean in optimizer.means]
    places = [np.linspace(1, 2, moment.size).reshape(moment.shape) for moment in moments]
    return [[float(moment.sum()), float((moment * place).sum())] for moment, place in zip(moments, places)]


def differ(workers):
    """Compare different settings after some all-gathers."""
    for count in range(1, 10):
        assert workers.all_gather(range(count)).tolist() == [list(range(count))] * workers.count
    workers.check_equal({"seed": 3, "lr": [0.1, 0.2][workers.index]})


def lose(workers):
    """End the worker WHO by the method HOW, while the others are in a step."""
    with workers.strategy.scope():
        weight = tf.Variable(0.0)

    def step(batch, number, rates, requests):
        metrics, (one,) = reduce_dict({"x": weight + batch[0][0]}, [tf.ones([1])])
        weight.assign_add(one[0])
        return metrics, train_function.all_finite(metrics)

    run = train_function.make_train_function(workers.strategy, step, 1)
    for number in range(10**6):
        if number == 3 and workers.index == int(os.environ["WHO"]):
            print("gone", flush=True)
            if os.environ["HOW"] == "error":
                raise UserError("this worker has a problem of its own")
            os.kill(os.getpid(), getattr(signal, os.environ["HOW"]))
        run((tf.ones([1, 1]),), {}, tf.constant(1), tf.constant(number))
        time.sleep(0.05)


def _leave_as(worker):
    if worker == int(os.environ["WHO"]):
        os._exit(7)


if __name__ == "__main__":
    try:
        print(json.dumps(main(sys.argv[1])), flush=True)
        terminal.leave(0)
    except UserError as error:
        print(f"{error}", file=sys.stderr)
        terminal.leave(error.exit_code)
