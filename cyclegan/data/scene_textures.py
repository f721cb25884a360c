"""Textures of the embedded street scenes.

A texture is a function of the distance from the middle of a part, of the height above its bottom (both in units of the image's
side), and of the width and height of the part. It returns colors in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray
PIXEL = 1 / 64  # all edges are multiples of it, so images of 64 and 128 pixels show the same


def _noise(*cells: Array) -> Array:
    """Return a fixed random number in [0, 1) for each pair of whole coordinates."""
    i, j = (cell.astype(np.int64) for cell in cells)
    mixed = (i * 73856093) ^ (j * 19349663)
    return ((mixed * 2654435761 >> 8) & 0xFFFF) / 65536


def _mix(first: tuple[float, ...], second: tuple[float, ...], share: Array) -> Array:
    return np.array(first) + share[..., None] * (np.array(second) - np.array(first))


def _shade(color: tuple[float, ...], brightness: Array) -> Array:
    return np.array(color) * brightness[..., None]


def _sky(u: Array, v: Array, width: float, height: float) -> Array:
    return _mix((0.87, 0.92, 0.97), (0.33, 0.58, 0.9), v / height + 0 * u)


def _road(u: Array, v: Array, width: float, height: float) -> Array:
    tracks = 0.04 * np.cos((height - v) * 64 * np.pi / 4)
    return _shade((0.3, 0.3, 0.32), 1 + tracks + 0.15 * (_noise(u * 64, v * 64) - 0.5))


def _marking(u: Array, v: Array, width: float, height: float) -> Array:
    return np.array((0.93, 0.92, 0.85))


def _pavement(u: Array, v: Array, width: float, height: float) -> Array:
    depth = height - v
    slabs = np.where(depth * 32 % 1 < 0.5, 0.8, 1.0)
    return _shade((0.62, 0.6, 0.57), np.where(v < PIXEL, 1.35, slabs) + 0 * u)


def _brick(u: Array, v: Array, width: float, height: float) -> Array:
    course = np.floor(v * 16)
    along = u * 8 + 0.5 * (course % 2)
    joint = (v * 16 % 1 < 0.25) | (along % 1 < 0.125)
    bricks = _shade((0.6, 0.27, 0.2), 0.8 + 0.4 * _noise(course + 0 * u, along))
    return np.where(joint[..., None], np.array((0.74, 0.7, 0.66)), bricks)


def _plaster(u: Array, v: Array, width: float, height: float) -> Array:
    cornice = np.where((height - v) * 8 % 1 < 0.125, 0.75, 1.0)
    return _shade((0.9, 0.82, 0.6), cornice * (0.94 + 0.12 * _noise(u * 64, v * 64)))


def _roof(u: Array, v: Array, width: float, height: float) -> Array:
    row = np.floor(v * 32)
    gap = (u * 16 + 0.5 * (row % 2)) % 1 < 0.25
    return _shade((0.42, 0.2, 0.16), np.where(gap, 0.7, 1.0) * (0.7 + 0.6 * (v * 32 % 1)))


def _window(u: Array, v: Array, width: float, height: float) -> Array:
    frame = (u > width / 2 - PIXEL / 2) | (v < PIXEL / 2) | (v > height - PIXEL / 2) | (u < PIXEL / 4)
    glass = _mix((0.08, 0.13, 0.2), (0.4, 0.55, 0.68), v / height + 0 * u)
    return np.where(frame[..., None], 0.95, glass)


def _door(u: Array, v: Array, width: float, height: float) -> Array:
    panel = (u > PIXEL / 2) & (u < width / 2 - PIXEL / 2) & (v * 16 % 1 > 0.25)
    return _shade((0.36, 0.22, 0.1), np.where(panel, 1.3, 0.8))


def _tree_top(u: Array, v: Array, width: float, height: float) -> Array:
    return _shade((0.2, 0.46, 0.13), (0.5 + 0.6 * v / height) * (0.7 + 0.6 * _noise(u * 64, v * 64)))


def _trunk(u: Array, v: Array, width: float, height: float) -> Array:
    return _shade((0.4, 0.28, 0.17), np.where(u < PIXEL / 2, 1.2, 0.75) + 0 * v)


def _car_body(u: Array, v: Array, width: float, height: float) -> Array:
    lights = (u > width / 2 - PIXEL) & (np.abs(v / height - 0.6) < 0.2)
    body = _shade((0.72, 0.1, 0.12), 0.55 + 0.7 * v / height + 0 * u)
    return np.where(lights[..., None], np.array((1.0, 0.93, 0.65)), body)


def _wheel(u: Array, v: Array, width: float, height: float) -> Array:
    hub = (u / width) ** 2 + (v / height - 0.5) ** 2 < 0.05
    return np.where(hub[..., None], 0.65, 0.07)


def _pole(u: Array, v: Array, width: float, height: float) -> Array:
    return np.array((0.2, 0.24, 0.23))


def _lamp_head(u: Array, v: Array, width: float, height: float) -> Array:
    return _mix((1.0, 0.95, 0.75), (0.5, 0.5, 0.45), v / height + 0 * u)


TEXTURES: dict[str, Callable[[Array, Array, float, float], Array]] = {
    "sky": _sky,
    "road": _road,
    "marking": _marking,
    "pavement": _pavement,
    "brick": _brick,
    "plaster": _plaster,
    "roof": _roof,
    "window": _window,
    "door": _door,
    "tree": _tree_top,
    "trunk": _trunk,
    "car": _car_body,
    "wheel": _wheel,
    "pole": _pole,
    "lamp": _lamp_head,
}
