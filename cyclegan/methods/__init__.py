"""Objectives, one in each file, and what they share; no import of TensorFlow before the first use."""

from cyclegan.methods.cut import CUTObjective, FastCUTObjective
from cyclegan.methods.cyclegan import CycleGANObjective
from cyclegan.methods.dclgan import DCLGANObjective
from cyclegan.methods.objective import Objective

OBJECTIVES: dict[str, type[Objective]] = {  # by --objective
    "cyclegan": CycleGANObjective,
    "cut": CUTObjective,
    "fastcut": FastCUTObjective,
    "dclgan": DCLGANObjective,
}
