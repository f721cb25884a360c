"""The whole configuration of a run: frozen sections, one per concern, with the components that the settings choose."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import importlib
import typing
from collections.abc import Mapping
from typing import Any, cast

from cyclegan.config import sections
from cyclegan.config.data import EMBEDDED, DataConfig
from cyclegan.config.fields import Section, Setting, refuse
from cyclegan.errors import UserError

# Settings that choose a component of their section, each with its table: the class of a component by the pattern of the
# setting's value. If two components of a section change a default of the section, the first one wins. A text names the
# table, as "module:name", because the modules of the components import the sections.
COMPONENTS = {
    "generator": "cyclegan.networks.generators:GENERATORS",
    "discriminator": "cyclegan.networks.discriminators:DISCRIMINATORS",
    "objective": "cyclegan.methods:OBJECTIVES",
    "adversarial": "cyclegan.methods.losses:ADVERSARIAL_LOSSES",
    "lr_schedule": "cyclegan.training.schedule:SCHEDULES",
    "optimizer": "cyclegan.training.optimizers:OPTIMIZERS",
}
# Settings that may differ between workers, such as paths on their machines and how much they print.
SETTINGS_OF_A_WORKER = {
    *("dataset", "data_dir", "output_dir", "cache", "cache_gb", "preset", "verbose", "no_peak", "start_timeout"),
}
# Settings that later starts and other runs do not take from a saved configuration.
SETTINGS_OF_A_START = {"output_dir", "clear_output_dir", "profile", "verbose", "wandb", "mlflow"}


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a training run, checked.

    Make one with `from_settings` or `command_line.parse_args`: they add the defaults that follow from other settings.

    Raises:
        UserError: Values of different sections do not fit together.
    """

    data: DataConfig
    networks: sections.NetworkConfig
    objective: sections.ObjectiveConfig
    optimization: sections.OptimizationConfig
    distribution: sections.DistributionConfig
    performance: sections.PerformanceConfig
    evaluation: sections.EvaluationConfig
    run: sections.RunConfig

    @classmethod
    def from_settings(cls, below: Mapping[str, Any] | None = None, /, **given: Any) -> Config:
        """Return the configuration with these settings, and the defaults for all others.

        Args:
            below: Values by name of the setting, of which those of components that are not chosen are left out.
            given: Values that win over `below`; `None` asks for the default.

        Raises:
            UserError: A value can't work, or a given one belongs to a component that is not chosen.
        """
        both = {name: value for name, value in {**(below or {}), **given}.items() if value is not None}
        classes = section_classes(both)
        known = settings_of(classes)
        for name in given.keys() & both.keys() - known.keys():
            if name not in all_settings():
                raise TypeError(f"{name}: no such setting")
            raise UserError(f"--{name} belongs to {all_settings()[name].owner}")
        settings = {name: setting.field.default for name, setting in known.items() if not setting.derive}
        settings.update(EMBEDDED.get(str(both.get("dataset", DataConfig.dataset)), {}))
        for name, setting in known.items():  # before others are derived from it
            if name in both and not (setting.derive and both[name] == "auto"):
                settings[name] = setting.check(both[name])
        for name, setting in known.items():
            if name not in settings:
                settings[name] = setting.derive(settings)
        if settings["generator"] == "auto":
            settings["generator"] = f"resnet_{settings['residual_blocks']}blocks"
        values: dict[str, Any] = {
            section: part(**{name: settings[name] for name, each in known.items() if each.section == section})
            for section, part in classes.items()
        }
        return cls(**values)

    def replace(self, **settings: Any) -> Config:
        """Return a copy in which the given settings have new values; settings of replaced components are left out."""
        return self.from_settings(self.settings(), **settings)

    def settings(self) -> dict[str, Any]:
        """Return all settings by name, without the sections."""
        return {name: value for section in dataclasses.asdict(self).values() for name, value in section.items()}

    def chosen_settings(self) -> dict[str, Any]:
        """Return the settings without those that follow from others, and without those of a single start."""
        settings = self.settings()
        known = settings_of({name: type(getattr(self, name)) for name in SECTIONS})
        derive = {name: setting.derive for name, setting in known.items() if setting.derive}
        follow = {name for name in derive if settings[name] == derive[name](settings)}
        return {name: value for name, value in settings.items() if name not in follow | SETTINGS_OF_A_START}

    def unusual_settings(self) -> dict[str, Any]:
        """Return the chosen settings that differ from the defaults."""
        usual = Config.from_settings().settings()
        chosen, known = self.chosen_settings().items(), all_settings()
        return {n: value for n, value in chosen if value not in (known[n].field.default, usual.get(n))}

    @property
    def uses_pairs(self) -> bool:
        """Whether training uses pairs of images of the same name."""
        return self.data.has_pairs and getattr(self.objective, "lambda_paired", 0.0) > 0

    @property
    def shared_settings(self) -> dict[str, Any]:
        """The settings that all workers of a run must share."""
        return {name: value for name, value in self.settings().items() if name not in SETTINGS_OF_A_WORKER}

    def __post_init__(self) -> None:
        """Check what concerns several sections."""
        networks, performance = self.networks, self.performance
        for name in ("image_size", "image_width"):
            side, multiple = getattr(self.data, name), networks.multiple
            if side % multiple:
                raise UserError(
                    f"{networks.generator} halves images of {side} pixels {networks.halvings} times; expected a"
                    f" multiple of {multiple}: use --{name} {side + -side % multiple}, or another --generator"
                )
        networks.check_side(min(self.data.image_shape))
        self._check_objective()
        if performance.xla == "on" and networks.norm == "batch":
            raise UserError("--norm batch: --xla on cannot sum its statistics over the replicas; expected --xla off")
        if performance.recompute and networks.norm == "batch":
            raise UserError("--recompute: --norm batch would count its statistics twice; expected --norm instance")
        if performance.recompute and networks.dropout:
            dropout = f"--dropout {networks.dropout}"
            raise UserError(f"--recompute: {dropout} would drop other values the second time; expected --dropout 0")
        if performance.steps_per_call and self.run.log_every % performance.steps_per_call:
            expected = f"a divisor of --log_every, which is {self.run.log_every}"
            refuse("steps_per_call", performance.steps_per_call, expected)

    def _check_objective(self) -> None:
        objective, networks = self.objective, self.networks
        same = f"--channels_x {self.data.channels_x} equal to --channels_y {self.data.channels_y}"
        identity, paired = (getattr(objective, f"lambda_{name}", 0.0) for name in ("identity", "paired"))
        if paired and not self.data.paired_names:
            refuse("lambda_paired", paired, "--paired_names, too")
        compares = f"--objective {objective.objective}: compares features"
        if objective.compares_features and not self.data.same_channels:
            raise UserError(f"{compares} of both domains; expected {same}")
        if identity and not self.data.same_channels:
            raise UserError(f"--lambda_identity {identity}: compares images of both domains; expected {same}")
        if objective.compares_features and not hasattr(networks, "residual_blocks"):
            raise UserError(
                f"{compares} of a ResNet; expected --generator resnet_9blocks or the like, not {networks.generator}"
            )
        if objective.has_penalty and networks.norm == "batch" and networks.discriminator_norm == "same":
            penalty = f"--r1 {objective.r1}" if objective.r1 else f"--adversarial {objective.adversarial}"
            raise UserError(
                f"--norm batch: {penalty} needs samples that do not influence each other; expected --norm instance or"
                " none, or --discriminator_norm spectral"
            )


