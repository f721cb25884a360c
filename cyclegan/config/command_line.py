"""Command lines: the parser that all programs use, the flags of training and their presets."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Optional

import cyclegan
from cyclegan import terminal
from cyclegan.config import serialization
from cyclegan.config.config import (
    SECTIONS,
    SETTINGS_OF_A_START,
    Config,
    Setting,
    all_settings,
    components,
    section_classes,
    settings_of,
)
from cyclegan.config.fields import field_help, field_type
from cyclegan.errors import UserError

_PAPER = {
    **{"variant": "paper", "generator": "resnet_9blocks", "filters": 64, "image_size": 256, "epochs": 200},
    **{"lr": 2e-4, "beta_1": 0.5, "beta_2": 0.999, "epoch_size": "max"},
}
_CUT = {**_PAPER, "init": "xavier", "antialias": True, "crop_until_decay": True}
PRESETS: dict[str, dict[str, Any]] = {
    "paper": _PAPER,
    "cut": {**_CUT, "objective": "cut", "epochs": 400},
    "fastcut": {**_CUT, "objective": "fastcut", "epochs": 200, "decay_from": 150},
    "dclgan": {**_CUT, "objective": "dclgan", "adversarial": "hinge", "epochs": 400, "lr": 1e-4},
    "tutorial": {
        **{"variant": "keras", "generator": "resnet_9blocks", "filters": 64, "image_size": 256, "epochs": 200},
        **{"lr_schedule": "constant", "lr": 2e-4, "beta_1": 0.5, "beta_2": 0.9, "pool_size": 0},
    },
    "fast": {"image_size": 128, "generator": "resnet_6blocks", "filters": 32, "epochs": 100},
    "demo": {
        **{"dataset": "stripes", "epochs": 5, "plot_every": 1, "upsample": "resize"},
        "output_dir": os.path.join("runs", "demo"),
    },
}
WITHOUT_WEIGHTS = ("dropout", "init")  # settings of networks that fit any weights
NEGATIVE_RANGE = re.compile(r"-[\d.].*[:e]")  # LO:HI with a negative LO; also -1e9


class ArgumentParser(argparse.ArgumentParser):
    """A parser with the flag --version, whose errors are one line with the flag that an unknown one may mean."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)
        self.add_argument("--version", action="version", version=f"%(prog)s {cyclegan.__version__}")

    def error(self, message: str) -> NoReturn:
        """Print a message about the command line, and exit with code 2."""
        hint = ""
        if unknown := re.match(r"unrecognized arguments: (--[\w-]+)", message):
            flags = [flag for action in self._actions for flag in action.option_strings]
            similar = difflib.get_close_matches(unknown[1], flags, 1)
            hint = f"do you mean {similar[0]}? " if similar else ""
        self.exit(2, f"{self.prog}: {message} ({hint}--help lists the flags)\n")


def protect_ranges(argv: Optional[Sequence[str]]) -> list[str]:
    """Put a space before negative ranges, which argparse would take for flags; `None`: arguments of this process."""
    return [f" {text}" if NEGATIVE_RANGE.match(text) else text for text in (sys.argv[1:] if argv is None else argv)]


def size(text: str) -> tuple[int, int]:
    """Return (width, height) in pixels of "256" or "300x200"."""
    found = re.fullmatch(r"([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?", text, re.ASCII)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of pixels, or WIDTHxHEIGHT")
    return int(found[1]), int(found[2] or found[1])


