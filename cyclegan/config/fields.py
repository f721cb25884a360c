"""Fields of the configuration's sections, and the checks that sections share."""

from __future__ import annotations

import dataclasses
import enum
import math
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, Optional

from cyclegan.errors import UserError


class OnResume(enum.Enum):
    """Rule for a resumed run that changes a setting."""

    FREE = "free"  # allowed: it changes where, how long or how verbosely a run trains, not its result
    WARN = "warn"  # allowed with a warning: it changes the training from here on
    FIXED = "fixed"  # refused: the checkpoint would not fit, or it would be another experiment


FREE, WARN, FIXED = OnResume.FREE, OnResume.WARN, OnResume.FIXED
LARGEST = 2**32 - 1  # of all whole numbers: NumPy's limit for a seed, and beyond any other sensible value
TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


class FieldType(NamedTuple):
    """The type of a setting.

    Attributes:
        base: `bool`, `int`, `float` or `str`.
        choices: All allowed values; empty if any value of the type is allowed.
        optional: Whether `None` is allowed.
    """

    base: type
    choices: tuple[Any, ...] = ()
    optional: bool = False


def flag(
    help_text: str,
    default: Any = None,
    on_resume: OnResume = FIXED,
    derive: Optional[Callable[[Mapping[str, Any]], Any]] = None,
    **argument: Any,
) -> Any:
    """Return a dataclass field that is also a command-line flag.

    Args:
        help_text: Help of the flag. The command line appends the default if the text does not name one.
        default: Default value.
        on_resume: Whether a resumed run may change the setting.
        derive: Function that returns the default which follows from all other settings, by name.
        argument: Further arguments of `ArgumentParser.add_argument`.
    """
    metadata = {"help": help_text, "on_resume": on_resume, "derive": derive, "argument": argument}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Section:
    """Base of the configuration's sections: frozen dataclasses that check themselves when they are made.

    A component, such as an objective, is a subclass of its section with the settings of the component. `Config` makes
    one class of the components that are chosen in a section. The method `_check` of a class checks the settings of this class.
    """

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UserError: A value cannot work; the text names the flag, the value and what was expected.
        """
        for name, kind in field_types(type(self)).items():
            value = getattr(self, name)
            if value is None and kind.optional:
                continue
            if type(value) is not kind.base and not (kind.base is float and type(value) is int):
                refuse(name, f"{value!r:.80}", TYPE_NAMES[kind.base])
            if kind.choices and value not in kind.choices:
                refuse(name, value, f"one of {', '.join(map(str, kind.choices))}")
            if type(value) is int and value > LARGEST:
                refuse(name, value, f"at most {LARGEST}")
        for part in reversed(type(self).__mro__):
            if "_check" in vars(part):
                part._check(self)  # type: ignore[attr-defined]

    def check_at_least(self, minimum: int, *names: str, unit: str = "") -> None:
        """Refuse values below a minimum; `None` passes."""
        for name in names:
            value = getattr(self, name)
            if value is not None and value < minimum:
                refuse(name, value, f"at least {minimum} {unit}".rstrip())

    def check_at_most(self, maximum: int, *names: str, unit: str = "") -> None:
        """Refuse values above a maximum."""
        for name in names:
            if getattr(self, name) > maximum:
                refuse(name, getattr(self, name), f"at most {maximum} {unit}".rstrip())

    def check_finite(self, *names: str, positive: bool = False) -> None:
        """Refuse values that are negative (or 0, if `positive`), infinite or not a number; `None` passes."""
        for name in names:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and (value > 0 or (value == 0 and not positive))):
                refuse(name, value, f"a finite number {'above 0' if positive else 'of at least 0'}")

    def check_fraction(self, *names: str) -> None:
        """Refuse values outside of [0, 1)."""
        for name in names:
            if not 0 <= getattr(self, name) < 1:
                refuse(name, getattr(self, name), "at least 0 and less than 1")

    def check_names(self, *names: str, expected: str) -> None:
        """Refuse empty texts; `None` passes."""
        for name in names:
            if getattr(self, name) == "":
                refuse(name, "", f"{expected} (is a shell variable not set?)")


def refuse(name: str, value: Any, expected: str) -> NoReturn:
    """Raise the `UserError` of a setting whose value cannot work."""
    raise UserError(f"--{name} {value if value != '' else repr('')}: expected {expected}")


def field_types(section: type[Section]) -> Mapping[str, FieldType]:
    """Return the type of each field of a section, by name."""
    hints = typing.get_type_hints(section)
    return {field.name: _field_type(hints[field.name]) for field in dataclasses.fields(section)}


def _field_type(hint: Any) -> FieldType:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union:
        return _field_type(arguments[0])._replace(optional=True)
    if origin is typing.Literal:
        return FieldType(type(arguments[0]), arguments)
    return FieldType(hint)
