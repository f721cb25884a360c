import pytest

from cyclegan.config.command_line import parse_args
from cyclegan.errors import UserError
from tests.config.helpers import flat, refusal_of


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--keep 0", "--keep 0: expected at least 1"),
        ("--checkpoint_minutes -0.5", "--checkpoint_minutes -0.5: expected a finite number of at least 0"),
        ("--checkpoint_minutes nan", "--checkpoint_minutes nan: expected a finite number of at least 0"),
        ("--checkpoint_minutes inf", "--checkpoint_minutes inf: expected a finite number of at least 0"),
        ("--log_every 0", "--log_every 0: expected at least 1"),
    ],
)
def test_impossible_values_are_refused(flags, text):
    assert text in refusal_of(flags)


@pytest.mark.parametrize("verbose", ["0", "1", "2"])
def test_every_verbosity_is_accepted(verbose):
    assert flat(parse_args(["--verbose", verbose])).verbose == int(verbose)


def test_an_empty_output_dir_is_refused():
    with pytest.raises(UserError, match="--output_dir '': expected"):
        parse_args(["--output_dir", ""])
