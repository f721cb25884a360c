#!/usr/bin/env python
"""Export a trained generator: `python scripts/export.py runs/horse2zebra horse2zebra.onnx --format onnx`."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cyclegan.cli.export import program

if __name__ == "__main__":
    sys.exit(program())
