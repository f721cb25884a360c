"""The whole configuration of a run: frozen sections, one per concern, with the components that the settings choose."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import importlib
import typing
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from cyclegan.config.data import EMBEDDED, DataConfig
from cyclegan.config.fields import Section, refuse
from cyclegan.config.sections import (
    DistributionConfig,
    EvaluationConfig,
    NetworkConfig,
    ObjectiveConfig,
    OptimizationConfig,
    PerformanceConfig,
    RunConfig,
)
from cyclegan.errors import UserError

# By section, the settings that choose a component, and where the table of its choices stands: patterns of the setting's value,
# and the class of each component. If two components of a section change a default of the section, the first one wins.
COMPONENTS: dict[str, dict[str, str]] = {
    "networks": {
        "generator": "cyclegan.networks.generators:GENERATORS",
        "discriminator": "cyclegan.networks.discriminators:DISCRIMINATORS",
    },
    "objective": {
        "objective": "cyclegan.methods:OBJECTIVES",
        "adversarial": "cyclegan.methods.adversarial:LOSSES",
    },
    "optimization": {
        "lr_schedule": "cyclegan.training.schedule:SCHEDULES",
        "optimizer": "cyclegan.training.optimizers:OPTIMIZERS",
    },
}
# Settings that may differ between workers, such as paths on their machines and how much they print.
SETTINGS_OF_A_WORKER = {
    *("dataset", "data_dir", "output_dir", "cache", "cache_gb"),
    *("preset", "verbose", "no_peak", "start_timeout"),
}
SETTINGS_OF_A_START = {"output_dir", "clear_output_dir", "preset", "profile"}  # --config ignores these


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a training run, checked.

    Make one with `from_settings`, or with `command_line.parse_args`: both fill in the defaults that follow from other settings.

    Attributes:
        data: Images of the two domains.
        networks: Architecture of generators and discriminators.
        objective: Losses and their weights.
        optimization: Updates of the networks, and the length of training.
        distribution: Devices and workers.
        performance: Precision, compilation, profile.
        evaluation: Scores during training.
        run: Folder of the run, and the intervals of its output.

    Raises:
        UserError: Values of different sections do not fit together.
    """

    data: DataConfig
    networks: NetworkConfig
    objective: ObjectiveConfig
    optimization: OptimizationConfig
    distribution: DistributionConfig
    performance: PerformanceConfig
    evaluation: EvaluationConfig
    run: RunConfig

    @classmethod
    def from_settings(cls, **given: Any) -> Config:
        """Return the configuration with these settings, and the defaults for all others.

        Args:
            given: Values by name of the setting; `None` asks for the default.

        Raises:
            UserError: A value can't work, or belongs to a component that is not chosen.
        """
        given = {name: value for name, value in given.items() if value is not None}
        classes = section_classes(given)
        fields = fields_of(classes)
        for name in given:
            if name not in fields:
                refuse_foreign(name)
        derived = {name for name, field in fields.items() if field.metadata["derive"]}
        settings = {name: field.default for name, field in fields.items() if name not in derived}
        settings.update(EMBEDDED.get(given.get("dataset", DataConfig.dataset), {}))
        settings.update({name: value for name, value in given.items() if not (name in derived and value == "auto")})
        for name, field in fields.items():
            if name not in settings:
                settings[name] = field.metadata["derive"](settings)
        if settings["generator"] == "auto":
            settings["generator"] = f"resnet_{settings['residual_blocks']}blocks"
        return cls._assemble(classes, settings)

    def replace(self, **settings: Any) -> Config:
        """Return a copy in which the given settings have new values; settings of replaced components are left out."""
        settings = {**self.settings(), **settings}
        return self._assemble(section_classes(settings), settings)

    def settings(self) -> dict[str, Any]:
        """Return all settings by name, without the sections."""
        return {name: value for section in dataclasses.asdict(self).values() for name, value in section.items()}

    def fields(self) -> dict[str, dataclasses.Field[Any]]:
        """Return the field of each setting by name."""
        return fields_of({name: type(getattr(self, name)) for name in SECTIONS})

    def chosen_settings(self) -> dict[str, Any]:
        """Return the settings without those that follow from others."""
        settings = self.settings()
        derive = {name: field.metadata["derive"] for name, field in self.fields().items()}
        return {name: value for name, value in settings.items() if not derive[name] or value != derive[name](settings)}

    @property
    def uses_pairs(self) -> bool:
        """Whether training uses pairs of images of the same name."""
        return self.data.has_pairs and getattr(self.objective, "lambda_paired", 0.0) > 0

    @property
    def shared_settings(self) -> dict[str, Any]:
        """The settings that all workers of a run must share."""
        return {name: value for name, value in self.settings().items() if name not in SETTINGS_OF_A_WORKER}

    @classmethod
    def _assemble(cls, classes: Mapping[str, type[Section]], settings: Mapping[str, Any]) -> Config:
        sections: dict[str, Any] = {}
        for name, section in classes.items():
            values = {each.name: settings[each.name] for each in dataclasses.fields(section) if each.name in settings}
            sections[name] = section(**values)
        return cls(**sections)

    def __post_init__(self) -> None:
        """Check what concerns several sections."""
        self._check_sizes()
        self._check_channels()
        self._check_batch_normalization()
        self._check_recomputation()
        steps, log_every = self.performance.steps_per_call, self.run.log_every
        if steps and log_every % steps:
            raise UserError(f"--steps_per_call {steps}: expected a divisor of --log_every, which is {log_every}")

    def _check_sizes(self) -> None:
        multiple = self.networks.multiple
        for name in ("image_size", "image_width"):
            side = getattr(self.data, name)
            if side % multiple:
                raise UserError(
                    f"--{name} {side}: expected a multiple of {multiple}"
                    f" (--generator {self.networks.generator} halves it {self.networks.halvings} times)"
                )
        self.networks.check_side(min(self.data.image_shape))

    def _check_channels(self) -> None:
        objective, data = self.objective, self.data
        if not data.same_channels:
            channels = f"--channels_x {data.channels_x} equal to --channels_y {data.channels_y}"
            if objective.compares_features:
                raise UserError(
                    f"--objective {objective.objective}: compares features of both domains; expected {channels}"
                )
            if identity := getattr(objective, "lambda_identity", 0.0):
                raise UserError(f"--lambda_identity {identity}: compares images of both domains; expected {channels}")
        if objective.compares_features and not hasattr(self.networks, "residual_blocks"):
            raise UserError(
                f"--objective {objective.objective}: compares features of a ResNet;"
                f" expected --generator resnet_9blocks or the like, not {self.networks.generator}"
            )

    def _check_batch_normalization(self) -> None:
        if self.networks.norm != "batch":
            return
        if self.objective.has_penalty and self.networks.discriminator_norm == "same":
            r1, adversarial = self.objective.r1, self.objective.adversarial
            penalty = f"--r1 {r1}" if r1 else f"--adversarial {adversarial}"
            raise UserError(
                f"--norm batch: {penalty} needs samples that do not influence each other; expected --norm instance or none, or"
                " --discriminator_norm spectral"
            )
        if self.performance.xla == "on":
            raise UserError("--norm batch: --xla on cannot sum its statistics over the replicas; expected --xla off")

    def _check_recomputation(self) -> None:
        if not self.performance.recompute:
            return
        if self.networks.norm == "batch":
            raise UserError("--recompute: --norm batch would count its statistics twice; expected --norm instance")
        if self.networks.dropout:
            raise UserError(
                f"--recompute: --dropout {self.networks.dropout} would drop other values the second time; expected --dropout 0"
            )


