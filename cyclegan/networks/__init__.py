"""Generators and discriminators, the layers that they consist of, and the two Keras versions that both run on."""
