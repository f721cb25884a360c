"""Typed settings, presets, the command line, config.json, and what may change on resume; no TensorFlow."""

from cyclegan.config.config import Config

__all__ = ["Config"]