def count(text: str) -> int:
    """Return a whole number of at least 1."""
    if not re.fullmatch(r"0*[1-9]\d{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def parse_args(argv: Optional[Sequence[str]] = None, **overrides: Any) -> Config:
    """Return the configuration that a command line of training asks for.

    Flags win over the file given by --config, which wins over --preset, which wins over the defaults. A default that
    follows from another setting follows from its winning value, even if the file has another default. Settings of the
    file or the preset that belong to components which the flags replace are left out.

    Args:
        argv: Arguments; `None` means `sys.argv[1:]`. Flags may be written with `-` or `_`.
        overrides: Settings that win over all flags.

    Raises:
        UserError: A value cannot work, or belongs to a component that is not chosen.
        SystemExit: A flag is unknown or has a wrong type (code 2), or --help was given (code 0).
    """
    given = {**parse_flags(argv), **overrides}
    below = settings_below(given)
    given.pop("config", None)
    available = settings_of(section_classes({**below, **given}))
    return Config.from_settings(**{**{name: below[name] for name in below if name in available}, **given})


def parse_flags(argv: Optional[Sequence[str]]) -> dict[str, Any]:
    """Return the values of the given flags by name, among them `config`; see `parse_args` for argument and errors."""
    argv = [
        re.sub(r"^--[\w-]+", lambda flag: f"--{flag[0][2:].replace('-', '_')}", text) for text in protect_ranges(argv)
    ]
    given = vars(_make_parser(all_settings()).parse_args(argv))
    if given.pop("help", False):
        _make_parser(settings_of(section_classes({**settings_below(given), **given}))).print_help()
        sys.exit(0)
    return given


def _make_parser(settings: Mapping[str, Setting]) -> ArgumentParser:
    """Return a parser of the flags of these settings."""
    parser = ArgumentParser(
        description="Train a CycleGAN between two unpaired sets of images, on every GPU there is.",
        epilog="The same command again resumes the run."
        f" CUDA_VISIBLE_DEVICES=0,1,2 {terminal.command('train')} uses three GPUs."
        " Other objectives, networks and schedules have flags of their own: add --help to their flag.",
        argument_default=argparse.SUPPRESS,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="store_true", help="show the flags of the chosen components, and exit")
    parser.add_argument("--config", metavar="FILE", help="use the settings in config.json of a saved run; flags win")
    groups = {section: parser.add_argument_group(section) for section in SECTIONS}
    for setting in settings.values():
        add_flag(groups[setting.section], setting)
    return parser


def parse_with_networks(
    argv: Optional[Sequence[str]], networks: Mapping[str, tuple[Any, str]], **overrides: Any
) -> Config:
    """Return the configuration of a command line with the settings of networks that exist.

    Args:
        argv: Arguments as for `parse_args`, which raises the other errors.
        networks: Settings by name, as (value, path that has it). They win over the preset and the file.
        overrides: Settings that win over all flags.

    Raises:
        UserError: Flags contradict the networks; the text names them.
    """
    typed = {**parse_flags(argv), **overrides}
    fixed = {name: each for name, each in networks.items() if not (name in WITHOUT_WEIGHTS and name in typed)}
    wrong = [
        f"--{name} {typed[name]}: expected {value}, as {path} has"
        for name, (value, path) in sorted(fixed.items())
        if typed.get(name, "auto") not in (value, "auto")
    ]
    if wrong:
        raise UserError(f"{'; '.join(wrong)}: drop the flag{'s'[: len(wrong) > 1]}")
    return parse_args(argv, **{**overrides, **{name: value for name, (value, _) in fixed.items()}})


def settings_below(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the preset and the file that flags name."""
    settings = dict(PRESETS.get(given.get("preset", ""), {}))
    if path := given.get("config"):
        saved = serialization.load(path).config.chosen_settings()
        settings.update({name: value for name, value in saved.items() if name not in SETTINGS_OF_A_START})
    if {"generator", "residual_blocks"} & set(given):  # both set the number of blocks: a new one replaces both
        settings.pop("generator", None)
    if {**settings, **given}.get("dataset") != PRESETS.get(given.get("preset", ""), {}).get("dataset"):
        settings.pop("output_dir", None)  # the preset's folder is for the preset's dataset
    return settings


def add_flag(group: Any, setting: Setting) -> None:
    """Add the flag of a setting to an argument group or parser."""
    field = setting.field
    kind, choices, _ = field_type(setting.part, field.name)
    argument: dict[str, Any] = {**field.metadata["argument"], "help": _help(setting)}
    if kind is bool:
        argument["action"] = "store_true"
    else:
        argument.setdefault("type", kind)
        argument["choices"] = choices or None
        if table := components(field.name):
            argument["metavar"] = f"{{{','.join(table)}}}"
    group.add_argument(f"--{field.name}", **argument)


def _help(setting: Setting) -> str:
    """Return the help of a flag, with the summaries of its components, and its default unless the text has it."""
    name, default = setting.field.name, setting.field.default
    text = field_help(setting.part, name)
    summaries: dict[str, list[str]] = {}
    for pattern, component in components(name).items():
        summaries.setdefault((component.__doc__ or "").split("\n")[0].rstrip("."), []).append(pattern)
    if summaries:
        text += ". " + "; ".join(f"{', '.join(patterns)}: {summary}" for summary, patterns in summaries.items())
    has_default = default is not None and default is not False and default != ""
    return f"{text} (default: {default})" if has_default and "(default: " not in text else text
