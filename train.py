#!/usr/bin/env python
"""Train a CycleGAN between two unpaired sets of images, on every GPU there is: `python train.py --help`."""

from cyclegan.cli.train import main, program

__all__ = ["main"]

if __name__ == "__main__":
    program()
