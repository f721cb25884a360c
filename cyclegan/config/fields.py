"""Fields of the configuration's sections, and the checks that sections share."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import math
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Optional

from cyclegan.errors import UserError

# Rules for a resumed run that changes a setting.
FREE = "free"  # allowed: it changes where, how long or how verbosely a run trains, not its result
WARN = "warn"  # allowed with a warning: it changes the training from here on
FIXED = "fixed"  # refused: the checkpoint would not fit, or it would be another experiment
LARGEST = 2**32 - 1  # largest whole number of any setting: NumPy's limit for a seed; the others need less
TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def flag(
    default: Any = None,
    on_resume: str = FIXED,
    derive: Optional[Callable[[Mapping[str, Any]], Any]] = None,
    least: float = 0,
    below: float = math.inf,
    positive: bool = False,
    unit: str = "",
    **argument: Any,
) -> Any:
    """Return a field of a section, which is also a command-line flag; the string below the field is the flag's help.

    Args:
        default: Default value, which the help shows if its text does not name one.
        on_resume: `FREE`, `WARN` or `FIXED`.
        derive: Function that derives the default from all other settings, given by name.
        least: Smallest number; the error for a smaller one names it.
        below: Number that the setting must not reach.
        positive: Whether 0 is refused.
        unit: Unit of the setting, such as "pixels"; errors name it.
        argument: Further arguments of `ArgumentParser.add_argument`.
    """
    expected = f"a finite number {'above 0' if positive else f'of at least {least}'}"
    if least == -math.inf:
        expected = "a finite number"
    if below < math.inf:
        expected = f"at least {least} and less than {below:g}"
    limits = {float: expected, int: f"at least {least} {unit}".rstrip()}

    def allows(value: float) -> bool:
        return least <= value < below and (value > 0 or not positive)

    metadata = {"on_resume": on_resume, "derive": derive, "argument": argument, "expected": limits, "allows": allows}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Section:
    """Base of the configuration's sections: frozen dataclasses that check themselves when they are made.

    A component, such as an objective, is a subclass of its section with the settings of the component. `Config` makes
    one class of the components that are chosen in a section. The method `_check` of a class checks what its fields do
    not say.
    """

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UserError: A value cannot work; the text names the flag, the value and what was expected.
        """
        for field in dataclasses.fields(self):
            check_value(type(self), field, getattr(self, field.name))
        for part in reversed(type(self).__mro__):
            if "_check" in vars(part):
                part._check(self)  # type: ignore[attr-defined]


def check_value(section: type[Section], field: dataclasses.Field[Any], value: Any) -> None:
    """Raise `UserError` if a value has the wrong type for the field of a section, or lies outside of its limits."""
    name, (kind, choices, optional) = field.name, field_type(section, field.name)
    if value is None and optional:
        return
    if type(value) is not kind and not (kind is float and type(value) is int):
        refuse(name, f"{value!r:.80}", TYPE_NAMES[kind])
    if choices and value not in choices:
        refuse(name, value, f"one of {', '.join(map(str, choices))}")
    if kind in (int, float) and not field.metadata["allows"](value):
        refuse(name, value, field.metadata["expected"][kind])
    if type(value) is int and value > LARGEST:
        refuse(name, value, f"at most {LARGEST}")
    if value == "" != field.default:
        refuse(name, value, "a text that is not empty (is a shell variable not set?)")


def refuse(name: str, value: Any, expected: str) -> NoReturn:
    """Raise the `UserError` of a setting whose value cannot work."""
    raise UserError(f"--{name} {value if value != '' else repr('')}: expected {expected}")


def field_type(section: type[Section], name: str) -> tuple[type, tuple[Any, ...], bool]:
    """Return the type of a field, its allowed values (empty if all are), and whether `None` is allowed."""
    hint, optional = _hints(section)[name], False  # type: ignore[arg-type]
    if typing.get_origin(hint) is typing.Union:
        hint, optional = typing.get_args(hint)[0], True
    choices = typing.get_args(hint)
    return type(choices[0]) if choices else hint, choices, optional


@functools.cache
def _hints(section: Any) -> dict[str, Any]:
    return typing.get_type_hints(section)


def field_help(section: type[Section], name: str) -> str:
    """Return the string below a field in the code of the section or of the class that it extends."""
    return next(text for part in section.__mro__ if (text := _strings(part.__module__).get((part.__name__, name))))


@functools.cache
def _strings(module: str) -> dict[tuple[str, str], str]:
    """Return the strings below the fields of the classes in a module, by the names of class and field."""
    classes = [
        node for node in ast.parse(inspect.getsource(sys.modules[module])).body if isinstance(node, ast.ClassDef)
    ]
    return {
        (node.name, field.target.id): " ".join(ast.literal_eval(text.value).split())
        for node in classes
        for field, text in zip(node.body, node.body[1:])
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr)
    }
