"""Trained generators as files for other programs."""
