"""Settings: the fields of the configuration's sections, and the checks of their values."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import math
import os
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, Optional

from cyclegan.errors import UserError, check_path

# Rules for a resumed run that changes a setting.
FREE = "free"  # allowed: it changes where, how long or how verbosely a run trains, not its result
WARN = "warn"  # allowed with a warning: it changes the training from here on
FIXED = "fixed"  # refused: the checkpoint would not fit, or it would be another experiment
LARGEST = 2**32 - 1  # largest whole number of any setting: NumPy's limit for a seed; the others need less
hints: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)
TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def flag(
    default: Any = None,
    on_resume: str = FIXED,
    derive: Optional[Callable[[Mapping[str, Any]], Any]] = None,
    least: float = 0,
    below: float = math.inf,
    positive: bool = False,
    unit: str = "",
    is_path: bool = False,
    **argument: Any,
) -> Any:
    """Return a field of a section, which is also a command-line flag; the string below the field is the flag's help.

    Args:
        default: Default value, which the help shows if its text does not name one.
        on_resume: `FREE`, `WARN` or `FIXED`.
        derive: Function that derives the default from all other settings, given by name.
        least: Smallest number.
        below: Number that the setting must not reach.
        positive: Whether 0 is refused.
        unit: Unit of the setting, such as "pixels"; errors name it.
        is_path: Whether the setting is the path of a file or folder.
        argument: Further arguments of `ArgumentParser.add_argument`.
    """
    expected = "above 0" if positive else f"at least {least} {unit}".rstrip()
    expected += f" and less than {below:g}" if below < math.inf else ""

    def allows(value: float) -> bool:
        return least <= value < below and (value > 0 or not positive)

    rules = {"on_resume": on_resume, "derive": derive, "allows": allows, "expected": expected, "is_path": is_path}
    return dataclasses.field(default=default, metadata={**rules, "argument": argument})


def refuse(name: str, value: Any, expected: str) -> NoReturn:
    """Raise the `UserError` of a setting whose value cannot work."""
    raise UserError(f"--{name} {value if value != '' else repr('')}: expected {expected}")


@dataclasses.dataclass(frozen=True)
class Section:
    """Base of the configuration's sections: frozen dataclasses that check themselves when they are made.

    A component, such as an objective, is a subclass of its section with the settings of the component. `Config` checks
    each value, and makes one class of the components that are chosen in a section. The method `_check` of a class
    raises `UserError` if values do not fit together.
    """

    def __post_init__(self) -> None:
        """Call the checks of all components."""
        for part in reversed(type(self).__mro__):
            if "_check" in vars(part):
                part._check(self)  # type: ignore[attr-defined]


class Setting(NamedTuple):
    """A setting of a section or of a component.

    Attributes:
        section: Name of the section.
        owner: Flags that choose its component, such as "--objective cyclegan or cut"; empty if every run has it.
        part: Class that has the field.
        field: The field.
    """

    section: str
    owner: str
    part: type[Section]
    field: dataclasses.Field[Any]

    @property
    def derive(self) -> Any:
        """Function that returns the default which follows from other settings, or `None`."""
        return self.field.metadata["derive"]

    @property
    def value_type(self) -> tuple[Any, tuple[Any, ...], bool]:
        """(type of the value, allowed values or nothing if all are, whether `None` is allowed)."""
        hint, optional = hints(self.part)[self.field.name], False
        if typing.get_origin(hint) is typing.Union:
            hint, optional = typing.get_args(hint)[0], True
        choices = typing.get_args(hint)
        return type(choices[0]) if choices else hint, choices, optional

    @property
    def help(self) -> str:
        """The string below the field in the code of its class, or of the class that this one extends."""
        strings = ((part.__name__, _strings(part.__module__)) for part in self.part.__mro__)
        return next(found[name, self.field.name] for name, found in strings if (name, self.field.name) in found)

    def check(self, value: Any) -> Any:
        """Return a value for the setting, a path with the home folder instead of "~".

        Raises:
            UserError: It has the wrong type, lies outside of the limits, or is no path.
        """
        name, rules, (kind, choices, _) = self.field.name, self.field.metadata, self.value_type
        if type(value) is not kind and not (kind is float and type(value) is int):
            refuse(name, f"{value!r:.80}", TYPE_NAMES[kind])
        if choices and value not in choices:
            refuse(name, value, f"one of {', '.join(map(str, choices))}")
        if kind in (int, float) and not rules["allows"](value):
            refuse(name, value, f"a finite number, {rules['expected']}" if kind is float else rules["expected"])
        if type(value) is int and value > LARGEST:
            refuse(name, value, f"at most {LARGEST}")
        if value == "" != self.field.default:
            refuse(name, value, "a text that is not empty (is a shell variable not set?)")
        if rules["is_path"]:
            check_path(value, f"--{name}")
            return os.path.expanduser(value).rstrip(os.sep) or os.sep
        return value


@functools.cache
def _strings(module: str) -> dict[tuple[str, str], str]:
    """Return the strings below the fields of the classes in a module, by the names of class and field."""
    nodes = ast.parse(inspect.getsource(sys.modules[module])).body
    return {
        (node.name, ast.unparse(field.target)): " ".join(ast.literal_eval(text.value).split())
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for field, text in zip(node.body, node.body[1:])
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }
