"""Drawings of the embedded dataset `scenes`: label maps of streets, and the streets with their textures.

A scene is a list of parts from back to front. Its label map shows the class of each part as one color, its rendering
the texture of each class in the box of the part, so the true translation is known in both directions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

Array = np.ndarray
PIXEL = 1 / 64  # all edges are multiples of it, so images of 64 and 128 pixels show the same
LABEL_COLORS = {  # at least 95 gray levels apart
    "sky": (0, 128, 255),
    "road": (128, 64, 128),
    "marking": (255, 255, 255),
    "pavement": (255, 0, 255),
    "brick": (255, 0, 0),
    "plaster": (255, 160, 0),
    "roof": (128, 0, 0),
    "window": (0, 255, 255),
    "door": (128, 128, 0),
    "tree": (0, 255, 0),
    "trunk": (0, 128, 0),
    "car": (0, 0, 255),
    "wheel": (0, 0, 0),
    "pole": (160, 160, 160),
    "lamp": (255, 255, 0),
}
SHADOW = "shadow"  # a part that darkens the rendering and is not in the label map


class Part(NamedTuple):
    """One part of a scene: a label or `SHADOW`, a bounding box, and the shape that fills the box."""

    label: str
    box: tuple[float, float, float, float]  # left, top, right, bottom from the top left, in units of the image's side
    # The top of a trapezoid is half as wide as its base.
    shape: Literal["box", "ellipse", "triangle", "trapezoid"] = "box"


def random_scene(rng: np.random.Generator) -> list[Part]:
    """Return a random street: houses, a pavement with trees and lamps, and a road with cars."""
    ground = _between(rng, 38, 43)  # where houses stand on the pavement
    kerb = ground + _between(rng, 5, 7)
    parts = [Part("sky", (0, 0, 1, ground))]
    left = _between(rng, -10, 0)
    while left < 1:
        width = _between(rng, 12, 22)
        parts += _house(rng, left, left + width, ground)
        left += width + _between(rng, 0, 6) * int(rng.integers(2))
    parts += [Part("pavement", (0, ground, 1, kerb)), Part("road", (0, kerb, 1, 1))]
    dash = _between(rng, 0, 15)
    line = kerb + _between(rng, 8, 9)
    parts += [Part("marking", (x, line, x + 8 * PIXEL, line + PIXEL)) for x in np.arange(dash - 16 * PIXEL, 1, 0.25)]
    for _ in range(int(rng.integers(0, 4))):
        parts += _tree(rng, _between(rng, 0, 64), kerb - 2 * PIXEL)
    for _ in range(int(rng.integers(0, 3))):
        left, top = _between(rng, 1, 62), kerb - 25 * PIXEL
        parts.append(Part("pole", (left, top, left + PIXEL, kerb - PIXEL)))
        parts.append(Part("lamp", (left - 2 * PIXEL, top - 3 * PIXEL, left + 3 * PIXEL, top), "ellipse"))
    for lane in (line - 2 * PIXEL, line + 7 * PIXEL):
        if rng.uniform() < 0.6:
            parts += _car(rng, _between(rng, -6, 54), lane)
    return parts


def draw(scene: list[Part], domain: Literal["labels", "rendering"], size: int = 64) -> Array:
    """Draw a scene as uint8 [size, size, 3]; label maps have no smooth edges."""
    if domain == "labels":
        visible = [part for part in scene if part.label != SHADOW]
        image = _paint(visible, size, lambda part, u, v: np.array(LABEL_COLORS[part.label]) / 255)
    else:  # the mean of 2 x 2 samples of each pixel
        image = _paint(scene, 2 * size, _texture).reshape(size, 2, size, 2, 3).mean(axis=(1, 3))
    return np.round(np.clip(image, 0, 1) * 255).astype(np.uint8)


def _paint(scene: list[Part], size: int, color: Callable[[Part, Array, Array], Array]) -> Array:
    """Paint the parts over each other: [size, size, 3] in [0, 1].

    `color` is a function of a part and of coordinates in it, to the right of its middle and upwards from its bottom.
    """
    image, centers = np.zeros((size, size, 3)), (np.arange(size) + 0.5) / size
    for part in scene:
        left, top, right, bottom = part.box
        rows, columns = (slice(*np.searchsorted(centers, ends)) for ends in ((top, bottom), (left, right)))
        u, v = centers[columns] - (left + right) / 2, bottom - centers[rows, None]
        across, up, below = np.abs(u) / ((right - left) / 2), v / (bottom - top), image[rows, columns]
        if part.shape == "ellipse":
            inside = across**2 + (2 * up - 1) ** 2 < 1
        else:
            inside = across + {"box": 0.0, "trapezoid": 0.5, "triangle": 1.0}[part.shape] * up < 1
        painted = 0.6 * below if part.label == SHADOW else color(part, u, v)
        image[rows, columns] = np.where(inside[..., None], painted, below)
    return image


def _between(rng: np.random.Generator, least: int, most: int) -> float:
    """Return a random multiple of `PIXEL`."""
    return int(rng.integers(least, most + 1)) * PIXEL


def _house(rng: np.random.Generator, left: float, right: float, ground: float) -> list[Part]:
    top = _between(rng, 8, 18)
    parts = [Part(str(rng.choice(["brick", "plaster"])), (left, top, right, ground))]
    if rng.uniform() < 0.6:
        parts.append(Part("roof", (left, top - _between(rng, 5, 8), right, top), "triangle"))
    columns = int((right - left) / PIXEL) // 7
    middles = [left + (right - left) * (i + 0.5) / columns for i in range(columns)]
    for middle in (round(each / PIXEL) * PIXEL for each in middles[: (columns + 1) // 2]):
        for x in {middle, left + right - middle}:  # symmetric
            for y in np.arange(top + 3 * PIXEL, ground - 14 * PIXEL, 8 * PIXEL):
                parts.append(Part("window", (x - 2 * PIXEL, y, x + 2 * PIXEL, y + 5 * PIXEL)))
    middle = (left + right) / 2
    return [*parts, Part("door", (middle - 2 * PIXEL, ground - 8 * PIXEL, middle + 2 * PIXEL, ground))]


def _tree(rng: np.random.Generator, x: float, ground: float) -> list[Part]:
    half, height, trunk = _between(rng, 4, 8), _between(rng, 10, 16), _between(rng, 6, 9)
    return [
        Part(SHADOW, (x - half, ground - PIXEL, x + half, ground + PIXEL), "ellipse"),
        Part("trunk", (x - PIXEL, ground - trunk, x + PIXEL, ground)),
        Part("tree", (x - half, ground - trunk - height + 2 * PIXEL, x + half, ground - trunk + 2 * PIXEL), "ellipse"),
    ]


def _car(rng: np.random.Generator, left: float, bottom: float) -> list[Part]:
    width = _between(rng, 8, 11) * 2
    right, middle, sill = left + width, left + width / 2, bottom - 2 * PIXEL
    wheels = ((x - 2 * PIXEL, bottom - 4 * PIXEL, x + 2 * PIXEL, bottom) for x in (left + 4 * PIXEL, right - 4 * PIXEL))
    return [
        Part(SHADOW, (left, bottom - PIXEL, right, bottom + PIXEL), "ellipse"),
        Part("car", (left + 3 * PIXEL, sill - 9 * PIXEL, right - 3 * PIXEL, sill - 4 * PIXEL), "trapezoid"),
        Part("window", (middle - 4 * PIXEL, sill - 8 * PIXEL, middle + 4 * PIXEL, sill - 4 * PIXEL), "trapezoid"),
        Part("car", (left, sill - 5 * PIXEL, right, sill)),
        *(Part("wheel", box, "ellipse") for box in wheels),
    ]


def _texture(part: Part, u: Array, v: Array) -> Array:
    """Return the colors of a part in the rendering, [h, w, 3] or [3], in [0, 1]."""
    left, top, right, bottom = part.box
    width, height, depth, u = right - left, bottom - top, bottom - top - v, np.abs(u)[None, :]
    up, grain = v / height + 0 * u, _noise(u * 64, v * 64)
    slabs = np.where(depth * 32 % 1 < 0.5, 0.8, 1.0)
    cornice = np.where(depth * 8 % 1 < 0.125, 0.75, 1.0)
    course = np.floor(v * 16)
    along = u * 8 + 0.5 * (course % 2)
    joint = (v * 16 % 1 < 0.25) | (along % 1 < 0.125)
    gap = (u * 16 + 0.5 * (np.floor(v * 32) % 2)) % 1 < 0.25
    frame = (u > width / 2 - PIXEL / 2) | (v < PIXEL / 2) | (v > height - PIXEL / 2) | (u < PIXEL / 4)
    panel = (u > PIXEL / 2) & (u < width / 2 - PIXEL / 2) & (v * 16 % 1 > 0.25)
    lights = (u > width / 2 - PIXEL) & (np.abs(v / height - 0.6) < 0.2)
    hub = (u / width) ** 2 + (v / height - 0.5) ** 2 < 0.05
    textures: dict[str, Callable[[], Array]] = {
        "sky": lambda: _mix((0.87, 0.92, 0.97), (0.33, 0.58, 0.9), up),
        "road": lambda: _shade((0.3, 0.3, 0.32), 1 + 0.04 * np.cos(depth * 64 * np.pi / 4) + 0.15 * (grain - 0.5)),
        "marking": lambda: np.array((0.93, 0.92, 0.85)),
        "pavement": lambda: _shade((0.62, 0.6, 0.57), np.where(v < PIXEL, 1.35, slabs) + 0 * u),
        "brick": lambda: _choose(
            joint, (0.74, 0.7, 0.66), _shade((0.6, 0.27, 0.2), 0.8 + 0.4 * _noise(course + 0 * u, along))
        ),
        "plaster": lambda: _shade((0.9, 0.82, 0.6), cornice * (0.94 + 0.12 * grain)),
        "roof": lambda: _shade((0.42, 0.2, 0.16), np.where(gap, 0.7, 1.0) * (0.7 + 0.6 * (v * 32 % 1))),
        "window": lambda: _choose(frame, 0.95, _mix((0.08, 0.13, 0.2), (0.4, 0.55, 0.68), up)),
        "door": lambda: _shade((0.36, 0.22, 0.1), np.where(panel, 1.3, 0.8)),
        "tree": lambda: _shade((0.2, 0.46, 0.13), (0.5 + 0.6 * v / height) * (0.7 + 0.6 * grain)),
        "trunk": lambda: _shade((0.4, 0.28, 0.17), np.where(u < PIXEL / 2, 1.2, 0.75) + 0 * v),
        "car": lambda: _choose(lights, (1.0, 0.93, 0.65), _shade((0.72, 0.1, 0.12), 0.55 + 0.7 * v / height + 0 * u)),
        "wheel": lambda: _choose(hub, 0.65, 0.07),
        "pole": lambda: np.array((0.2, 0.24, 0.23)),
        "lamp": lambda: _mix((1.0, 0.95, 0.75), (0.5, 0.5, 0.45), up),
    }
    return textures[part.label]()


def _noise(*cells: Array) -> Array:
    """Return a fixed random number in [0, 1) for each pair of whole coordinates."""
    i, j = (cell.astype(np.int64) for cell in cells)
    return ((((i * 73856093) ^ (j * 19349663)) * 2654435761 >> 8) & 0xFFFF) / 65536


def _mix(first: tuple[float, ...], second: tuple[float, ...], share: Array) -> Array:
    return np.array(first) + share[..., None] * (np.array(second) - np.array(first))


def _shade(color: tuple[float, ...], brightness: Array) -> Array:
    return np.array(color) * brightness[..., None]


def _choose(condition: Array, color: Any, other: Any) -> Array:
    return np.where(condition[..., None], color, other)
