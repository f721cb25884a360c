#!/usr/bin/env python
"""Translate images with the generators of a run: `python scripts/translate.py runs/horse2zebra horses/ zebras/`."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cyclegan.cli.translate import program

if __name__ == "__main__":
    sys.exit(program())
