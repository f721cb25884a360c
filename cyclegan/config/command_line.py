"""Command lines: the parser that all programs use, the flags of training and their presets."""

from __future__ import annotations

import argparse
import difflib
import functools
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, Optional

import cyclegan
from cyclegan import terminal
from cyclegan.config import serialization
from cyclegan.config.config import (
    SECTIONS,
    Config,
    all_settings,
    components,
    section_classes,
    settings_of,
)
from cyclegan.config.fields import Setting
from cyclegan.errors import UserError, check_path

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
# Flags of pytorch-CycleGAN-and-pix2pix and CUT, and what replaces them here; docs/method.md tells the differences.
REFERENCE_FLAGS = {
    **{"dataroot": "--dataset", "name": "--output_dir", "checkpoints_dir": "--output_dir"},
    **{"gpu_ids": "CUDA_VISIBLE_DEVICES=0,1 before the command", "model": "--objective", "CUT_mode": "--objective"},
    **{"netG": "--generator", "netD": "--discriminator", "n_layers_D": "--discriminator_layers"},
    **{"input_nc": "--channels_x", "output_nc": "--channels_y", "ngf": "--filters", "ndf": "--filters"},
    **{"init_type": "--init", "init_gain": "always 0.02", "normG": "--norm, for both", "normD": "--norm, for both"},
    **dict.fromkeys(("no_dropout", "no_antialias", "no_antialias_up"), "the default"),
    **{"crop_size": "--image_size", "gan_mode": "--adversarial", "lambda_A": "--lambda_cycle"},
    **{"lambda_B": "--lambda_cycle", "beta1": "--beta_1", "beta2": "--beta_2", "lr_policy": "--lr_schedule"},
    **{"lr_decay_iters": "no schedule has steps", "lambda_GAN": "always 1"},
    **{"lambda_NCE": "--lambda_nce with --objective cut", "nce_idt": "--objective cut has it, fastcut not"},
    **{"flip_equivariance": "--objective fastcut has it", "nce_layers": "always 0,4,8,12,16", "nce_T": "always 0.07"},
    **{"num_patches": "always 256", "netF": "always mlp_sample", "netF_nc": "always 256"},
    **dict.fromkeys(("n_epochs", "niter"), "--epochs, which includes the decay"),
    **dict.fromkeys(("n_epochs_decay", "niter_decay"), "--decay_from, the epochs before the decay"),
    **dict.fromkeys(("continue_train", "epoch_count", "load_iter"), "the same command again"),
    **{"pretrained_name": "--init_from", "evaluation_freq": "--evaluate_every", "suffix": "--output_dir"},
    **{"use_wandb": "--wandb PROJECT", "wandb_project_name": "--wandb"},
    **{"save_epoch_freq": "--checkpoint_every", "save_latest_freq": "--checkpoint_minutes"},
    **{"print_freq": "--log_every", "display_freq": "--plot_every", "epoch": "--checkpoint"},
    **dict.fromkeys(("serial_batches", "num_threads", "dataset_mode", "phase", "save_by_iter"), "not needed"),
    **dict.fromkeys(("display_id", "display_winsize", "display_ncols", "display_server"), "not needed"),
    **dict.fromkeys(("display_env", "display_port", "update_html_freq", "no_html", "easy_label"), "not needed"),
    "direction": "both directions are trained",
}
FOREIGN_FLAGS = {
    **REFERENCE_FLAGS,
    **{"resume": "the same command again", "data_root": "--dataset", "learning_rate": "--lr"},
    **{
        "cut": "--objective cut",
        "fineSize": "--image_size",
        "loadSize": "--load_size",
        "which_direction": "both directions are trained",
    },
}
WITHOUT_WEIGHTS = ("dropout", "init")  # settings of networks that fit any weights
# Flags whose values are URIs, KIND:FILE, or may be empty.
WITHOUT_PATHS = ("--mlflow", "--features", "--evaluate_features", "--diffaugment")
MESSAGES = {  # ends of messages of argparse, and the same in the style of `refuse`
    r": invalid int value: (.*)": r" \2: expected a whole number",
    r": invalid float value: (.*)": r" \2: expected a number",
    r": invalid choice: (.*) \(choose from (.*)\)": r" \2: expected one of \3",
    r": ('.*': expected .*)": r" \2",
    r"(.*)": r"\2",
}
LISTED = 12  # settings at most that a message lists
NEGATIVE_RANGE = re.compile(r"-[\d.].*[:e]")  # LO:HI with a negative LO; also -1e9


