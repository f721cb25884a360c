"""Settings of the scores that training computes."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from cyclegan.config.fields import FREE, Section, flag, refuse


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(Section):
    """Interval and features of the scores of the generators."""

    TITLE: ClassVar[str] = "evaluation"

    evaluate_every: int = flag(
        "epochs between evaluations of FID and KID on held-out images, with one at the end; the checkpoints with the lowest KID"
        " are kept as best-x2y and best-y2x; 0 is off",
        0,
        FREE,
    )
    evaluate_features: str = flag(
        "features that FID and KID compare. random: a fixed random network; inception: weights that are downloaded once; or a"
        " file with these weights",
        "random",
        FREE,
        metavar="KIND",
    )
    patience: int = flag(
        "end training after N evaluations in a row in which the KID of no direction was the lowest so far; 0 is off",
        0,
        FREE,
        metavar="N",
    )

    def check(self) -> None:
        """Raise `UserError` if a value cannot work."""
        self.check_at_least(0, "evaluate_every", "patience")
        if not self.evaluate_features:
            refuse(
                "evaluate_features",
                self.evaluate_features,
                "random, inception or a file (is a shell variable not set?)",
            )
