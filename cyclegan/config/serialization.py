"""config.json: the configuration of a run, its stack and its data."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, NamedTuple, Union

import cyclegan
from cyclegan import whole_file
from cyclegan.config.config import SECTIONS, Config
from cyclegan.config.fields import check_type, field_types
from cyclegan.errors import UserError

PARTS = ("config", "stack", "data")
VERSION = "version"  # of the package that wrote the file, for the reader
FACTS = ("imported", "has_checkpoint")  # older files lack some
STACK_KEYS = {"keras", "tensorflow"}


class SavedConfig(NamedTuple):
    """Content of a config.json.

    Attributes:
        config: The configuration.
        stack: Versions of TensorFlow and Keras, see `networks.compat.stack`.
        data: Training data, see `data.sources.Domains.fingerprint`; empty for an imported run that has not trained.
        imported: Whether the run began with imported networks.
        has_checkpoint: Whether the run has saved a checkpoint.
    """

    config: Config
    stack: dict[str, Any]
    data: dict[str, Any]
    imported: bool = False
    has_checkpoint: bool = False


def save(
    path: Union[str, os.PathLike[str]],
    config: Config,
    stack: dict[str, Any],
    data: dict[str, Any],
    imported: bool = False,
    has_checkpoint: bool = False,
) -> None:
    """Write a config.json, completely or not at all; see `SavedConfig` for the arguments."""
    parts: dict[str, Any] = {"config": dataclasses.asdict(config), "stack": stack, "data": data}
    parts[VERSION] = cyclegan.__version__
    parts.update(imported=imported or not data, has_checkpoint=has_checkpoint)
    whole_file.write(path, json.dumps(parts, indent=2) + "\n")


def load(path: Union[str, os.PathLike[str]]) -> SavedConfig:
    """Read a config.json.

    Raises:
        UserError: The file is missing, is no config.json, or has settings that this version does not know; the text names them.
    """
    try:
        saved = json.loads(whole_file.read_text(path))
        sections, stack, data = (saved[part] for part in PARTS)
        facts = {name: saved[name] for name in FACTS if name in saved}
        parts = (sections, stack, data, *sections.values())
        if (
            not all(isinstance(part, dict) for part in parts)
            or not all(isinstance(fact, bool) for fact in facts.values())
            or not all(isinstance(version, (int, str)) for version in stack.values())
        ):
            raise TypeError("a part of it has the wrong type")
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such file; expected the config.json of a run: restore it, or use another folder"
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{path} can't be read as the configuration of a run ({error!r}); expected the config.json that training wrote:"
            " restore it, or use a new folder"
        ) from error
    unknown = [*(set(saved) - {*PARTS, *FACTS, VERSION}), *(set(stack) - STACK_KEYS), *_unknown_settings(sections)]
    if unknown:
        raise UserError(
            f"{path}: unknown fields {', '.join(sorted(map(repr, unknown)))}: another version wrote it;"
            f" expected the fields of version {cyclegan.__version__}: use that version, or another --output_dir"
        )
    for problem in _wrong_types(sections):
        raise UserError(f"{path}: {problem}")
    try:
        return SavedConfig(Config.from_sections(sections), stack, data, **facts)
    except (UserError, OverflowError, ValueError) as error:
        raise UserError(f"{path}: {error}") from None


def _unknown_settings(sections: dict[str, dict[str, Any]]) -> list[str]:
    unknown = [name for name in sections if name not in SECTIONS]
    for name in set(sections) - set(unknown):
        unknown += set(sections[name]) - set(field_types(SECTIONS[name]))
    return unknown


def _wrong_types(sections: dict[str, dict[str, Any]]) -> list[str]:
    checked = (
        check_type(name, value, field_types(SECTIONS[section])[name])
        for section, values in sections.items()
        for name, value in values.items()
    )
    return [problem for problem in checked if problem]
