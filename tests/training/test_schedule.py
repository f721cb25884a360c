import math
import types

import pytest

from cyclegan.config import Config
from cyclegan.errors import UserError
from cyclegan.run.train_state import TrainState
from cyclegan.training.schedule import learning_rates, rates_of_last_step, rates_of_next_call
from tests.training.fakes import make_dataset


def settings(kind, epochs=200, decay_from=100):
    decay = {} if kind == "constant" else {"decay_from": decay_from}
    return Config.from_settings(lr_schedule=kind, epochs=epochs, **decay).optimization


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("linear", {0: 1, 100: 1, 150: 0.5, 175.5: 0.245, 199.999: 0.00001, 200: 0, 300: 0}),
        ("cosine", {100: 1, 125: 0.5 + 0.5 * math.sqrt(0.5), 150: 0.5, 200: 0}),
        ("constant", {199: 1}),
    ],
)
def test_factors_by_hand(kind, expected):
    assert {done: settings(kind).decay_factor(done) for done in expected} == pytest.approx(expected, abs=1e-12)


def test_an_unknown_schedule_is_an_error():
    with pytest.raises(UserError, match="--lr_schedule step: expected one of linear, cosine, constant"):
        settings("step")


def test_a_decay_from_after_the_end_never_begins():
    assert settings("linear", 50, 100).decay_factor(49) == settings("cosine", 50, 50).decay_factor(60) == 1


def test_both_rates_fall_together():
    config = Config.from_settings(lr=0.1, lr_discriminator=0.4, epochs=4)
    assert config.optimization.decay_from == 2
    assert learning_rates(config.optimization, 1) == (0.1, 0.4)
    assert learning_rates(config.optimization, 3) == (0.05, 0.2)
    longer = Config.from_settings(lr=0.1, epochs=8).optimization  # a resumed run continues as if begun with them
    assert learning_rates(config.optimization, 4)[0] == 0 and learning_rates(longer, 4)[0] == 0.1


def test_steps_use_the_rates_at_their_first_pair(make_images):
    dataset = make_dataset(make_images(7, 16), 3, seed=0, steps_per_call=2)
    settings = types.SimpleNamespace(lr=1, lr_discriminator=2, decay_factor=lambda epochs_done: epochs_done, epochs=2)
    state = TrainState(epoch=1)
    assert rates_of_next_call(settings, dataset, state) == [
        (1, 2, 1 / 2),
        (1 + 3 / 7, 2 * (1 + 3 / 7), (1 + 3 / 7) / 2),
    ]
    state.train.pairs_done = 7  # the last step began with pair 6
    assert rates_of_last_step(settings, dataset, state) == {
        "learning_rate": 1 + 6 / 7,
        "learning_rate_discriminators": 2 * (1 + 6 / 7),
    }
    settings.lr_discriminator = 1
    assert rates_of_last_step(settings, dataset, state) == {"learning_rate": 1 + 6 / 7}