class ArgumentParser(argparse.ArgumentParser):
    """A parser with the flag --version, which takes `-` and `_` in flags, and reports all wrong ones in one line."""

    def __init__(self, hints: Mapping[str, str] = MappingProxyType({}), **settings: Any) -> None:
        self._hints = hints  # what replaces flags of other programs, as in `REFERENCE_FLAGS`
        super().__init__(allow_abbrev=False, **settings)
        self.add_argument("--version", action="version", version=f"%(prog)s {cyclegan.__version__}")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, by default those of this process.

        Raises:
            UserError: No program can use a path.
            SystemExit: A flag is unknown or has a wrong type (code 2), or --help or --version was given (code 0).
        """
        argv = [_normalized(text) for text in (sys.argv[1:] if args is None else args)]
        for before, text in zip(["", *argv], argv):
            flag, has_value, value = text.partition("=") if text.startswith("--") else (before, "=", text)
            if has_value and flag not in WITHOUT_PATHS:
                check_path(value, flag if flag.startswith("--") else "")
        given, unknown = self.parse_known_intermixed_args(argv, namespace)
        flags = self._option_string_actions
        valued = {text: flag for flag, text in zip(argv, argv[1:]) if flag in flags and flags[flag].nargs == 0}
        wrong = [
            f"{text} after {valued[text]}, which takes no value"
            if text in valued and not text.startswith("-")
            else explain(text, flags, self._hints)
            for text, before in zip(unknown, ["", *unknown])
            if text.startswith("--") or not before.startswith("-") or "=" in before  # no value of an unknown flag
        ]
        if wrong:
            self.error(f"unknown arguments: {', '.join(wrong)}")
        return given

    def error(self, message: str) -> NoReturn:
        """Print a message about the command line in the style of `refuse`, and exit with code 2."""
        for pattern, plain in MESSAGES.items():
            message = re.sub(rf"argument (--\w+){pattern}", rf"\1{plain}", message)
        self.exit(2, f"{self.prog}: {message}; --help lists the flags\n")


def explain(text: str, flags: Collection[str], hints: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return an unknown argument with its meaning by `hints` or `FOREIGN_FLAGS`, the nearest flag, a run or dataset."""
    flag = text.split("=")[0].strip()
    if flag.startswith("-") and not flag.startswith("--"):
        return f"{flag} (flags begin with --)"
    if not flag.startswith("-"):
        meant = "--output_dir" if os.path.isfile(os.path.join(text, "config.json")) else "--dataset"
        return f"{text} (do you mean {meant} {text}?)" if meant in flags else text
    meant = hints.get(flag[2:], "") or FOREIGN_FLAGS.get(flag[2:], "")
    if meant and (not meant.startswith("--") or meant.replace(",", "").split()[0] in flags):
        return f"{flag} (here: {meant})"
    names = [name[2:] for name in flags]
    name = flag[2:].lower()
    similar = difflib.get_close_matches(name, names, 1, 0.7) or [each for each in names if each.startswith(f"{name}_")]
    return f"{flag} (do you mean --{similar[0]}?)" if similar else flag


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise `UserError` if names of arguments from Python are unknown, with what they may mean; see `explain`."""
    flags = {f"--{name}": name for name in known}
    if unknown := [explain(f"--{name}", flags).replace("--", "") for name in given if f"--{name}" not in flags]:
        expected = ", ".join(sorted(flags.values())) if len(flags) <= LISTED else "those of docs/api.md"
        hint = "" if all(" (" in text for text in unknown) else f"; expected {expected}"
        raise UserError(f"unknown settings: {', '.join(unknown)}{hint}")


def _normalized(text: str) -> str:
    """Return an argument with `_` in its flag, and a space before a negative range, which argparse takes for a flag."""
    if NEGATIVE_RANGE.match(text):
        return f" {text}"
    return re.sub(r"^--[\w-]+", lambda flag: f"--{flag[0][2:].replace('-', '_')}", text)


def size(text: str) -> tuple[int, int]:
    """Return (width, height) in pixels of "256" or "300x200"."""
    found = re.fullmatch(r"([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?", text, re.ASCII)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of pixels, or WIDTHxHEIGHT")
    return int(found[1]), int(found[2] or found[1])


def direction_name(text: str) -> str:
    """Return a direction; name the one that a name of pytorch-CycleGAN-and-pix2pix stands for."""
    if meant := {"AtoB": "x2y", "BtoA": "y2x", "A2B": "x2y", "B2A": "y2x"}.get(text):
        raise argparse.ArgumentTypeError(f"{text} is {meant} here")
    return text


def count(text: str) -> int:
    """Return a whole number of at least 1."""
    if not re.fullmatch(r"0*[1-9]\d{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def parse_args(argv: Optional[Sequence[str]] = None) -> Config:
    """Return the configuration that a command line of training asks for, see `parse_flags` and `configure`."""
    return configure(parse_flags(argv))


def parse_flags(argv: Optional[Sequence[str]] = None) -> dict[str, Any]:
    """Return the values of the given flags of training by name, among them `config`; --help ends the program."""
    hints = dict.fromkeys(("gpu", "gpus"), REFERENCE_FLAGS["gpu_ids"])
    parser = ArgumentParser(hints, argument_default=argparse.SUPPRESS, add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    add_flags(parser, all_settings())
    given = vars(parser.parse_args(argv))
    if given.pop("help", False):
        parser = ArgumentParser(
            usage="%(prog)s [FLAG ...]",
            description="Train a CycleGAN between two unpaired sets of images, on every GPU there is.",
            epilog="The same command again resumes the run."
            f" CUDA_VISIBLE_DEVICES=0,1,2 {terminal.command('train')} uses three GPUs."
            " Other objectives, networks and schedules have flags of their own: add --help to their flag.",
        )
        add_flags(parser, settings_of(section_classes({**settings_below(given), **given})))
        parser.print_help()
        sys.exit(0)
    return given


def configure(
    given: Mapping[str, Any],
    networks: Optional[Mapping[str, tuple[Any, str]]] = None,
    own: Optional[Mapping[str, Any]] = None,
) -> Config:
    """Return the configuration that the given flags of training ask for, see `settings_below`.

    A default that follows from another setting follows from its winning value, even if the file has another default.
    Settings of the file, the preset and the own run that belong to components which flags replace are left out.

    Args:
        given: Values of the flags by name, from `parse_flags`.
        networks: Settings of networks that exist by name, as (value, path that has it). They win over `settings_below`.
        own: Settings of the run that resumes.

    Raises:
        UserError: A value cannot work, belongs to a component that is not chosen, or contradicts the networks.
    """
    fixed = {name: each for name, each in (networks or {}).items() if not (name in WITHOUT_WEIGHTS and name in given)}
    wrong = [
        f"--{name} {given[name]}: expected {value}, as {path} has"
        for name, (value, path) in sorted(fixed.items())
        if given.get(name, "auto") not in (value, "auto")
    ]
    if wrong:
        raise UserError(f"{'; '.join(wrong)}: drop the flag{'s'[: len(wrong) > 1]}")
    settings = {**given, **{name: value for name, (value, _) in fixed.items()}}
    below = settings_below(settings, own)
    settings.pop("config", None)
    return Config.from_settings(below, **settings)


def settings_below(given: Mapping[str, Any], own: Optional[Mapping[str, Any]] = None) -> dict[str, Any]:
    """Return the settings over which flags win: the run given by --config, then --preset, then those of the own run.

    The preset of the own run is a part of it, and does not count again.
    """
    own, preset = own or {}, given.get("preset", "")
    settings = {} if preset == own.get("preset") else dict(PRESETS.get(preset, {}))
    if path := given.get("config"):
        file = os.path.join(path, "config.json") if os.path.isdir(path) else path
        settings.update(serialization.load(file).config.chosen_settings())
    if {**settings, **given}.get("dataset") != PRESETS.get(preset, {}).get("dataset"):
        settings.pop("output_dir", None)  # the preset's folder is for the preset's dataset
    settings = {**own, **settings}
    if {"generator", "residual_blocks"} & set(given):  # both set the number of blocks: a new one replaces both
        settings.pop("generator", None)
    return settings


def add_flags(parser: argparse.ArgumentParser, settings: Mapping[str, Setting]) -> None:
    """Add --config and the flags of settings to a parser, in a group for each section."""
    text = "use the settings of a saved run, given by its folder or its config.json; flags win"
    parser.add_argument("--config", metavar="FILE", help=text)
    groups = {section: parser.add_argument_group(section) for section in SECTIONS}
    for setting in settings.values():
        add_flag(groups[setting.section], setting)


def add_flag(group: Any, setting: Setting) -> None:
    """Add the flag of a setting to an argument group or parser."""
    field = setting.field
    kind, choices, optional = setting.value_type
    argument: dict[str, Any] = {**field.metadata["argument"], "help": _help(setting)}
    if kind is bool:
        argument["action"] = "store_true"
        for value in ("true", "false"):
            name, hidden = f"--{field.name}={value}", argparse.SUPPRESS
            group.add_argument(name, action=f"store_{value}", dest=field.name, default=hidden, help=hidden)
    else:
        argument.setdefault("type", _or_auto(kind) if optional and kind in (int, float) and not choices else kind)
        argument["choices"] = choices or None
        if table := components(field.name):
            argument["metavar"] = f"{{{','.join(table)}}}"
    group.add_argument(f"--{field.name}", **argument)


def _or_auto(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type of arguments that also reads "auto", the default, which a resumed run may take back."""

    def read(text: str) -> Any:
        return None if text == "auto" else kind(text)

    read.__name__ = kind.__name__
    return read


@functools.cache
def _help(setting: Setting) -> str:
    """Return the help of a flag, with the summaries of its components, and its default unless the text has it."""
    name, default, text = setting.field.name, setting.field.default, setting.help
    summaries: dict[str, list[str]] = {}
    for pattern, component in components(name).items():
        summaries.setdefault((component.__doc__ or "").split("\n")[0].rstrip("."), []).append(pattern)
    if name == "preset":
        text += "".join(f"; {preset}: {flags_of(settings)}" for preset, settings in PRESETS.items())
    if summaries:
        text += ". " + "; ".join(f"{', '.join(patterns)}: {summary}" for summary, patterns in summaries.items())
    has_default = default is not None and default is not False and default != ""
    return f"{text} (default: {default})" if has_default and "(default: " not in text else text


def flags_of(settings: Mapping[str, Any]) -> str:
    """Return settings as flags, such as "--filters 64 --antialias"."""
    return " ".join(f"--{name}" if value is True else f"--{name} {value}" for name, value in settings.items())
