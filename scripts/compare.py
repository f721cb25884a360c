#!/usr/bin/env python
"""Compare runs: `python scripts/compare.py runs/a runs/b`."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cyclegan.cli.compare import program

if __name__ == "__main__":
    sys.exit(program())
