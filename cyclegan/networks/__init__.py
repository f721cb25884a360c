"""Generators and discriminators, their layers, and the differences between the two Keras versions."""
