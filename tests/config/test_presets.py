import pytest

from cyclegan.config import Config
from cyclegan.config.command_line import parse_args
from cyclegan.config.presets import PRESETS
from tests.config.helpers import flat


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_sets_its_values(preset):
    config = flat(parse_args(["--preset", preset]))
    assert config.preset == preset
    assert {name: getattr(config, name) for name in PRESETS[preset]} == PRESETS[preset]
    assert any(getattr(config, name) != getattr(flat(Config.from_settings()), name) for name in PRESETS[preset])


def test_presets_are_the_published_settings():
    paper, tutorial = (flat(parse_args(["--preset", name])) for name in ("paper", "tutorial"))
    assert (paper.variant, paper.generator, paper.pool_size, paper.epochs, paper.decay_from) == (
        *("paper", "resnet_9blocks", 50, 200, 100),
    )
    assert (tutorial.variant, tutorial.pool_size, tutorial.lr_schedule, tutorial.beta_2) == (
        "keras",
        0,
        "constant",
        0.9,
    )
