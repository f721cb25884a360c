"""Checkpoints of a run, its position in training, and its folder."""
