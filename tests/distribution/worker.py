"""One of several workers with a tiny step in place of training, for test_workers.py: `worker.py WHAT` with TF_CONFIG set.

Prints what it found as a line of JSON, or the error.
"""

import json
import os
import signal
import sys
import time

import cyclegan  # noqa: F401  before TensorFlow: it silences the notices
from cyclegan import console
from cyclegan.config import Config
from cyclegan.errors import UserError

with console.start():
    import numpy as np
    import tensorflow as tf

    from cyclegan.data.unpaired import UnpairedDataset
    from cyclegan.distribution import collectives, rendezvous, workers
    from cyclegan.training.gan import CycleGAN
    from cyclegan.training.image_pool import ImagePool


def main(what):
    config = Config.from_settings(start_timeout=int(os.environ.get("START_TIMEOUT", "120")))
    if what == "vanish":
        met = rendezvous.meet
        rendezvous.meet = lambda members, *rest: (met(members, *rest), _leave_as(members.index))
    with console.start():
        team = workers.start(config)
    with team.noticed():
        return {"steps": steps, "differ": differ, "lose": lose, "gradients": gradients}[what](team)


def steps(team):
    """Three steps on pictures of which each replica gets its share, and what the workers agree on."""
    strategy = team.strategy
    values = np.arange(12 * 16 * 16 * 3, dtype=np.int64).reshape(12, 16, 16, 3) % 251
    read = set()

    class Watched:
        """A domain that knows which of its pictures were asked for."""

        shape, dtype = values.shape, np.dtype(np.uint8)

        def __len__(self):
            return len(values)

        def __getitem__(self, index):
            read.add(int(index))
            return values[index].astype(np.uint8)

    replicas = strategy.num_replicas_in_sync
    pairs = UnpairedDataset(Watched(), Watched(), 2 * replicas, (16, 16))
    with strategy.scope():
        weight = tf.Variable(float(team.index), name="weight")  # the chief's value has to win
        pool = ImagePool(4, (16, 16, 3))

    def step(x, y, weights, index):
        mean = tf.reduce_sum(tf.cast(x, tf.float32)) / (12 * 16 * 16 * 3)
        everyone, _ = collectives.gather((tf.cast(x, tf.float32), weights))
        count = everyone.shape[0]
        shown, kept = pool.query(everyone, weights[0] * tf.ones([count]) > 0, tf.ones([count, 2]))
        return {"mean": mean, "samples": tf.reduce_sum(weights) / 12}, [tf.reshape(mean, [1])], (kept, shown)

    def update(gradients, good, kept, index, rates):
        weight.assign_add(gradients[0][0])
        pool.store(kept[0], good)

    run = collectives.make_train_function(strategy, step, 12, update)
    batches = pairs.distributed(strategy)
    totals = {"mean": tf.constant(0.0, tf.float64), "samples": tf.constant(0.0, tf.float64)}
    seen, figures = [], None
    for number in range(12 // (2 * replicas)):
        wishes = {"stop": tf.constant(float(team.index == 1 and number == 1)), "save": tf.constant(0.0)}
        totals, _, figures = run(next(batches), totals, tf.constant(1), tf.constant(number), wishes=wishes)
        seen.append(float(figures["stop"][0]))
    return {
        "replicas": replicas,
        "totals": {name: float(total) for name, total in totals.items()},
        "weight": float(weight.numpy()),
        "pool": [float(picture.mean()) for picture in pool.images.numpy()],
        "stop": seen,
        "read": sorted(read),
        "exchanged": team.exchange([team.index, 10**15 + team.index]).tolist(),
        "agreed": [team.all(True), team.all(team.index == 0), team.of_chief(7 + team.index)],
    }


def gradients(team):
    """A training step of the real networks."""
    return first_moments(team.strategy)


def first_moments(strategy):
    """Adam's means of the gradients after the first step, half of the gradients: of each variable, the sum of all and that of all
    times their places, so that none may take another's place."""
    config = Config.from_settings(dataset="stripes", image_size=16, filters=2, residual_blocks=1, load_size=16)
    pictures = np.random.default_rng(0).integers(0, 256, (2, 6, 16, 16, 3)).astype(np.uint8)
    with strategy.scope():
        model = CycleGAN(6, config)
    step = collectives.make_train_function(strategy, model.train_step, 6, model.update)
    step(
        next(UnpairedDataset(*pictures, 6, (16, 16), seed=0).distributed(strategy)), {}, tf.constant(1), tf.constant(0)
    )
    optimizers = (model.generator_optimizer, model.discriminator_optimizer)
    moments = [mean.numpy() for optimizer in optimizers for mean in optimizer.means]
    places = [np.linspace(1, 2, moment.size).reshape(moment.shape) for moment in moments]
    return [[float(moment.sum()), float((moment * place).sum())] for moment, place in zip(moments, places)]


def differ(team):
    """The workers have not been given the same, which they find after they have exchanged other things."""
    for count in range(1, 10):
        assert team.exchange(range(count)).tolist() == [list(range(count))] * team.count
    team.compare({"seed": 3, "lr": [0.1, 0.2][team.index]})


def lose(team):
    """The worker WHO goes, in the way that HOW says, and the others are in a step without it."""
    with team.strategy.scope():
        weight = tf.Variable(0.0)

    def step(x, index):
        return {"x": weight + x[0]}, [tf.ones([1])], ()

    run = collectives.make_train_function(
        team.strategy, step, 1, lambda gradients, *rest: weight.assign_add(gradients[0][0])
    )
    for number in range(10**6):
        if number == 3 and team.index == int(os.environ["WHO"]):
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
        console.leave(0)
    except UserError as error:
        print(f"{error}", file=sys.stderr)
        console.leave(error.exit_code)
