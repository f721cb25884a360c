import pytest

from cyclegan.config.command_line import parse_args
from cyclegan.config.config import Config
from cyclegan.config.objective import OBJECTIVES
from cyclegan.errors import UserError
from tests.config.helpers import refusal_of


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--lambda_cycle -1", "--lambda_cycle -1.0: expected a finite number of at least 0"),
        ("--lambda_paired -1", "--lambda_paired -1.0: expected a finite number of at least 0"),
        ("--r1 -1", "--r1 -1.0: expected a finite number of at least 0"),
        ("--pool_size -1", "--pool_size -1: expected at least 0"),
        ("--diffaugment color,zoom", "--diffaugment color,zoom: zoom: expected any of color,translation,cutout"),
        ("--diffaugment ,", "--diffaugment ,: an empty name: expected any of color,translation,cutout"),
    ],
)
def test_impossible_values_are_refused(flags, text):
    assert text in refusal_of(flags)


@pytest.mark.parametrize("name", [name for name, facts in OBJECTIVES.items() if facts.compares_features])
def test_objectives_of_one_generator_refuse_what_they_cannot_use(name):
    for flags, text in (
        ("--lambda_cycle 5", "--lambda_cycle 5.0: has no effect here, because it needs --objective cyclegan;"),
        ("--lambda_identity 1", "it needs --objective cyclegan and --channels_x equal to --channels_y;"),
        ("--channels_x 1", "compares features of both domains; expected --channels_x 1 equal to --channels_y 3"),
        ("--generator unet_256", "compares features of a ResNet; expected another --generator than unet_256"),
    ):
        assert text in refusal_of(f"--objective {name} {flags}")


def test_unknown_objective():
    with pytest.raises(UserError, match="--objective gan: expected one of cyclegan, cut"):
        Config.from_settings(objective="gan")


def test_default_of_the_pools_follows_from_the_objective():
    def pool_size(*flags):
        return parse_args(flags).objective.pool_size

    assert pool_size() == 50 and pool_size("--preset", "paper") == 50
    assert pool_size("--objective", "cut") == pool_size("--preset", "paper", "--objective", "cut") == 0
    assert pool_size("--objective", "cut", "--pool_size", "20") == 20
