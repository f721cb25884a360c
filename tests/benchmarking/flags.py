"""Flags of the benchmark for tiny networks."""

BRIEF = ["--size", "16", "--batch", "2", "--runs", "2"]
TINY = [*BRIEF, "--filters", "2", "--residual_blocks", "0"]
