#!/usr/bin/env python
"""Time training on synthetic images, or count its kernels: `scripts/benchmark.py --help`."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cyclegan.cli.benchmark import program

if __name__ == "__main__":
    sys.exit(program())
