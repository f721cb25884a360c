"""Settings that a resumed run changes."""

from __future__ import annotations

import dataclasses

from cyclegan.config.config import SECTIONS, Config
from cyclegan.config.data import AUTO
from cyclegan.config.fields import OnResume
from cyclegan.config.flags_without_effect import find_unused


def with_measured_ranges(saved: Config, config: Config) -> Config:
    """Return the configuration with the value ranges that the run so far has measured instead of "auto"."""
    names = [name for name in ("value_range_x", "value_range_y") if getattr(config.data, name) == AUTO]
    measured = {name: getattr(saved.data, name) for name in names}
    return config.replace(**{name: text for name, text in measured.items() if text})


def changed_settings(saved: Config, config: Config, on_resume: OnResume) -> list[str]:
    """Describe the settings of one kind that differ, ignoring settings without effect.

    Args:
        saved: Configuration of the run so far.
        config: Configuration from here on.
        on_resume: The kind of settings.

    Returns:
        One text per setting: "lr 0.1 -> 0.2".
    """
    before, after, unused = saved.settings(), config.settings(), find_unused(config)
    names = (
        field.name
        for section in SECTIONS.values()
        for field in dataclasses.fields(section)
        if field.metadata["on_resume"] is on_resume and field.name not in unused
    )
    return [f"{name} {before[name]!r} -> {after[name]!r}" for name in names if before[name] != after[name]]
