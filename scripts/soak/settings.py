"""Choose random valid settings of a small run; no TensorFlow."""

from __future__ import annotations

import dataclasses
import pathlib
import random

import numpy as np
from PIL import Image

# Flags with the share of the runs that have them, and their values; flags that need others are in `_dependent`.
COMMON = {
    "--variant paper": 0.2,
    "--upsample resize": 0.2,
    "--pool_size": (0.6, 0, 3, 7),
    "--diffaugment": (0.3, "color", "translation,cutout", "color,translation,cutout"),
    "--no_flip": 0.2,
    "--epoch_size": (0.2, "max", 7),
    "--discriminator_norm spectral": 0.2,
    "--lr": (0.3, 0.001, 0.00001),
    "--discriminator_steps": (0.2, 3, 4),
    "--generator_steps": (0.2, 2),
    "--ema": (0.4, 0.5, 0.99),
    "--clip_norm": (0.3, 0.1, 1),
    "--weight_decay": (0.2, 0.0001),
    "--precision": (0.2, "float32", "bfloat16", "float16"),
    "--deterministic": 0.2,
    "--evaluate_every": (0.3, 1, 2),
    "--cache": (0.4, "ram", "none"),
    "--cache_gb": (0.1, 0),
}
# Flags that each start of a run chooses again, because they do not change the result.
PER_START = {
    "--keep": (0.7, 1, 2, 5),
    "--checkpoint_minutes": (0.8, 0, 0.001, 0.01),
    "--checkpoint_every": (0.3, 2, 100),
    "--plot_every": (0.9, 1, 99, 99, 99),
    "--verbose": (0.3, 2),
}
GEOMETRIES = [*[[]] * 5, ["--load_size", "20"], ["--image_width", "20"], ["--preprocess", "scale_width_and_crop"]]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Attributes:
        flags: Flags of train.py, without those of `per_start` and the folders.
        workers: Number of processes that train together.
        devices: Number of devices of each process.
        images: Number of images in each folder of the dataset.
    """

    flags: list[str]
    workers: int
    devices: int
    images: dict[str, int]

    @classmethod
    def random(cls, rng: random.Random) -> Settings:
        """Return random valid settings, on one to three replicas or two workers."""
        workers, devices = rng.choice([(1, 1), (1, 1), (1, 2), (1, 3), (2, 1)])
        batch = rng.choice([1, 1, 2])
        flags = ["--filters", "1", "--no_peak", "--image_size", "16", *_choose(rng, COMMON), *_dependent(rng)]
        flags += ["--devices", str(devices)] if devices > 1 else []
        flags += ["--start_timeout", "120"] if workers > 1 else []
        flags += ["--batch_size", str(batch), "--epochs", str(rng.randint(5, 10)), "--seed", str(rng.randrange(2**32))]
        images = {name: rng.randint(16, 32) * batch * devices * workers for name in ("trainA", "trainB")}
        return cls(flags, workers, devices, {**images, **{name: rng.randint(5, 9) for name in ("testA", "testB")}})

    def write_images(self, folder: pathlib.Path, seed: int) -> None:
        """Write the dataset of the run: images of random sizes and colors."""
        rng = np.random.default_rng(seed)
        for name, count in self.images.items():
            (folder / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (*rng.integers(16, 28, 2), 3), np.uint8)
                Image.fromarray(pixels).save(folder / name / f"{i}.png")


def per_start(rng: random.Random) -> list[str]:
    """Return random flags that do not change the result of a run."""
    return _choose(rng, PER_START)


def _choose(rng: random.Random, table: dict) -> list[str]:
    flags: list[str] = []
    for name, (share, *values) in ((name, row if isinstance(row, tuple) else (row,)) for name, row in table.items()):
        if rng.random() < share:
            flags += [*name.split(), *(str(rng.choice(values)) for _ in values[:1])]
    return flags


def _dependent(rng: random.Random) -> list[str]:
    """Return random flags that depend on each other, in a valid combination."""
    objective, geometry = rng.choice(["cyclegan"] * 5 + ["cut", "fastcut", "dclgan"]), rng.choice(GEOMETRIES)
    norm = rng.choice(["instance", "instance", "batch", "none"])
    blocks = rng.choice([0, 0, 1])
    adversarial = rng.choice(["lsgan", "lsgan", "bce", "hinge"] + ["wgan-gp"] * (norm != "batch"))
    schedule = rng.choice(["linear", "cosine", "constant"])
    log_every = rng.choice([1, 2, 4])
    flags = ["--objective", objective, "--norm", norm, "--adversarial", adversarial, *geometry]
    flags += ["--residual_blocks", str(blocks), "--lr_schedule", schedule, "--log_every", str(log_every)]
    flags += rng.choice([["--discriminator_layers", "1"]] * 4 + [["--discriminator", "pixel"]])
    flags += ["--steps_per_call", str(rng.choice([each for each in (1, 2, 4) if log_every % each == 0]))]
    if blocks:
        flags += rng.choice([[], ["--dropout", "0.5"], ["--recompute"] * (norm != "batch")])
    if adversarial in ("lsgan", "bce") and rng.random() < 0.3:
        flags += ["--label_smoothing", "0.1"]
    if adversarial != "wgan-gp" and norm != "batch" and rng.random() < 0.2:
        flags += ["--r1", "0.1"]
    if objective == "cyclegan":
        flags += rng.choice([[], [], ["--channels_x", "1", "--channels_y", "1"]])
        flags += _choose(
            rng, {"--lambda_identity": (0.3, 0, 1), "--lambda_cycle": (0.2, 0, 5), "--lambda_ssim": (0.2, 1)}
        )
    if "--preprocess" not in geometry and objective != "fastcut" and rng.random() < 0.2:
        flags += ["--paired_names", "--lambda_paired", "1", *_choose(rng, {"--paired_share": (0.5, 0.5)})]
    return flags
