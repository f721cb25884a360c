import math

import numpy as np
import pytest

from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks.silent_failures import find_collapse, find_silent_failures

# Metrics of an epoch in which all is well.
TRAIN = {"loss_X/loss": 0.2, "loss_Y/loss": 0.2, "loss_G/loss": 0.3, "loss_F/loss": 0.3}
TEST = {
    "change/MAE(X, G(X))": 0.3,
    "change/MAE(Y, F(Y))": 0.3,
    "change/correlation(X, G(X))": 0.7,
    "change/correlation(Y, F(Y))": 0.7,
}


def names(train=(), test=()):
    return list(find_silent_failures({**TRAIN, **dict(train)}, {**TEST, **dict(test)}))


def test_good_metrics_raise_no_warning():
    assert names() == []


@pytest.mark.parametrize(
    "split, metric, bad, still_good, name",
    [
        ("test", "change/MAE(X, G(X))", 0.0099, 0.01, "G does nothing"),
        ("test", "change/MAE(Y, F(Y))", 0.0099, 0.01, "F does nothing"),
        ("test", "change/correlation(X, G(X))", -0.501, -0.5, "G inverts"),
        ("test", "change/correlation(Y, F(Y))", -0.501, -0.5, "F inverts"),
        ("train", "loss_X/loss", 0.0099, 0.01, "D_X has won"),
        ("train", "loss_Y/loss", 0.0099, 0.01, "D_Y has won"),
    ],
)
def test_each_threshold_raises_its_warning(split, metric, bad, still_good, name):
    assert names(**{split: {metric: bad}}) == [name]
    assert names(**{split: {metric: still_good}}) == []


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_losses_of_held_out_images_do_not_count(mean):
    assert names(test={"loss_X/loss": mean, "loss_Y/loss": mean}) == []


def test_several_failures_at_once():
    train = {"loss_X/loss": 0.0, "loss_Y/loss": 0.0}
    test = {key: -1.0 if "correlation" in key else 0.0 for key in TEST}
    assert sorted(names(train, test)) == [
        "D_X has won",
        "D_Y has won",
        "F does nothing",
        "F inverts",
        "G does nothing",
        "G inverts",
    ]


def test_texts_name_the_networks_and_what_to_try():
    found = find_silent_failures(
        dict.fromkeys(TRAIN, 0.0), {"change/MAE(Y, F(Y))": 0.0, "change/correlation(X, G(X))": -1.0}
    )
    assert found["F does nothing"].startswith("F(y) is y itself, within 1.3 of 255 gray levels")
    assert "--lambda_identity" in found["F does nothing"]
    assert found["G inverts"].startswith("G(x) is the negative of x") and "--seed" in found["G inverts"]
    # F learns from D_X, because F makes images of X.
    assert "so F learns little" in found["D_X has won"] and "--lr" in found["D_X has won"]
    assert "so G learns little" in found["D_Y has won"]
    assert all(text.isprintable() for text in found.values())


@pytest.mark.parametrize("left_out", [*TRAIN, *TEST])
def test_missing_metrics_raise_no_warning(left_out):
    train, test = ({k: v for k, v in part.items() if k != left_out} for part in (TRAIN, TEST))
    assert find_silent_failures(train, test) == {}


def test_metrics_that_are_not_numbers_raise_no_warning():
    assert find_silent_failures({}, {}) == {}
    assert names(dict.fromkeys(TRAIN, math.nan), dict.fromkeys(TEST, math.nan)) == []


def test_a_wgan_gp_critic_cannot_win():
    train = {"loss_X/loss": -3.0, "loss_Y/loss": 0.0}
    assert set(find_silent_failures(train, {})) == {"D_X has won", "D_Y has won"}
    assert not find_silent_failures(train, {}, "wgan-gp")


def test_each_failure_is_reported_once(fit):
    _, recorder, trainer = fit(3, value=0.005)
    assert len(fit.warnings()) == 4 and all(text.startswith("epoch 1: ") for text in fit.warnings())
    assert set(trainer.state.warned) == {"G does nothing", "F does nothing", "D_X has won", "D_Y has won"}
    assert recorder.epochs_of("G does nothing") == [1]
    fit(2, TrainState(epoch=1, step=3, warned=trainer.state.warned), value=0.005)
    assert not fit.warnings()


def test_texts_without_a_cycle_name_no_flags_of_it():
    test = {key: -1.0 if "correlation" in key else 0.0 for key in TEST if "F(Y)" not in key}
    texts = find_silent_failures({}, test, has_cycle=False)
    assert list(texts) == ["G does nothing", "G inverts"]
    assert not any("lambda" in text or "cycle" in text for text in texts.values())


def test_collapse_compares_distances():
    images = np.stack([np.full((4, 4, 3), value, np.float32) for value in (-0.5, 0.0, 0.5)])
    assert not find_collapse("G", images, 0.1 * images, images)
    found = find_collapse("F", images, 0.0999 * images, images)
    assert list(found) == ["F has collapsed"]
    assert "differ by 85.0 of 255 gray levels on average, their translations by 8.5, real" in found["F has collapsed"]
    assert not find_collapse("G", images, 0.0999 * images, 0.9 * images)  # the targets differ less
    assert not find_collapse("G", images[:1], 0 * images[:1], images)  # one image
    assert not find_collapse("G", 0.01 * images, 0 * images, images)  # the images are alike
    assert not find_collapse("G", images, 0 * images, 0.01 * images)  # the targets are alike
    assert not find_collapse("G", images, np.nan * images, images)
