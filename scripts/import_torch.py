#!/usr/bin/env python
"""Make a run from networks that pytorch-CycleGAN-and-pix2pix has trained."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from cyclegan.cli.import_torch import program

if __name__ == "__main__":
    sys.exit(program())
