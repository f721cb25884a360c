"""The command line of a dataclass whose fields' metadata says all about their flags, and types of scripts' flags; no TensorFlow."""

import argparse
import contextlib
import dataclasses
import re


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (--help lists the flags)\n")


class _Help(argparse.HelpFormatter):
    """Says each default once: the text's own where it depends on other flags, the value otherwise."""

    def __init__(self, *args, defaults, **kwargs):
        super().__init__(*args, **kwargs)
        self._defaults = defaults

    def _get_help_string(self, action):
        default = self._defaults.get(action.dest)
        known = default is not None and default is not False and default != ""
        return f"{action.help} (default: {default})" if known else action.help


def parse(config, argv=None):
    """The flags that were given, a dict of values by name; and `config`, a file's name, if --config was.

    Args:
        config: the dataclass, see `config.Config`.
        argv: list of strings; `None` means `sys.argv[1:]`.

    Raises:
        SystemExit: an unknown flag or a wrong type (code 2), or --help (code 0).
    """
    fields = dataclasses.fields(config)
    defaults = {field.name: field.default for field in fields}
    parser = _Parser(
        prog="train.py",
        description="Train a CycleGAN between two unpaired sets of pictures, on every GPU there is.",
        epilog="The same command again resumes the run. CUDA_VISIBLE_DEVICES=0,1,2 python train.py uses three GPUs.",
        formatter_class=lambda prog: _Help(prog, defaults=defaults),
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="take the settings of a saved run, its config.json; flags win")
    groups = {}
    for field in fields:
        group = field.metadata["group"]
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        names = [f"--{field.name}"]
        if "_" in field.name:
            names.append(f"--{field.name.replace('_', '-')}")
        argument = dict(field.metadata["argument"], help=field.metadata["help"])
        if field.type is bool:
            argument["action"] = "store_true"
        else:
            argument.setdefault("type", field.type)
        groups[group].add_argument(*names, **argument)
    return vars(parser.parse_args(argv))


def size(text):
    """(width, height) in pixels, of "256" or "300x200"; for a script's parser, as `count`."""
    found = re.fullmatch(r"([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?", text, re.ASCII)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of pixels, or WIDTHxHEIGHT")
    return int(found[1]), int(found[2] or found[1])


def count(text):
    """A whole number of at least 1."""
    if not re.fullmatch(r"0*[1-9]\d{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def count_or_auto(text):
    """A whole number of at least 1; `None` of "auto"."""
    if text == "auto":
        return None
    with contextlib.suppress(argparse.ArgumentTypeError):
        return count(text)
    raise argparse.ArgumentTypeError(f"{text!r}: expected auto, or a whole number of at least 1")
