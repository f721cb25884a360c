import math

import pytest

from cyclegan.config import Config
from cyclegan.training import schedule


@pytest.mark.parametrize(
    "kind, done, expected",
    [
        ("linear", 0, 1),
        ("linear", 100, 1),
        ("linear", 150, 0.5),
        ("linear", 175.5, 0.245),
        ("linear", 199.999, 0.00001),
        ("linear", 200, 0),
        ("linear", 300, 0),
        ("cosine", 100, 1),
        ("cosine", 125, 0.5 + 0.5 * math.sqrt(0.5)),
        ("cosine", 150, 0.5),
        ("cosine", 200, 0),
        ("constant", 199, 1),
    ],
)
def test_factors_by_hand(kind, done, expected):
    assert schedule.factor(kind, 200, 100, done) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_learning_rates_fall_by_every_step_and_never_rise(kind):
    places = [100 + step / 1067 for step in range(1067 * 100)]
    factors = [schedule.factor(kind, 200, 100, done) for done in places[::97]]
    assert all(a > b for a, b in zip(factors, factors[1:])) and factors[0] == 1 and 0 < factors[-1] < 1e-2


def test_a_decay_that_would_begin_after_the_end_never_does():
    assert schedule.factor("linear", 50, 100, 49) == schedule.factor("cosine", 50, 50, 60) == 1


def test_both_rates_fall_together():
    config = Config.from_settings(lr=0.1, lr_discriminator=0.4, epochs=4)
    assert config.optimization.decay_from == 2
    assert schedule.rates(config, 1) == (0.1, 0.4)
    assert schedule.rates(config, 3) == (0.05, 0.2)


def test_more_epochs_are_as_if_there_had_always_been_so_many():
    finished, longer = Config.from_settings(lr=1.0, epochs=4), Config.from_settings(lr=1.0, epochs=8)
    assert schedule.rates(finished, 4)[0] == 0 and schedule.rates(longer, 4)[0] == 1
    assert schedule.rates(longer, 6)[0] == 0.5