SECTIONS: dict[str, type[Section]] = typing.get_type_hints(Config)


@functools.cache
def components(setting: str) -> Mapping[str, type[Section]]:
    """Return the components that a setting chooses from, by the pattern of its value; none for most settings."""
    if setting not in COMPONENTS:
        return {}
    module, _, table = COMPONENTS[setting].partition(":")
    found = getattr(importlib.import_module(module), table)
    return {pattern: getattr(component, "Settings", component) for pattern, component in found.items()}


def section_classes(settings: Mapping[str, Any]) -> dict[str, type[Section]]:
    """Return the class of each section with the components that settings choose.

    Raises:
        UserError: There is no such component.
    """
    classes = dict(SECTIONS)
    for name, section in SECTIONS.items():
        if chosen := [_component(section, each, settings) for each in COMPONENTS if hasattr(section, each)]:
            classes[name] = _join(section.__name__, tuple(chosen))
    return classes


def _component(section: type[Section], setting: str, settings: Mapping[str, Any]) -> type[Section]:
    value = settings.get(setting, getattr(section, setting))
    for pattern, component in components(setting).items():
        if fnmatch.fnmatchcase(str(value), pattern):
            return component
    refuse(setting, value, f"one of {', '.join(components(setting))}")


@functools.cache
def _join(name: str, parts: tuple[type[Section], ...]) -> type[Section]:
    """Return a class with the fields and methods of several components."""
    return cast(type[Section], dataclasses.make_dataclass(name, [], bases=parts, frozen=True))


def settings_of(classes: Mapping[str, type[Section]]) -> dict[str, Setting]:
    """Return the settings of sections by name."""
    return {
        field.name: Setting(name, "", section, field)
        for name, section in classes.items()
        for field in dataclasses.fields(section)
    }


@functools.cache
def all_settings() -> dict[str, Setting]:
    """Return the settings of all sections and all components by name."""
    found = settings_of(SECTIONS)
    general = set(found)
    for chooser in COMPONENTS:
        for pattern, part in components(chooser).items():
            for field in dataclasses.fields(part):
                if field.name not in general:
                    known = found.get(field.name)
                    owner = f"{known.owner} or {pattern}" if known else f"--{chooser} {pattern}"
                    found[field.name] = Setting(found[chooser].section, owner, part, field)
    return found
