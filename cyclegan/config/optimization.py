"""Settings of the optimization: length, batches, learning rates, updates."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from cyclegan.config.fields import FREE, WARN, Section, flag


@dataclasses.dataclass(frozen=True)
class OptimizationConfig(Section):
    """Updates of the networks, and the length of training."""

    TITLE: ClassVar[str] = "optimization"

    epochs: int = flag("passes over min(|X|, |Y|) pairs", 200, FREE)
    batch_size: int = flag("image pairs per replica and step", 1, FREE)  # resuming compares the global batch
    lr: float = flag("learning rate of Adam (default: 0.0002; stripes, scenes: 0.001)", 2e-4, WARN)
    lr_discriminator: float = flag("learning rate of the discriminators (default: --lr)", 2e-4, WARN)
    lr_schedule: Literal["linear", "cosine", "constant"] = flag(
        "decay of the learning rates to zero from --decay_from on: a straight line or half a cosine; constant: no decay",
        "linear",
        WARN,
    )
    decay_from: int = flag(
        "epochs with constant learning rates; not with --lr_schedule constant (default: half of --epochs)", 100, WARN
    )
    beta_1: float = flag("Adam's decay of the mean gradient", 0.5, WARN)
    beta_2: float = flag("Adam's decay of the mean squared gradient", 0.999, WARN)
    epsilon: float = flag(
        "term that Adam adds to the root of the mean squared gradient (default: 1e-7; --variant paper: 1e-8)",
        1e-7,
        WARN,
    )
    discriminator_steps: int = flag(
        "updates of the discriminators for --generator_steps updates of the generators", 1, WARN, metavar="N"
    )
    generator_steps: int = flag(
        "updates of the generators for --discriminator_steps updates of the discriminators", 1, WARN, metavar="N"
    )
    ema: float = flag(
        "decay of the moving average (EMA) of the generators' weights, used for all but training; 0 is off", 0.0
    )
    clip_norm: float = flag(
        "largest norm of the gradients of both generators, or of both discriminators; 0 is off", 0.0, WARN
    )
    weight_decay: float = flag("weight of half the sum of the squares of all kernels in the losses", 0.0, WARN)
    seed: int = flag("seed of the weights, the order of the images and their augmentation, below 2**32", 0)
    max_bad_steps: int = flag(
        "steps in a row with non-finite losses or gradients (they update nothing) after which training goes back to the last"
        " checkpoint; the second time it stops",
        10,
        FREE,
    )

    def check(self) -> None:
        """Raise `UserError` if a value cannot work."""
        self.check_at_least(1, "epochs", "max_bad_steps", "discriminator_steps", "generator_steps")
        self.check_at_least(1, "batch_size", unit="image pair per replica")
        self.check_at_least(0, "decay_from", "seed")
        self.check_finite("lr", "lr_discriminator", "epsilon", positive=True)
        self.check_finite("clip_norm", "weight_decay")
        self.check_fraction("beta_1", "beta_2", "ema")
