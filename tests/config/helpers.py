"""Access to settings and to refusals that the tests of this folder share."""

import types

import pytest

from cyclegan.config.command_line import parse_args
from cyclegan.errors import UserError


def flat(config):
    """Return all settings of a configuration as attributes of one object."""
    return types.SimpleNamespace(**config.settings())


def refusal_of(flags):
    """Return the error of flags that `parse_args` refuses, one line."""
    with pytest.raises(UserError) as error:
        parse_args(flags.split())
    assert "\n" not in str(error.value)
    return str(error.value)
