"""Defaults that follow from other settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from cyclegan.config.data import EMBEDDED, DataConfig
from cyclegan.config.networks import RESNET, UNETS, NetworkConfig
from cyclegan.config.objective import OBJECTIVES, ObjectiveConfig
from cyclegan.config.optimization import OptimizationConfig
from cyclegan.config.run import RunConfig

# Settings that suit a dataset better than the general defaults; flags given by hand win.
SUITED: dict[str, dict[str, Any]] = {
    name: {"image_size": 64, "filters": 16, "residual_blocks": 3, "lr": 1e-3} for name in EMBEDDED
}
LOAD_RATIO = 286 / 256  # side before the crop / side after it
PYTORCH_EPSILON = 1e-8  # default of PyTorch's Adam
# Settings that follow from others if they are not given.
DERIVED = (
    *("decay_from", "load_size", "image_width", "lambda_identity", "lr_discriminator", "norm_affine", "epsilon"),
    "pool_size",
)


def fill_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given settings and all defaults that follow from them.

    Args:
        given: Values by name of the setting. Settings that are missing or `None` follow from the others.
    """
    settings = {name: value for name, value in given.items() if value is not None}
    dataset = settings.get("dataset", DataConfig.dataset)
    suited = dict(SUITED.get(dataset, {}))
    blocks = suited.pop("residual_blocks", None)
    settings = {**suited, **settings}
    _fill_in_sizes(settings, dataset)
    _fill_in_generator(settings, blocks or residual_blocks(settings["image_size"]))
    keras = settings.get("variant", NetworkConfig.variant) == "keras"
    if settings.get("norm_affine", "auto") == "auto":
        settings["norm_affine"] = "yes" if keras else "no"
    settings.setdefault("epsilon", OptimizationConfig.epsilon if keras else PYTORCH_EPSILON)
    if settings.get("channels_x", DataConfig.channels_x) != settings.get("channels_y", DataConfig.channels_y):
        settings["lambda_identity"] = 0.0  # an image and its translation cannot be compared
    objective = OBJECTIVES.get(settings.get("objective", ObjectiveConfig.objective))
    if objective:  # the section refuses another one
        settings.setdefault("pool_size", objective.pool_size)
    settings.setdefault("lr_discriminator", settings.get("lr", OptimizationConfig.lr))
    settings.setdefault("decay_from", settings.get("epochs", OptimizationConfig.epochs) // 2)
    for name in ("output_dir", "data_dir"):
        if name in settings:
            settings[name] = os.path.expanduser(settings[name])
    settings.setdefault("output_dir", os.path.join(os.path.dirname(RunConfig.output_dir), DataConfig(dataset).name))
    return settings


def residual_blocks(image_size: int) -> int:
    """Return the default of --residual_blocks."""
    return 9 if image_size >= 256 else 6


def load_ratio(dataset: str) -> float:
    """Return the default of --load_size, relative to the side after the crop."""
    return 1.0 if dataset in EMBEDDED else LOAD_RATIO  # drawn images differ enough without crops


def _fill_in_sizes(settings: dict[str, Any], dataset: str) -> None:
    height = settings.setdefault("image_size", DataConfig.image_size)
    width = settings.setdefault("image_width", height)
    scaled_side = width if settings.get("preprocess", "").startswith("scale_width") else height
    settings.setdefault("load_size", round(scaled_side * load_ratio(dataset)))


def _fill_in_generator(settings: dict[str, Any], default_blocks: int) -> None:
    """Make `generator` and `residual_blocks` agree."""
    generator = settings.get("generator", "auto")
    resnet = RESNET.fullmatch(generator)
    if generator == "auto":
        settings.setdefault("residual_blocks", default_blocks)
        settings["generator"] = f"resnet_{settings['residual_blocks']}blocks"
    elif resnet:
        settings.setdefault("residual_blocks", int(resnet[1]))
    elif generator in UNETS:
        settings.setdefault("residual_blocks", None)
