#!/usr/bin/env python
"""Serve a run on this machine: `python scripts/serve.py runs/horse2zebra`."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cyclegan.cli.serve import program

if __name__ == "__main__":
    sys.exit(program())
