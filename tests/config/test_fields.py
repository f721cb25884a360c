import dataclasses
from typing import Literal, Optional

import pytest

from cyclegan.config.fields import FIXED, FREE, FieldType, Section, check_type, field_types, flag
from cyclegan.errors import UserError


@dataclasses.dataclass(frozen=True)
class Lamp(Section):
    """Section with a setting of each kind."""

    color: Literal["red", "green"] = flag("color of the light", "red", FREE)
    dimming: Optional[Literal[1, 2]] = flag("level of the dimmer")
    watts: Optional[int] = flag("power", metavar="W")
    hours: float = flag("hours of use", 2.5)

    def check(self):
        self.check_at_least(3, "watts", unit="watts")
        self.check_finite("hours", positive=True)


def test_field_types():
    assert field_types(Lamp) == {
        "color": FieldType(str, ("red", "green")),
        "dimming": FieldType(int, (1, 2), optional=True),
        "watts": FieldType(int, optional=True),
        "hours": FieldType(float),
    }


def test_a_flag_knows_its_help_and_its_arguments():
    color, _, watts, _ = dataclasses.fields(Lamp)
    assert color.metadata == {"help": "color of the light", "on_resume": FREE, "argument": {}}
    assert watts.metadata == {"help": "power", "on_resume": FIXED, "argument": {"metavar": "W"}}
    assert (color.default, watts.default) == ("red", None)


@pytest.mark.parametrize(
    "values, text",
    [
        ({"color": "blue"}, "--color blue: expected one of red, green"),
        ({"color": None}, "--color None: expected one of red, green"),
        ({"color": ""}, "--color '': expected one of red, green"),
        ({"dimming": 3}, "--dimming 3: expected one of 1, 2"),
        ({"watts": 2}, "--watts 2: expected at least 3 watts"),
        ({"hours": 0.0}, "--hours 0.0: expected a finite number above 0"),
    ],
    ids=str,
)
def test_a_section_refuses_values_that_cannot_work(values, text):
    with pytest.raises(UserError) as error:
        Lamp(**values)
    assert str(error.value) == text


def test_limits_and_optional_values_are_accepted():
    assert Lamp(dimming=2, watts=3, hours=1e-9).color == "red"
    assert Lamp(dimming=None, watts=None).hours == 2.5


@pytest.mark.parametrize(
    "value, kind, fits",
    [
        (3, FieldType(int), True),
        (3, FieldType(float), True),  # people write 3 for 3.0
        (3.0, FieldType(int), False),
        (True, FieldType(int), False),
        (True, FieldType(float), False),
        (1, FieldType(bool), False),
        ("3", FieldType(int), False),
        (None, FieldType(str), False),
        (None, FieldType(str, optional=True), True),
    ],
)
def test_types_of_values_from_files(value, kind, fits):
    text = check_type("watts", value, kind)
    assert text == (None if fits else f"watts is {value!r}, expected {kind.base.__name__}")


def test_long_values_are_cut():
    assert check_type("watts", "x" * 1000, FieldType(int)) == f"watts is '{'x' * 79}, expected int"
