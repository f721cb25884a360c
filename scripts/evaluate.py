#!/usr/bin/env python
"""Score a run on its held-out images: `python scripts/evaluate.py runs/horse2zebra`."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cyclegan.cli.evaluate import program

if __name__ == "__main__":
    sys.exit(program())
