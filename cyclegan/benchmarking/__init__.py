"""Benchmark: timed steps and input pipelines, the plain form to compare with, and counts of kernels."""
