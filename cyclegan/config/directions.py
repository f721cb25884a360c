"""Directions of translation."""

from __future__ import annotations

# Source and target domain of each direction: the generator G translates "x2y", F translates "y2x".
DIRECTIONS = {"x2y": ("X", "Y"), "y2x": ("Y", "X")}
