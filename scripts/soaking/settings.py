"""Random valid settings of a small run, drawn from a seed; no TensorFlow."""

from __future__ import annotations

import dataclasses
import pathlib
import random

import numpy as np
from PIL import Image

SMALL = ["--filters", "1", "--no_peak"]
# Flags with the share of the runs that have them, and their values; flags that need others are in `_draw_dependent`.
COMMON = {
    "--variant paper": 0.2,
    "--upsample resize": 0.2,
    "--init": (0.3, "xavier", "kaiming", "orthogonal"),
    "--pool_size": (0.6, 0, 3, 7),
    "--diffaugment": (0.3, "color", "translation,cutout", "color,translation,cutout"),
    "--no_flip": 0.2,
    "--epoch_size": (0.2, "max", 7),
    "--discriminator_norm spectral": 0.2,
    "--value_range_x": (0.1, "10:200", "auto"),
    "--value_range_y": (0.1, "0:255"),
    "--lr": (0.3, 0.001, 0.00001),
    "--lr_discriminator": (0.2, 0.0005),
    "--discriminator_steps": (0.2, 3, 4),
    "--generator_steps": (0.2, 2),
    "--beta_1": (0.1, 0.9),
    "--beta_2": (0.1, 0.9),
    "--epsilon": (0.1, 0.001),
    "--ema": (0.4, 0.5, 0.99),
    "--clip_norm": (0.3, 0.1, 1),
    "--weight_decay": (0.2, 0.0001),
    "--precision": (0.2, "float32", "bfloat16", "float16"),
    "--deterministic": 0.2,
    "--evaluate_every": (0.3, 1, 2),
    "--max_bad_steps": (0.2, 1000),
}
# Flags that each start of a run draws again, because they do not change the result.
PER_START = {
    "--keep": (0.7, 1, 2, 5),
    "--checkpoint_minutes": (0.8, 0, 0.001, 0.01),
    "--checkpoint_every": (0.3, 2, 100),
    "--plot_every": (0.9, 1, 99, 99, 99),
    "--verbose": (0.3, 2),
    "--step_timeout": (0.2, 1200),
}
# Each run has one of these, most of them the first; a U-Net needs large images.
GEOMETRIES = [
    *[[]] * 8,
    *(["--load_size", side] for side in ("16", "20")),
    ["--image_width", "20"],
    *(["--preprocess", way] for way in ("crop", "scale_width_and_crop")),
    ["--generator", "unet_128"],
]
CACHES = [*[[]] * 4, *(["--cache", kind] for kind in ("ram", "none")), ["--cache_gb", "0"]]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Attributes:
        flags: Flags of train.py, without those of `draw_per_start` and the folders.
        workers: Number of processes that train together.
        images: Number of images in each folder of the dataset.
        epochs: Length of the training.
    """

    flags: list[str]
    workers: int
    images: dict[str, int]
    epochs: int


def draw(rng: random.Random) -> Settings:
    """Return random valid settings, on one to three replicas or two workers."""
    workers, devices = rng.choice([(1, 1), (1, 1), (1, 2), (1, 3), (2, 1)])
    flags = [*SMALL, *_draw(rng, COMMON), *_draw_dependent(rng)]
    flags += ["--devices", str(devices)] if devices > 1 else []
    flags += ["--strategy", "one"] if devices == workers == 1 and rng.random() < 0.2 else []
    flags += ["--start_timeout", "600"] if workers > 1 else []
    batch = rng.choice([1, 1, 2])
    images = {name: rng.randint(16, 32) * batch * devices * workers for name in ("trainA", "trainB")}
    images |= {name: rng.randint(5, 9) for name in ("testA", "testB")}
    epochs = rng.randint(5, 10)
    flags += ["--batch_size", str(batch), "--epochs", str(epochs), "--seed", str(rng.randrange(2**32))]
    return Settings(flags, workers, images, epochs)


def draw_per_start(rng: random.Random) -> list[str]:
    """Return random flags that do not change the result of a run."""
    return _draw(rng, PER_START)


def _draw(rng: random.Random, table: dict) -> list[str]:
    flags: list[str] = []
    for name, (share, *values) in ((name, row if isinstance(row, tuple) else (row,)) for name, row in table.items()):
        if rng.random() < share:
            flags += [*name.split(), *(str(rng.choice(values)) for _ in values[:1])]
    return flags


def _draw_dependent(rng: random.Random) -> list[str]:
    """Return random flags that depend on each other, in a valid combination."""
    objective, geometry = rng.choice(["cyclegan"] * 5 + ["cut", "fastcut"]), rng.choice(GEOMETRIES)
    is_unet = "unet_128" in geometry
    objective = "cyclegan" if is_unet else objective  # the others compare features of a ResNet
    norm = rng.choice(["instance", "instance", "batch", "none"])
    blocks = rng.choice([0, 0, 1])
    adversarial = rng.choice(["lsgan", "lsgan", "bce", "hinge"] + ["wgan-gp"] * (norm != "batch"))
    flags = ["--objective", objective, "--norm", norm, "--adversarial", adversarial]
    flags += ["--image_size", "128" if is_unet else "16", *geometry, *rng.choice(CACHES)]
    flags += [] if is_unet else ["--residual_blocks", str(blocks)]
    flags += rng.choice([["--discriminator_layers", "1"]] * 4 + [["--discriminator", "pixel"]])
    flags += _draw_losses(rng, objective, has_pairs="--preprocess" not in geometry)
    if adversarial == "wgan-gp" and rng.random() < 0.3:
        flags += ["--lambda_gp", "1"]
    if norm == "instance" and rng.random() < 0.3:
        flags += ["--norm_affine", rng.choice(["yes", "no"])]
    if blocks and not is_unet and rng.random() < 0.6:
        flags += ["--recompute"] if norm != "batch" and rng.random() < 0.5 else ["--dropout", "0.5"]
    if adversarial in ("lsgan", "bce") and rng.random() < 0.3:
        flags += ["--label_smoothing", "0.1"]
    if adversarial != "wgan-gp" and norm != "batch" and rng.random() < 0.2:
        flags += ["--r1", "0.1"]
    schedule = rng.choice(["linear", "cosine", "constant"])
    flags += ["--lr_schedule", schedule]
    if schedule != "constant" and rng.random() < 0.5:
        flags += ["--decay_from", "1"]
    log_every = rng.choice([1, 2, 4])
    flags += ["--log_every", str(log_every)]
    if rng.random() < 0.7:
        flags += ["--steps_per_call", str(rng.choice([each for each in (1, 2, 4) if log_every % each == 0]))]
    return flags


def _draw_losses(rng: random.Random, objective: str, has_pairs: bool) -> list[str]:
    """Return random flags of the losses that an objective has, and of the channels and pairs that these need."""
    flags: list[str] = []
    if objective == "cyclegan":
        flags += rng.choice([["--channels_x", "1"], ["--channels_x", "1", "--channels_y", "1"], *[[]] * 8])
        if flags.count("1") != 1:  # otherwise there are no identity losses
            flags += _draw(rng, {"--lambda_identity": (0.3, 0, 1)})
        flags += _draw(rng, {"--lambda_cycle": (0.2, 0, 5), "--lambda_ssim": (0.2, 1)})
    if has_pairs and objective != "fastcut" and rng.random() < 0.2:
        flags += ["--paired_names", "--lambda_paired", "1", *_draw(rng, {"--paired_share": (0.5, 0.5)})]
    return flags


def write_images(folder: pathlib.Path, settings: Settings, seed: int) -> None:
    """Write the dataset of a run: images of random sizes and colors."""
    rng = np.random.default_rng(seed)
    for name, count in settings.images.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 256, (*rng.integers(16, 28, 2), 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
