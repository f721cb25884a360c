"""Run one of several workers with a tiny step instead of training: `worker.py NAME` with TF_CONFIG set.

Print the result of the function NAME as a line of JSON, or the error.
"""

import json
import os
import signal
import sys
import time

import cyclegan  # noqa: F401  before TensorFlow: it silences the notices
from cyclegan import terminal
from cyclegan.config import Config
from cyclegan.errors import UserError

with terminal.start():
    import tensorflow as tf

    from cyclegan.distribution import startup
    from cyclegan.distribution.train_function import reduce_dict


def main(name):
    config = Config.from_settings(start_timeout=int(os.environ.get("START_TIMEOUT", "120")))
    if name == "vanish":
        met = startup.meet
        startup.meet = lambda cluster, *rest: (met(cluster, *rest), vanish(cluster))
    with terminal.start():
        workers = startup.start_workers(config.distribution)
    with workers.report_lost(lambda: "no checkpoint"):
        return {"agree": agree, "lose": lose}[name](workers)


def vanish(cluster):
    """End the process if this is the worker WHO."""
    if cluster.index == int(os.environ["WHO"]):
        os._exit(7)


def make_step(workers):
    """Return a weight, and a function that runs a step on all workers, which adds the sum of their shares to it."""
    with workers.strategy.scope():
        weight = tf.Variable(float(workers.index))  # the chief's value has to win

    def on_replica():
        share = tf.constant(workers.index + 1.0)
        metrics, gradients = reduce_dict({"mean": share}, [tf.fill([2], 10 * share)])
        weight.assign_add(gradients[0][0])
        return metrics["mean"]

    return weight, tf.function(lambda: workers.strategy.run(on_replica), autograph=False)


def agree(workers):
    """Run a step, and agree on values."""
    weight, step = make_step(workers)
    return {
        "mean": float(step()),
        "weight": float(weight.numpy()),
        "gathered": workers.all_gather([workers.index, 10**15 + workers.index]).tolist(),
        "agreed": [
            workers.all_true(True),
            workers.all_true(workers.index == 0),
            workers.broadcast_from_chief(7 + workers.index),
        ],
    }


def lose(workers):
    """End the worker WHO by the method HOW, while the others are in a step."""
    _, step = make_step(workers)
    for number in range(10**6):
        if number == 3 and workers.index == int(os.environ["WHO"]):
            print("gone", flush=True)
            if os.environ["HOW"] == "error":
                raise UserError("this worker has a problem of its own")
            os.kill(os.getpid(), getattr(signal, os.environ["HOW"]))
        step()
        time.sleep(0.05)


if __name__ == "__main__":
    try:
        print(json.dumps(main(sys.argv[1])), flush=True)
        terminal.leave(0)
    except UserError as error:
        print(f"{error}", file=sys.stderr)
        terminal.leave(error.exit_code)
