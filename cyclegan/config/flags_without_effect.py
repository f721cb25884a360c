"""Settings that have an effect only with others."""

from __future__ import annotations

import math
from collections.abc import Callable

from cyclegan.config import defaults
from cyclegan.config.config import Config
from cyclegan.config.data import DataConfig
from cyclegan.config.objective import OBJECTIVES, ObjectiveFacts


def _width_changes_images(data: DataConfig) -> bool:
    """Return whether the images depend on --image_width without a crop: it sets --load_size or the width of drawn images."""
    sets_load_size = data.load_size == round(data.image_width * defaults.load_ratio(data.dataset))
    is_drawn_wider = data.is_embedded and data.image_width > data.image_size
    return is_drawn_wider or (data.preprocess == "scale_width" and sets_load_size)


def _sets_blocks(config: Config) -> bool:
    """Return whether the number of residual blocks is another one because of --image_size."""
    blocks = defaults.residual_blocks(config.data.image_size)
    return config.networks.residual_blocks == blocks != defaults.residual_blocks(DataConfig.image_size)


def _evaluations(config: Config) -> int:
    """Return the number of evaluations in training."""
    every = config.evaluation.evaluate_every
    return math.ceil(config.optimization.epochs / every) if every else 0


def _objectives(has: Callable[[ObjectiveFacts], bool]) -> str:
    """Return --objective with the names of all objectives of a kind, for a message."""
    return f"--objective {' or '.join(name for name, facts in OBJECTIVES.items() if has(facts))}"


# The flags that each of them needs, as text, and a check of these flags.
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
        "a --preprocess other than none; or a size below 256 and neither --generator nor --residual_blocks",
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
    **{
        name: (
            f"{others}, a folder or --dataset scenes, and {_objectives(lambda facts: 'lambda_paired' in facts.own_flags)}",
            lambda config: config.uses_pairs,
        )
        for name, others in (
            ("lambda_paired", "--paired_names"),
            ("paired_names", "--lambda_paired"),
            ("paired_share", "--lambda_paired and --paired_names"),
        )
    },
    "evaluate_features": ("--evaluate_every N", lambda config: config.evaluation.evaluate_every > 0),
    "patience": (
        "--evaluate_every N, and --epochs that give at least 2 evaluations more than --patience",
        lambda config: config.evaluation.patience <= _evaluations(config) - 2,
    ),
}


def find_unused(config: Config) -> set[str]:
    """Return the names of the settings that have no effect with the others."""
    return {name for name, (_, is_used) in NEEDS.items() if not is_used(config)}
