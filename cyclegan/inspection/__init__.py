"""Inspection of a dataset: what may harm training on it."""
