"""Objectives by name."""

from __future__ import annotations

from cyclegan.training.objectives.cyclegan import CycleGANObjective
from cyclegan.training.objectives.objective import Objective

OBJECTIVES: dict[str, type[Objective]] = {
    "cyclegan": CycleGANObjective,
}