SECTIONS: dict[str, type[Section]] = typing.get_type_hints(Config)


@functools.cache
def components(section: str, setting: str) -> Mapping[str, type[Section]]:
    """Return the classes of the components that a setting chooses from, by the pattern of its value; empty for most settings."""
    if setting not in COMPONENTS.get(section, {}):
        return {}
    module, _, table = COMPONENTS[section][setting].partition(":")
    found = getattr(importlib.import_module(module), table)
    return {pattern: getattr(component, "Settings", component) for pattern, component in found.items()}


def section_classes(settings: Mapping[str, Any]) -> dict[str, type[Section]]:
    """Return the class of each section with the components that settings choose.

    Raises:
        UserError: There is no such component.
    """
    classes = dict(SECTIONS)
    for name, section in SECTIONS.items():
        chosen = [
            _choose(name, setting, settings.get(setting) or getattr(section, setting))
            for setting in COMPONENTS.get(name, {})
        ]
        if chosen:
            classes[name] = _join(section.__name__, tuple(chosen))
    return classes


def fields_of(classes: Mapping[str, type[Section]]) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of all sections by name."""
    return {field.name: field for section in classes.values() for field in dataclasses.fields(section)}


def _choose(section: str, setting: str, value: str) -> type[Section]:
    table = components(section, setting)
    for pattern, component in table.items():
        if fnmatch.fnmatchcase(value, pattern):
            return component
    refuse(setting, value, f"one of {', '.join(table)}")


@functools.cache
def _join(name: str, parts: tuple[type[Section], ...]) -> type[Section]:
    """Return a class with the fields and methods of several components."""
    return cast(type[Section], dataclasses.make_dataclass(name, [], bases=parts, frozen=True))


@functools.cache
def all_settings() -> dict[str, tuple[str, str]]:
    """Return the section of every setting of every component, and the flags that choose it: "--objective cyclegan or cut"."""
    found = {field.name: (name, "") for name, section in SECTIONS.items() for field in dataclasses.fields(section)}
    for section, families in COMPONENTS.items():
        for setting in families:
            owners: dict[str, list[str]] = {}
            for pattern, component in components(section, setting).items():
                for field in dataclasses.fields(component):
                    if not found.get(field.name):
                        owners.setdefault(field.name, []).append(pattern)
            found.update({name: (section, f"--{setting} {' or '.join(names)}") for name, names in owners.items()})
    return found


def refuse_foreign(name: str) -> NoReturn:
    """Raise `UserError` for a setting of a component that is not chosen, `TypeError` for an unknown one."""
    _, owner = all_settings().get(name, ("", ""))
    if not owner:
        raise TypeError(f"{name}: no such setting")
    raise UserError(f"--{name} belongs to {owner}")
