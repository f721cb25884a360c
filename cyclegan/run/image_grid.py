"""Grids of images with a title above each column, as PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE = 1.6  # width of an image in inches
MARGIN = 0.3  # height of the titles in inches


def visible_channels(image: np.ndarray) -> np.ndarray:
    """Return the channels of an image [h, w, C] that are shown.

    These are the first three as RGB [h, w, 3] if there are three or more, otherwise the first as gray [h, w].
    """
    return image[..., :3] if image.shape[-1] >= 3 else image[..., 0]


def grid_png(rows: Sequence[Sequence[np.ndarray]], titles: Sequence[str]) -> tuple[bytes, int, int]:
    """Draw rows of images with a title above each column.

    Args:
        rows: Rows with one image per title: float [H, W, C] in [-1, 1], with the same H and W.
        titles: Titles of the columns.

    Returns:
        (the encoded PNG, its width, its height), in pixels.
    """
    import matplotlib  # takes a third of a second

    buffer = io.BytesIO()
    with matplotlib.rc_context({"font.family": "DejaVu Sans"}):
        figure = _figure(rows, titles)
        figure.savefig(buffer, format="png")
    width, height = figure.canvas.get_width_height()
    return buffer.getvalue(), width, height


def _figure(rows: Sequence[Sequence[np.ndarray]], titles: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure

    height, width = rows[0][0].shape[:2]
    gap = max(1, width // 32)
    # One array for all images, because separate axes would take ten times as long to draw.
    canvas = np.ones((len(rows) * (height + gap) - gap, len(titles) * (width + gap) - gap, 3), np.float32)
    for i, j in np.ndindex(len(rows), len(titles)):
        image = np.clip(visible_channels(rows[i][j]) / 2 + 0.5, 0, 1)
        top, left = i * (height + gap), j * (width + gap)
        canvas[top : top + height, left : left + width] = image if image.ndim == 3 else image[..., None]
    figure_width = SIDE * canvas.shape[1] / width
    figure_height = SIDE * canvas.shape[0] / width + MARGIN
    figure = Figure(figsize=(figure_width, figure_height), dpi=max(100, width / SIDE))
    axes = figure.add_axes((0, 0, 1, 1 - MARGIN / figure_height))
    axes.imshow(canvas, aspect="auto")
    axes.set_axis_off()
    for j, title in enumerate(titles):
        centre = (j * (width + gap) + width / 2) / canvas.shape[1]
        figure.text(centre, 1 - MARGIN / figure_height / 2, title, fontsize=9, ha="center", va="center")
    return figure
