import logging

import pytest

from tests.training.fakes import Recorder, Steps, make_dataset, make_trainer


@pytest.fixture
def fit(strategies, make_images, caplog):
    """Return a function that trains on 7 pairs in batches of 3 with fakes and returns (metrics, recorder, trainer).

    `bad` and `bad_tests` are the training and test steps that are not finite, counted over all that are ever run.
    `fit.steps` has the fake steps, `fit.trainer` the trainer and `fit.recorder` the recorder of the last call,
    `fit.warnings()` its warnings.
    """
    caplog.set_level(logging.INFO)

    def run(epochs, state=None, value=1.0, bad=(), bad_tests=(), batch=3, seen=None, steps=1, on_call=id, **options):
        caplog.clear()
        images = make_images(7, 16)
        train, test = (make_dataset(images, batch, seed, steps) for seed in (0, None))
        run.steps = {
            "train": Steps("train", value, bad, on_call, seen),
            "test": Steps("test", value, bad_tests, on_call),
        }
        run.recorder = Recorder()
        run.trainer = make_trainer(
            strategies[1],
            run.recorder,
            (train, run.steps["train"]),
            (test, run.steps["test"]),
            state,
            epochs=epochs,
            **options,
        )
        return run.trainer.fit(), run.recorder, run.trainer

    run.warnings = lambda: [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return run
