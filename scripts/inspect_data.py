#!/usr/bin/env python
"""Inspect a folder of images before training on it: `python scripts/inspect_data.py my_images --html report/`."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cyclegan.cli.inspect_data import program

if __name__ == "__main__":
    sys.exit(program())
