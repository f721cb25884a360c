"""Drawings of the embedded dataset `scenes`: label maps of streets, and the streets with their textures.

A scene is a list of parts from back to front. Its label map shows the class of each part as one color, its rendering the texture
and the light of each class in the box of the part. Both are known for each scene, so the true translation is known in both
directions; the texture of a part that others hide in part may begin where the label map does not show it. A mirrored scene has
the mirrored images.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import numpy as np

from cyclegan.data.scene_textures import PIXEL, TEXTURES

Domain = Literal["labels", "rendering"]
Box = tuple[float, float, float, float]  # left, top, right, bottom from the top left, in units of the image's side
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


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of a scene.

    Attributes:
        label: A key of `LABEL_COLORS`, or `SHADOW`.
        box: Its bounding box.
        shape: Its shape in the box; a trapezoid has a top of half its width.
    """

    label: str
    box: Box
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
        parts += _lamp(_between(rng, 1, 62), kerb - PIXEL)
    for lane in (line - 2 * PIXEL, line + 7 * PIXEL):
        if rng.uniform() < 0.6:
            parts += _car(rng, _between(rng, -6, 54), lane)
    return parts


def draw(scene: list[Part], domain: Domain, size: int = 64) -> np.ndarray:
    """Draw a scene.

    Args:
        scene: The scene.
        domain: "labels", without smooth edges, or "rendering".
        size: Side of the image in pixels.

    Returns:
        uint8 [size, size, 3].
    """
    if domain == "labels":
        image = _paint(scene, size, lambda part, u, v: np.array(LABEL_COLORS[part.label]) / 255, with_shadows=False)
    else:  # the mean of 2 x 2 samples of each pixel
        image = _paint(scene, 2 * size, _texture, with_shadows=True)
        image = image.reshape(size, 2, size, 2, 3).mean(axis=(1, 3))
    return np.round(np.clip(image, 0, 1) * 255).astype(np.uint8)


def _paint(
    scene: list[Part], size: int, color: Callable[[Part, np.ndarray, np.ndarray], np.ndarray], with_shadows: bool
) -> np.ndarray:
    """Paint the parts over each other: [size, size, 3] in [0, 1].

    Args:
        scene: The parts.
        size: Side of the image in pixels.
        color: Function of a part and of the coordinates in it, to the right of its middle and upwards from its bottom.
        with_shadows: Whether to paint shadows.
    """
    image, centers = np.zeros((size, size, 3)), (np.arange(size) + 0.5) / size
    for part in scene:
        left, top, right, bottom = part.box
        rows, columns = (slice(*np.searchsorted(centers, ends)) for ends in ((top, bottom), (left, right)))
        u, v = centers[columns] - (left + right) / 2, bottom - centers[rows, None]
        inside = _inside(part, u, v)[..., None]
        below = image[rows, columns]
        if part.label != SHADOW:
            image[rows, columns] = np.where(inside, color(part, u, v), below)
        elif with_shadows:
            image[rows, columns] = np.where(inside, 0.6 * below, below)
    return image


def _inside(part: Part, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    width, height = _size(part)
    across, up = np.abs(u) / (width / 2), v / height
    if part.shape == "ellipse":
        return across**2 + (2 * up - 1) ** 2 < 1
    narrowing = {"box": 0.0, "trapezoid": 0.5, "triangle": 1.0}[part.shape]
    return across + narrowing * up < 1


def _size(part: Part) -> tuple[float, float]:
    left, top, right, bottom = part.box
    return right - left, bottom - top


def _between(rng: np.random.Generator, least: int, most: int) -> float:
    """Return a random multiple of `PIXEL`."""
    return int(rng.integers(least, most + 1)) * PIXEL


def _house(rng: np.random.Generator, left: float, right: float, ground: float) -> list[Part]:
    top = _between(rng, 8, 18)
    material = str(rng.choice(["brick", "plaster"]))
    parts = [Part(material, (left, top, right, ground))]
    if rng.uniform() < 0.6:
        parts.append(Part("roof", (left, top - _between(rng, 5, 8), right, top), "triangle"))
    columns = int((right - left) / PIXEL) // 7
    middles = [left + (right - left) * (i + 0.5) / columns for i in range(columns)]
    for middle in (round(each / PIXEL) * PIXEL for each in middles[: (columns + 1) // 2]):
        for x in {middle, left + right - middle}:  # symmetric
            y = top + 3 * PIXEL
            while y < ground - 14 * PIXEL:
                parts.append(Part("window", (x - 2 * PIXEL, y, x + 2 * PIXEL, y + 5 * PIXEL)))
                y += 8 * PIXEL
    middle = (left + right) / 2
    return [*parts, Part("door", (middle - 2 * PIXEL, ground - 8 * PIXEL, middle + 2 * PIXEL, ground))]


def _tree(rng: np.random.Generator, x: float, ground: float) -> list[Part]:
    half, height, trunk = _between(rng, 4, 8), _between(rng, 10, 16), _between(rng, 6, 9)
    return [
        Part(SHADOW, (x - half, ground - PIXEL, x + half, ground + PIXEL), "ellipse"),
        Part("trunk", (x - PIXEL, ground - trunk, x + PIXEL, ground)),
        Part("tree", (x - half, ground - trunk - height + 2 * PIXEL, x + half, ground - trunk + 2 * PIXEL), "ellipse"),
    ]


def _lamp(left: float, ground: float) -> list[Part]:
    right, top = left + PIXEL, ground - 24 * PIXEL
    lamp = Part("lamp", (left - 2 * PIXEL, top - 3 * PIXEL, right + 2 * PIXEL, top), "ellipse")
    return [Part("pole", (left, top, right, ground)), lamp]


def _car(rng: np.random.Generator, left: float, bottom: float) -> list[Part]:
    width = _between(rng, 8, 11) * 2
    right, middle, sill = left + width, left + width / 2, bottom - 2 * PIXEL
    wheels = [
        Part("wheel", (x - 2 * PIXEL, bottom - 4 * PIXEL, x + 2 * PIXEL, bottom), "ellipse")
        for x in (left + 4 * PIXEL, right - 4 * PIXEL)
    ]
    return [
        Part(SHADOW, (left, bottom - PIXEL, right, bottom + PIXEL), "ellipse"),
        Part("car", (left + 3 * PIXEL, sill - 9 * PIXEL, right - 3 * PIXEL, sill - 4 * PIXEL), "trapezoid"),
        Part("window", (middle - 4 * PIXEL, sill - 8 * PIXEL, middle + 4 * PIXEL, sill - 4 * PIXEL), "trapezoid"),
        Part("car", (left, sill - 5 * PIXEL, right, sill)),
        *wheels,
    ]


def _texture(part: Part, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the colors of a part in the rendering: [h, w, 3], or [3] if they are equal."""
    return TEXTURES[part.label](np.abs(u)[None, :], v, *_size(part))
