"""The whole configuration of a run: frozen sections, one per concern."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cyclegan.config import defaults
from cyclegan.config.data import DataConfig
from cyclegan.config.distribution import DistributionConfig
from cyclegan.config.evaluation import EvaluationConfig
from cyclegan.config.fields import Section
from cyclegan.config.networks import UNETS, NetworkConfig
from cyclegan.config.objective import ObjectiveConfig
from cyclegan.config.optimization import OptimizationConfig
from cyclegan.config.performance import PerformanceConfig
from cyclegan.config.run import RunConfig
from cyclegan.errors import UserError

SECTIONS: dict[str, type[Section]] = {
    "data": DataConfig,
    "networks": NetworkConfig,
    "objective": ObjectiveConfig,
    "optimization": OptimizationConfig,
    "distribution": DistributionConfig,
    "performance": PerformanceConfig,
    "evaluation": EvaluationConfig,
    "run": RunConfig,
}
# The section of each setting, by name of the setting.
SECTION_OF = {field.name: name for name, cls in SECTIONS.items() for field in dataclasses.fields(cls)}
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

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    networks: NetworkConfig = dataclasses.field(default_factory=NetworkConfig)
    objective: ObjectiveConfig = dataclasses.field(default_factory=ObjectiveConfig)
    optimization: OptimizationConfig = dataclasses.field(default_factory=OptimizationConfig)
    distribution: DistributionConfig = dataclasses.field(default_factory=DistributionConfig)
    performance: PerformanceConfig = dataclasses.field(default_factory=PerformanceConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)
    run: RunConfig = dataclasses.field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        """Check what concerns several sections."""
        self._check_sizes()
        self._check_batch_normalization()
        self._check_recomputation()
        self._check_features()
        steps, log_every = self.performance.steps_per_call, self.run.log_every
        if steps and log_every % steps:
            raise UserError(f"--steps_per_call {steps}: expected a divisor of --log_every, which is {log_every}")

    @classmethod
    def from_settings(cls, **given: Any) -> Config:
        """Return the configuration with these settings, and the defaults for all others.

        Args:
            given: Values by name of the setting; `None` asks for the default.
        """
        return cls._from_all(defaults.fill_in(given))

    @classmethod
    def from_sections(cls, sections: Mapping[str, Mapping[str, Any]]) -> Config:
        """Return the configuration with these settings, grouped by section; the reverse of `dataclasses.asdict`."""
        made: dict[str, Any] = {name: SECTIONS[name](**values) for name, values in sections.items()}
        return cls(**made)

    def replace(self, **settings: Any) -> Config:
        """Return a copy in which the given settings have new values."""
        return self._from_all({**self.settings(), **settings})

    def settings(self) -> dict[str, Any]:
        """Return all settings by name, without the sections."""
        return {name: getattr(getattr(self, section), name) for name, section in SECTION_OF.items()}

    @property
    def uses_pairs(self) -> bool:
        """Whether training uses pairs of images of the same name."""
        objective = self.objective
        return self.data.has_pairs and objective.lambda_paired > 0 and "lambda_paired" in objective.facts.own_flags

    @property
    def shared_settings(self) -> dict[str, Any]:
        """The settings that all workers of a run must share."""
        return {name: value for name, value in self.settings().items() if name not in SETTINGS_OF_A_WORKER}

    @classmethod
    def _from_all(cls, settings: Mapping[str, Any]) -> Config:
        sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
        for name, value in settings.items():
            if name not in SECTION_OF:
                raise TypeError(f"{name}: no such setting")
            sections[SECTION_OF[name]][name] = value
        return cls.from_sections(sections)

    def _check_sizes(self) -> None:
        multiple = self.networks.multiple
        for name in ("image_size", "image_width"):
            side = getattr(self.data, name)
            if side % multiple:
                raise UserError(
                    f"--{name} {side}: expected a multiple of {multiple}"
                    f" (--generator {self.networks.generator} halves it {self.networks.halvings} times)"
                )
        layers, side = self.networks.discriminator_layers, min(self.data.image_shape)
        smallest = 1 << min(layers, 64)
        if self.networks.variant == "paper":
            smallest *= 3  # the last two layers each take away a pixel
        elif self.networks.norm == "instance" and self.networks.discriminator_norm == "same":
            smallest += 1  # the normalization of a single pixel is zero
        if self.networks.discriminator == "patch" and side < smallest:
            raise UserError(
                f"images of {side} pixels are too small for a discriminator of {layers} layers, which halves them {layers} times:"
                f" expected at least {smallest} pixels (--image_size), or fewer --discriminator_layers"
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
            raise UserError("--recompute: --norm batch would count its statistics twice; expected another --norm")
        if self.networks.dropout:
            raise UserError(
                f"--recompute: --dropout {self.networks.dropout} would drop other values the second time; expected --dropout 0"
            )

    def _check_features(self) -> None:
        objective, data, generator = self.objective.objective, self.data, self.networks.generator
        if not self.objective.facts.compares_features:
            return
        if not data.same_channels:
            raise UserError(
                f"--objective {objective}: compares features of both domains; expected --channels_x {data.channels_x} equal to"
                f" --channels_y {data.channels_y}"
            )
        if generator in UNETS:
            raise UserError(
                f"--objective {objective}: compares features of a ResNet; expected another --generator than {generator}"
            )
