"""Images of the page of translations: small copies in a format that every browser shows."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import numpy as np

from cyclegan.config.sections import DIRECTIONS
from cyclegan.images import color, geometry, writer
from cyclegan.images.image import DecodedImage
from cyclegan.images.value_range import to_depth
from cyclegan.run import html_report

PAGE_FOLDER = "index_files"  # folder of the copies, beside index.html
MAX_SIDE = 512  # longer side of a copy in pixels


def write_item(
    folder: pathlib.Path, number: int, name: str, direction: str, images: Mapping[str, np.ndarray]
) -> html_report.Item:
    """Write the copies of an image and of its translations.

    Args:
        folder: Folder of the page.
        number: Number of the image; the names of the copies begin with it.
        name: Name of the image on the page.
        direction: "x2y" or "y2x".
        images: "input", "output" and, if there is one, "cycle", the translation back: uint8 or uint16 [h, w, C].

    Returns:
        The item of the page.
    """
    paths = {kind: f"{PAGE_FOLDER}/{number:06d}_{kind}.png" for kind in images}
    for kind, path in paths.items():
        writer.write(folder / path, DecodedImage(make_thumbnail(images[kind])), "png")
    frame = html_report.Frame(paths["output"], paths.get("cycle", ""), _scores(**images))
    return html_report.Item(name, " → ".join(DIRECTIONS[direction]), paths["input"], [frame])


def _scores(input: np.ndarray, output: np.ndarray, cycle: np.ndarray | None = None) -> dict[str, float]:
    """Return mean absolute differences in gray levels of 8 bits."""
    gray = 255 / np.iinfo(input.dtype).max
    compared = {"cycle error": cycle, "change": output if output.shape == input.shape else None}
    return {
        name: float(np.abs(input.astype(np.float32) - other).mean() * gray)
        for name, other in compared.items()
        if other is not None
    }


def make_thumbnail(pixels: np.ndarray) -> np.ndarray:
    """Return a copy for the page: uint8 [h, w, 1 or 3], its longer side at most `MAX_SIDE` pixels."""
    pixels = color.visible(pixels)
    shrink = min(1.0, MAX_SIDE / max(pixels.shape[:2]))
    height, width = (max(1, round(side * shrink)) for side in pixels.shape[:2])
    return to_depth(geometry.resize(pixels, (height, width)), np.uint8)
