"""Objectives, one in each file; `config.objective.OBJECTIVES` lists their names."""

from __future__ import annotations

import importlib

from cyclegan.methods.objective import Objective


def find_objective(name: str) -> type[Objective]:
    """Return the class of an objective: the attribute `OBJECTIVE` of the file of this name."""
    found: type[Objective] = importlib.import_module(f"{__name__}.{name}").OBJECTIVE
    return found
