"""The sizes of pictures: what they are resized to, and what comes out in the end; no TensorFlow.

The ways of --preprocess are those of pytorch-CycleGAN-and-pix2pix (`data/base_dataset.py`).
"""

import numpy as np

from cyclegan.errors import UserError

LEAST = 16  # pixels that the networks need


def resized(config, sizes, training):
    """What pictures are resized to, before training pictures are cropped at random and test pictures in the middle.

    Args:
        config: the `Config`.
        sizes: int [N, 2], heights and widths in pixels.
        training: whether they are training pictures: in `resize_and_crop`, test pictures are not cropped.

    Returns:
        int [N, 2].
    """
    if config.preprocess == "resize_and_crop":
        return np.broadcast_to(config.load_shape if training else config.image_shape, sizes.shape)
    if config.preprocess.startswith("scale_width"):
        heights, widths = sizes[:, 0].astype(np.int64), sizes[:, 1].astype(np.int64)
        heights = np.maximum(config.load_size * heights // widths, config.image_size)
        sizes = np.stack([heights, np.full_like(heights, config.load_size)], axis=1)
    if "crop" in config.preprocess:
        return sizes
    return np.maximum(np.rint(sizes / config.multiple).astype(np.int64), 1) * config.multiple


def final_size(config, sizes, outcomes, names):
    """(height, width) in pixels of all pictures that the networks see.

    Args:
        config: the `Config`.
        sizes: int [N, 2], heights and widths in pixels, of all pictures of all splits.
        outcomes: int [N, 2], what `resized` makes of them.
        names: what they are called.

    Raises:
        UserError: a picture is smaller than the crop; or, without one, pictures come out of two sizes, or too small.
    """

    def said(i):
        changed = "" if (sizes[i] == outcomes[i]).all() else f", resized to {shown(outcomes[i])}"
        return f"{names[i]} ({shown(sizes[i])}{changed})"

    if "crop" in config.preprocess:
        small = np.flatnonzero((outcomes < config.image_shape).any(axis=1))
        if len(small):
            raise UserError(
                f"--preprocess {config.preprocess}: {len(small)} pictures are too small to crop {shown(config.image_shape)}"
                f" from, {said(small[0])} for one; expected at least that: use a smaller --image_size, or --preprocess"
                " resize_and_crop"
            )
        return config.image_shape
    other = np.flatnonzero((outcomes != outcomes[0]).any(axis=1))
    if len(other):
        raise UserError(
            f"--preprocess {config.preprocess}: {said(0)} and {said(other[0])} come out of different sizes; expected one size for"
            " all pictures of both domains: use --preprocess crop or resize_and_crop"
        )
    size = tuple(int(side) for side in outcomes[0])
    if min(size) < LEAST:
        raise UserError(f"--preprocess {config.preprocess}: {said(0)}: expected at least {shown((LEAST, LEAST))}")
    return size


def shown(size):
    """(height, width) as a text."""
    return f"{size[1]} x {size[0]} pixels"
