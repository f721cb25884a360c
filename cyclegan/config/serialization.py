"""config.json: the configuration of a run, its stack and its data; and what a resumed run may change."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional, Union

import cyclegan
from cyclegan import whole_file
from cyclegan.config.config import Config, all_settings
from cyclegan.config.data import AUTO
from cyclegan.config.fields import FIXED, FREE
from cyclegan.errors import UserError, counted

FORMAT = 2  # of the file. Format 1 had no number, and also held the settings of components that were not chosen

RELIABLE = 20  # held-out images; metrics on fewer depend on chance, so that no epoch is the best by them


def few_held_out(data: Mapping[str, Any]) -> Optional[str]:
    """Describe on how few images the errors of a run rest, given `SavedConfig.data`; `None` for `RELIABLE` or more."""
    counts = [int(f"{data[split]}".split(" ")[0]) for split in ("testA", "testB") if split in data]
    if not counts or min(counts) >= RELIABLE:
        return None
    return f"errors and scores rest on {counted(min(counts), 'held-out image')}: below {RELIABLE}, no epoch is the best"


class SavedConfig(NamedTuple):
    """Content of a config.json.

    Attributes:
        config: The configuration.
        stack: Versions of TensorFlow and Keras, see `networks.compat.stack`.
        data: Training data, see `data.sources.Domains.fingerprint`; empty for an imported run that has not trained.
        imported: Whether the run began with imported networks.
    """

    config: Config
    stack: dict[str, Any]
    data: dict[str, Any]
    imported: bool = False


def save(
    path: Union[str, os.PathLike[str]],
    config: Config,
    stack: dict[str, Any],
    data: dict[str, Any],
    imported: bool = False,
) -> None:
    """Write a config.json, completely or not at all; see `SavedConfig` for the arguments."""
    saved = SavedConfig(config, stack, data, imported or not data)
    content = {
        "format": FORMAT,
        "version": cyclegan.__version__,
        **saved._asdict(),
        "config": dataclasses.asdict(config),
    }
    whole_file.write(path, json.dumps(content, indent=2) + "\n")


def with_absolute_paths(config: Config) -> Config:
    """Return a config whose data is found from any folder."""
    paths = {"dataset": config.data.folder, "data_dir": config.data.data_dir}
    return config.replace(**{name: os.path.abspath(path) for name, path in paths.items() if path})


def load(path: Union[str, os.PathLike[str]]) -> SavedConfig:
    """Read a config.json.

    Raises:
        UserError: The file is missing, is no config.json, another version wrote it, or a setting cannot work.
    """
    try:
        saved = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        if (number := saved.get("format", 1)) != FORMAT:
            raise UserError(
                f"version {saved.get('version', 'unknown')!s:.20} wrote it in format {number!r:.20}; expected format"
                f" {FORMAT} of version {cyclegan.__version__}: use the version that wrote it, or another --output_dir"
            )
        settings = {name: value for section in saved["config"].values() for name, value in section.items()}
        others = (saved[name] for name in SavedConfig._fields[1:])
        return SavedConfig(Config.from_settings(**settings), *others)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; expected the config.json of a run, as in runs/horse2zebra") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (OSError, ArithmeticError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        own = error if isinstance(error, TypeError) else getattr(error, "strerror", None)
        reason = own or "damaged, cut, or another file"
        raise UserError(
            f"{path} can't be read as the configuration of a run ({reason}); expected the config.json that"
            f" version {cyclegan.__version__} wrote: restore it, or use another run"
        ) from error


def with_measured_ranges(saved: Config, config: Config) -> Config:
    """Return the configuration with the value ranges that the run so far has measured instead of "auto"."""
    names = [name for name in ("value_range_x", "value_range_y") if getattr(config.data, name) == AUTO]
    measured = {name: getattr(saved.data, name) for name in names}
    return config.replace(**{name: text for name, text in measured.items() if text})


def settings_of_training(config: Config) -> dict[str, Any]:
    """Return the settings that change the result of a run, by name."""
    return {
        name: value
        for name, value in config.settings().items()
        if all_settings()[name].field.metadata["on_resume"] != FREE or name == "epochs"
    }


def changed_settings(saved: Config, config: Config, on_resume: str) -> list[str]:
    """Return a text such as "lr 0.1 -> 0.2" for each setting of a kind that differs and that both configurations have.

    Settings that follow from others, which nobody typed, are left out; the dataset stands for fixed ones, if alone.
    """
    before, after = saved.settings(), config.settings()
    names = [name for name in before if name in after and before[name] != after[name]]
    differing = [name for name in names if all_settings()[name].field.metadata["on_resume"] == on_resume]
    chosen = saved.chosen_settings().keys() | config.chosen_settings().keys()
    typed = [name for name in differing if name in chosen]
    if on_resume == FIXED and differing and not typed:
        typed = ["dataset"] if "dataset" in names else differing
    return [f"{name} {before[name]!r} -> {after[name]!r}" for name in typed]
