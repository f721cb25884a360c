"""Weights of pytorch-CycleGAN-and-pix2pix in the networks of this package."""
