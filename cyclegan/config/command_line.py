"""The command line of training, made from the configuration's sections."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from cyclegan import terminal
from cyclegan.config import defaults, serialization
from cyclegan.config.argument_parser import ArgumentParser
from cyclegan.config.argument_types import protect_ranges
from cyclegan.config.config import SECTIONS, SETTINGS_OF_A_START, Config
from cyclegan.config.fields import Section, field_types
from cyclegan.config.flags_without_effect import NEEDS, find_unused
from cyclegan.config.presets import PRESETS
from cyclegan.errors import UserError


def parse_args(argv: Optional[Sequence[str]] = None, **overrides: Any) -> Config:
    """Return the configuration that a command line asks for.

    Flags win over the file given by --config, which wins over --preset, which wins over the defaults. A default that follows
    from another setting follows from its winning value, even if the file has another default. Settings of the file that have no
    effect with the flags are left out.

    Args:
        argv: Arguments; `None` means `sys.argv[1:]`. Flags may be written with `-` or `_`.
        overrides: Settings that win over all flags.

    Raises:
        UserError: A value cannot work, or a flag has no effect with the others.
        SystemExit: A flag is unknown or has a wrong type (code 2), or --help was given (code 0).
    """
    typed = parse_flags(argv)
    file = typed.pop("config", None)
    given = {**typed, **overrides}
    preset = PRESETS.get(given.get("preset", ""), {})
    settings = _without_derived(preset)
    if file:
        saved = serialization.load(file).config.settings()
        settings.update(_without_derived({name: saved[name] for name in saved if name not in SETTINGS_OF_A_START}))
    if {"generator", "residual_blocks"} & set(given):  # both set the number of blocks: a new one replaces both
        settings = {name: value for name, value in settings.items() if name not in ("generator", "residual_blocks")}
    settings.update(given)
    if settings.get("dataset") != preset.get("dataset") and "output_dir" not in given:
        settings.pop("output_dir", None)  # the preset's folder is for the preset's dataset
    config = Config.from_settings(**settings)
    unused = find_unused(config)
    _refuse_flags_without_effect(config, unused, typed)
    return Config.from_settings(**{name: value for name, value in settings.items() if name not in unused})


def parse_flags(argv: Optional[Sequence[str]]) -> dict[str, Any]:
    """Return the values of the given flags by name, among them `config`, the file given by --config.

    Args:
        argv: Arguments; `None` means `sys.argv[1:]`.

    Raises:
        SystemExit: As in `parse_args`.
    """
    parser = ArgumentParser(
        description="Train a CycleGAN between two unpaired sets of images, on every GPU there is.",
        epilog="The same command again resumes the run."
        f" CUDA_VISIBLE_DEVICES=0,1,2 {terminal.command('train')} uses three GPUs.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--config", metavar="FILE", help="use the settings in config.json of a saved run; flags win")
    for section in SECTIONS.values():
        group = parser.add_argument_group(section.TITLE)
        for field in dataclasses.fields(section):
            add_flag(group, section, field)
    return vars(parser.parse_args(protect_ranges(argv)))


def _without_derived(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Drop settings that equal the default derived from the others."""
    whole = Config.from_settings(**settings)
    kept = dict(settings)
    for name in (name for name in defaults.DERIVED if name in settings):
        rest = {other: value for other, value in kept.items() if other != name}
        with contextlib.suppress(UserError):  # the rest may not work without it
            kept = rest if Config.from_settings(**rest) == whole else kept
    return kept


def _refuse_flags_without_effect(config: Config, unused: set[str], typed: Mapping[str, Any]) -> None:
    """Refuse flags that have no effect with the others."""
    if not config.data.uses_image_size and {"generator", "residual_blocks"} & set(typed):
        unused = unused | {"image_size"}  # which only sets the number of blocks
    for name in (name for name in NEEDS if name in unused & set(typed)):
        if typed[name] not in ("auto", "", 0):  # which ask for nothing
            value = "" if typed[name] is True else f" {typed[name]}"
            raise UserError(
                f"--{name}{value}: has no effect here, because it needs {NEEDS[name][0]}; add that, or drop the flag"
            )


def add_flag(group: Any, section: type[Section], field: dataclasses.Field[Any]) -> None:
    """Add the flag of a field of a section to an argument group or parser."""
    kind = field_types(section)[field.name]
    argument: dict[str, Any] = dict(field.metadata["argument"], help=_help(field))
    if kind.base is bool:
        argument["action"] = "store_true"
    else:
        argument.setdefault("type", kind.base)
        if kind.choices:
            argument["choices"] = kind.choices
    names = [f"--{field.name}"]
    if "_" in field.name:
        names.append(f"--{field.name.replace('_', '-')}")
    group.add_argument(*names, **argument)


def _help(field: dataclasses.Field[Any]) -> str:
    """Return the help text with the default, once."""
    text: str = field.metadata["help"]
    no_default = field.default is None or field.default is False or field.default == ""
    return text if no_default or "(default: " in text else f"{text} (default: {field.default})"
