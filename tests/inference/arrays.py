"""Random images, and files of a folder."""

import numpy as np


def images(*shape, seed=0, dtype=np.uint8):
    """Return random images of a shape, uint8 or uint16."""
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max + 1, shape).astype(dtype)


def files(folder):
    """Return the sorted paths of all files below a folder, relative to it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
