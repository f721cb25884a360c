"""The whole configuration of a run: frozen sections, one per concern."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from cyclegan.config import defaults
from cyclegan.config.data import DataConfig
from cyclegan.config.distribution import DistributionConfig
from cyclegan.config.evaluation import EvaluationConfig
from cyclegan.config.fields import Section
from cyclegan.config.networks import UNETS, NetworkConfig
from cyclegan.config.objective import OBJECTIVES, ObjectiveConfig, ObjectiveFacts
from cyclegan.config.optimization import OptimizationConfig
from cyclegan.config.performance import PerformanceConfig
from cyclegan.config.presets import PRESETS
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
    *("preset", "verbose", "no_peak", "start_timeout", "rendezvous_secret_file"),
}
SETTINGS_OF_A_START = {"output_dir", "clear_output_dir", "preset", "profile"}  # --config ignores these


def _width_changes_images(data: DataConfig) -> bool:
    """Return whether the images depend on --image_width without a crop: it sets --load_size or the width of drawn images."""
    sets_load_size = data.load_size == round(data.image_width * defaults.load_ratio(data.dataset))
    is_drawn_wider = data.is_embedded and data.image_width > data.image_size
    return is_drawn_wider or (data.preprocess == "scale_width" and sets_load_size)


def _sets_blocks(config: Config) -> bool:
    """Return whether the number of residual blocks is another one because of --image_size."""
    blocks = defaults.residual_blocks(config.data.image_size)
    return config.networks.residual_blocks == blocks != defaults.residual_blocks(DataConfig.image_size)


def _objectives(has: Callable[[ObjectiveFacts], bool]) -> str:
    """Return --objective with the names of all objectives of a kind, for a message."""
    return f"--objective {' or '.join(name for name, facts in OBJECTIVES.items() if has(facts))}"


# Settings that have an effect only with others: the flags that they need, and a check of these flags.
NEEDS: dict[str, tuple[str, Callable[[Config], bool]]] = {
    "data_dir": (
        "--dataset cycle_gan/NAME, stripes or scenes",
        lambda config: config.data.is_tfds,
    ),
    "preprocess": (
        "a dataset other than stripes and scenes, or with --load_size",
        lambda config: not config.data.is_embedded or config.data.load_shape != config.data.image_shape,
    ),
    "image_size": (
        "a --preprocess other than none, or below 256 without --generator and --residual_blocks",
        lambda config: config.data.uses_image_size or _sets_blocks(config),
    ),
    "image_width": (
        "a --preprocess that crops, or with --preprocess scale_width without --load_size",
        lambda config: "crop" in config.data.preprocess or _width_changes_images(config.data),
    ),
    "load_size": (
        "--preprocess resize_and_crop, scale_width or scale_width_and_crop",
        lambda config: config.data.preprocess not in ("crop", "none") or config.data.is_embedded,
    ),
    **dict.fromkeys(
        ("value_range_x", "value_range_y"),
        ("a dataset other than stripes and scenes", lambda config: not config.data.is_embedded),
    ),
    "cache_gb": ("--cache auto", lambda config: config.data.cache == "auto"),
    "discriminator_layers": ("--discriminator patch", lambda config: config.networks.discriminator == "patch"),
    "dropout": (
        "a generator with residual blocks, or a U-Net",
        lambda config: config.networks.residual_blocks != 0,
    ),
    "norm_affine": ("--norm instance", lambda config: config.networks.norm == "instance"),
    "lr_schedule": (
        "--decay_from below --epochs",
        lambda config: (
            config.optimization.lr_schedule == "constant" or config.optimization.decay_from < config.optimization.epochs
        ),
    ),
    "decay_from": ("--lr_schedule linear or cosine", lambda config: config.optimization.lr_schedule != "constant"),
    **dict.fromkeys(
        ("generator_steps", "discriminator_steps"),
        (
            "different --generator_steps and --discriminator_steps",
            lambda config: (
                config.optimization.generator_steps != config.optimization.discriminator_steps
                or config.optimization.generator_steps == 1
            ),
        ),
    ),
    "lambda_gp": ("--adversarial wgan-gp", lambda config: config.objective.adversarial == "wgan-gp"),
    "label_smoothing": (
        "--adversarial lsgan or bce",
        lambda config: config.objective.adversarial in ("lsgan", "bce"),
    ),
    **dict.fromkeys(
        ("lambda_cycle", "lambda_ssim"),
        (
            _objectives(lambda facts: "lambda_cycle" in facts.own_flags),
            lambda config: "lambda_cycle" in config.objective.facts.own_flags,
        ),
    ),
    "lambda_identity": (
        f"{_objectives(lambda facts: 'lambda_identity' in facts.own_flags)} and --channels_x equal to --channels_y",
        lambda config: "lambda_identity" in config.objective.facts.own_flags and config.data.same_channels,
    ),
    "tf32": (  # other products are never in float32
        "--precision auto or float32, --evaluate_every N, --discriminator_norm spectral, or"
        f" {_objectives(lambda facts: facts.compares_features)}",
        lambda config: (
            config.performance.precision in ("auto", "float32")
            or config.evaluation.evaluate_every > 0
            or config.networks.discriminator_norm == "spectral"
            or config.objective.facts.compares_features
        ),
    ),
    "recompute": ("a ResNet with residual blocks", lambda config: bool(config.networks.residual_blocks)),
    **dict.fromkeys(
        ("lambda_paired", "paired_names", "paired_share"),
        (
            "--lambda_paired and --paired_names together, a folder or --dataset scenes, and"
            f" {_objectives(lambda facts: 'lambda_paired' in facts.own_flags)}",
            lambda config: config.uses_pairs,
        ),
    ),
    **dict.fromkeys(
        ("evaluate_features", "patience"),
        ("--evaluate_every N", lambda config: config.evaluation.evaluate_every > 0),
    ),
}


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
    def unused(self) -> set[str]:
        """Names of the settings that have no effect with the others."""
        return {name for name, (_, is_used) in NEEDS.items() if not is_used(self)}

    @property
    def shared_settings(self) -> dict[str, Any]:
        """The settings that all workers of a run must share."""
        return {name: value for name, value in self.settings().items() if name not in SETTINGS_OF_A_WORKER}

    @property
    def preset_flags(self) -> str:
        """The settings of --preset that are in effect, as flags; empty without a preset."""
        settings, unused = self.settings(), self.unused
        preset = PRESETS.get(self.run.preset or "", {})
        in_effect = {name: value for name, value in preset.items() if settings[name] == value and name not in unused}
        return " ".join(f"--{name} {value}" for name, value in in_effect.items())

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
        needed = 3 if self.networks.variant == "paper" else 1  # the last two layers of "paper" each take away a pixel
        if self.networks.discriminator == "patch" and side >> min(layers, 64) < needed:
            raise UserError(
                f"--discriminator_layers {layers}: halves images of {side} pixels to fewer than {needed}; expected fewer layers"
                " or larger images"
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
