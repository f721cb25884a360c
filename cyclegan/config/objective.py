"""Settings of the objective: losses, their weights, and the discriminators' input."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, NamedTuple

from cyclegan.config.directions import DIRECTIONS
from cyclegan.config.fields import WARN, Section, flag, refuse
from cyclegan.errors import UserError

AUGMENTATIONS = ("color", "translation", "cutout")


class ObjectiveFacts(NamedTuple):
    """Facts about an objective that are needed without its losses.

    Attributes:
        summary: Text for --help.
        directions: Directions of its generators; see `DIRECTIONS`.
        own_flags: Flags of `ObjectiveConfig` that this objective uses and another one does not.
        pool_size: Default of --pool_size.
        compares_features: Whether it compares features of images and of their translations in a ResNet generator.
    """

    summary: str
    directions: tuple[str, ...] = ("x2y",)
    own_flags: tuple[str, ...] = ()
    pool_size: int = 0
    compares_features: bool = True


# The objectives; the module of this name in `methods` has the losses of each.
OBJECTIVES = {
    "cyclegan": ObjectiveFacts(
        "two generators that undo each other",
        tuple(DIRECTIONS),
        ("lambda_cycle", "lambda_ssim", "lambda_identity", "lambda_paired"),
        50,
        False,
    ),
    "cut": ObjectiveFacts("one generator X -> Y that keeps the content of each patch", own_flags=("lambda_paired",)),
    "fastcut": ObjectiveFacts("cut without identity loss, with random flips"),
}


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig(Section):
    """Losses and their weights."""

    TITLE: ClassVar[str] = "objective"

    objective: str = flag(
        "; ".join(f"{name}: {facts.summary}" for name, facts in OBJECTIVES.items()),
        "cyclegan",
        choices=tuple(OBJECTIVES),
    )
    lambda_cycle: float = flag("weight of the cycle losses", 10.0, WARN)
    lambda_ssim: float = flag(
        "weight of 1 - SSIM of images and their cycles, which guards structure; 0 is off", 0.0, WARN
    )
    lambda_identity: float = flag(
        "weight of the identity losses; 0 leaves them out, as do domains with different numbers of channels", 5.0, WARN
    )
    lambda_paired: float = flag(
        "weight of the mean absolute error of the translations of pairs (--paired_names)", 0.0, WARN
    )
    adversarial: Literal["lsgan", "bce", "hinge", "wgan-gp"] = flag("adversarial loss", "lsgan", WARN)
    lambda_gp: float = flag("weight of the gradient penalty of wgan-gp", 10.0, WARN)
    r1: float = flag("weight of R1, the penalty on the discriminators' gradients at real images", 0.0, WARN)
    label_smoothing: float = flag("the label of real images is 1 minus this (lsgan and bce)", 0.0, WARN)
    pool_size: int = flag(
        "earlier translations per domain that the discriminators also see; 0 is off (default:"
        f" {', '.join(f'{name} {facts.pool_size}' for name, facts in OBJECTIVES.items())})",
        OBJECTIVES["cyclegan"].pool_size,
    )
    diffaugment: str = flag("random changes to the discriminators' input: any of color,translation,cutout", "", WARN)

    @property
    def facts(self) -> ObjectiveFacts:
        """Facts about the objective."""
        return OBJECTIVES[self.objective]

    @property
    def has_penalty(self) -> bool:
        """Whether the discriminator losses contain gradients of the discriminators."""
        return self.adversarial == "wgan-gp" or self.r1 > 0

    @property
    def augmentations(self) -> tuple[str, ...]:
        """The parts of `diffaugment`."""
        return tuple(self.diffaugment.split(",")) if self.diffaugment else ()

    def check(self) -> None:
        """Raise `UserError` if a value cannot work."""
        if self.objective not in OBJECTIVES:
            refuse("objective", self.objective, f"one of {', '.join(OBJECTIVES)}")
        self.check_finite("lambda_cycle", "lambda_ssim", "lambda_identity", "lambda_paired", "lambda_gp", "r1")
        self.check_fraction("label_smoothing")
        self.check_at_least(0, "pool_size")
        unknown = [part for part in self.augmentations if part not in AUGMENTATIONS]
        if unknown:
            raise UserError(
                f"--diffaugment {self.diffaugment}: {unknown[0] or 'an empty name'}: expected any of {','.join(AUGMENTATIONS)}"
            )
