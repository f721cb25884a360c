import dataclasses

import pytest

from cyclegan.config import Config
from cyclegan.training.setup import batch_size_warnings, learning_rate_warnings


def test_no_warning_for_the_same_batch_or_a_new_run():
    assert batch_size_warnings(6, 6, 3) == batch_size_warnings(6, 6, 2) == []
    assert batch_size_warnings(0, 8, 2) == []


def test_a_batch_larger_than_an_epoch_causes_a_warning():
    (text,) = batch_size_warnings(0, 8, 2, pairs=5)
    assert text == "the global batch of 8 is larger than an epoch of 5 pairs: most of each step is idle"


@pytest.mark.parametrize(
    "replicas, batch, steps, advice",
    [
        (3, 3, "more", "--batch_size 2"),
        (3, 12, "fewer", "--batch_size 2"),
        (1, 1, "more", "--batch_size 6"),
        (6, 12, "fewer", "--batch_size 1"),
        (4, 4, "more", "--devices 3 --batch_size 2"),
        (8, 8, "fewer", "--devices 6 --batch_size 1"),
    ],
)
def test_another_batch_size_causes_a_warning_with_advice(replicas, batch, steps, advice):
    (text,) = batch_size_warnings(6, batch, replicas)
    assert text.startswith(f"the global batch is {batch} pairs instead of 6 from here on")
    assert f"has {steps} steps, " in text and text.endswith(f"For the same batch use {advice}")


def test_image_pools_may_drop_images():
    with_pools, without = (batch_size_warnings(6, 3, 3, has_pools=each)[0] for each in (True, False))
    assert with_pools == without.replace("changes,", "changes, image pools are redistributed and may drop images,")


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_more_epochs_warn_only_if_the_learning_rate_jumps(kind):
    saved = Config.from_settings(lr=0.5, epochs=8, decay_from=4, lr_schedule=kind).optimization
    longer = dataclasses.replace(saved, epochs=12)
    (text,) = learning_rate_warnings(saved, longer, 8)
    assert "epochs 8 -> 12: after epoch 8 the learning rate is 0.25 " in text and text.endswith("have been 0")
    assert not learning_rate_warnings(saved, longer, 4)
    assert not learning_rate_warnings(saved, dataclasses.replace(saved, lr=0.1), 8)  # warned of as a changed setting
    constant = Config.from_settings(lr_schedule="constant", epochs=8).optimization
    assert not learning_rate_warnings(constant, dataclasses.replace(constant, epochs=12), 8)


@pytest.mark.parametrize(
    "epochs, text",
    [
        (
            300,
            "epochs 200 -> 300: after epoch 150 the learning rate is 0.00015 from here on; with the saved settings it",
        ),
        (
            160,
            "epochs 200 -> 160: after epoch 150 the learning rate is 3.33e-05 from here on; with the saved settings it",
        ),
    ],
)
def test_other_epochs_warn_of_the_new_learning_rate(epochs, text):
    saved, present = (
        Config.from_settings().optimization,
        Config.from_settings(epochs=epochs, decay_from=100).optimization,
    )
    assert learning_rate_warnings(saved, present, 150) == [f"{text} would have been 0.0001"]
