"""Random images, as arrays and as files, and the files of a folder."""

import numpy as np

from cyclegan.images import formats
from cyclegan.images.image import DecodedImage


def images(*shape, seed=0, dtype=np.uint8):
    """Return random images of a shape, uint8 or uint16."""
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max + 1, shape).astype(dtype)


def files(folder):
    """Return the sorted paths of all files below a folder, relative to it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def write_originals(folder):
    """Write images of all kinds to a folder; return their sizes by name."""
    sizes = {
        "a.png": (17, 23), "b.jpg": (40, 30), "sub/c.webp": (16, 16), "sub/deeper/d.bmp": (33, 65), "e.gif": (20, 20),
        "f.tif": (18, 19), "g.JPEG": (40, 30), "h.jpg": (40, 30), "i%20 ü#?.png": (24, 16),
    }  # fmt: skip
    for seed, (name, size) in enumerate(sizes.items()):
        formats.write(folder / name, DecodedImage(images(*size, 3, seed=seed)))
    return sizes
