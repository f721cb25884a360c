"""Drawings of the embedded dataset `stripes`: brown horses and striped zebras on grass under a sky.

A scene can be drawn with either animal, so that the true translation of every image is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace as Scene  # one animal in one landscape
from typing import Literal

import numpy as np


def random_scene(rng: np.random.Generator) -> Scene:
    """Return a random scene: lengths in units of the image's side, angles in radians, colors RGB in [0, 1]."""
    tone = rng.uniform(0.8, 1.2)
    return Scene(
        center=(rng.uniform(0.4, 0.6), rng.uniform(0.48, 0.6)),  # of the body, from the top left
        size=rng.uniform(0.23, 0.29),  # half the length of the body
        tilt=rng.uniform(-0.15, 0.15),
        facing=int(rng.choice([-1, 1])),  # 1 is to the right
        leg_swings=tuple(rng.uniform(-0.25, 0.25, 4)),  # forward
        neck_angle=rng.uniform(0.6, 1.1),  # above the horizontal
        coat_color=tuple(tone * np.array([0.52, 0.31, 0.15]) + rng.uniform(-0.03, 0.03, 3)),  # of the horse
        stripe_period=rng.uniform(0.32, 0.4),  # of the zebra, in units of `size`
        stripe_phase=rng.uniform(0, 2 * math.pi),
        shading=rng.uniform(0.15, 0.35),  # difference in brightness between the top of the animal and its belly
        sky_color=tuple(np.array([0.55, 0.72, 0.9]) + rng.uniform(-0.06, 0.06, 3)),
        grass_color=tuple(np.array([0.36, 0.58, 0.22]) + rng.uniform(-0.06, 0.06, 3)),
        horizon=rng.uniform(0.3, 0.5),  # from the top
        texture_seed=int(rng.integers(2**31)),  # of the grass
    )


def draw(scene: Scene, animal: Literal["horse", "zebra"], size: int = 64) -> np.ndarray:
    """Draw a scene as uint8 [size, size, 3]. Horse and zebra differ in their coats only."""
    y, x = (np.mgrid[:size, :size] + 0.5) / size
    image = _landscape(scene, x, y)
    cos, sin = math.cos(scene.tilt), math.sin(scene.tilt)
    dx, dy = scene.facing * (x - scene.center[0]), y - scene.center[1]
    u, v = (dx * cos + dy * sin) / scene.size, (dy * cos - dx * sin) / scene.size  # the body reaches from u = -1 to 1
    edge = 1 / (size * scene.size)  # softness of edges: one pixel
    brightness = 1 + scene.shading * np.clip(-v, -0.6, 0.8)
    for inside, across in _body_parts(scene, u, v, edge):
        if animal == "horse":
            coat = np.array(scene.coat_color) * np.ones((size, size, 1))
        else:
            wave = np.sin(2 * math.pi * across / scene.stripe_period + scene.stripe_phase)
            white = np.clip(0.5 + wave * scene.stripe_period / (2 * math.pi * edge), 0, 1)
            coat = (0.08 + 0.84 * white)[..., None] * np.ones(3)
        coat = np.clip(coat * brightness[..., None], 0, 1)
        image += inside[..., None] * (coat - image)
    eye = _ellipse(u, v, *_head(scene, 0.1, 0.08), 0.06, 0.06, 0, edge)
    image += eye[..., None] * (0.02 - image)
    return np.round(np.clip(image, 0, 1) * 255).astype(np.uint8)


def _landscape(scene: Scene, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return sky and grass: [H, W, 3] in [0, 1]."""
    rng = np.random.default_rng(scene.texture_seed)
    cells = rng.uniform(-1, 1, (24, 24))  # coarse enough to look the same at any size
    rows, columns = (np.clip(t * 24, 0, 23).astype(int) for t in (y, x))
    blades = cells[rows, columns] * 0.05
    grass = np.array(scene.grass_color) * (0.75 + 0.5 * y[..., None]) + blades[..., None]
    sky = np.array(scene.sky_color) + 0.25 * (y / scene.horizon)[..., None] * np.array([1, 0.8, 0.3])
    ground = np.clip((y - scene.horizon) * len(y) + 0.5, 0, 1)[..., None]
    return np.clip(sky, 0, 1) * (1 - ground) + np.clip(grass, 0, 1) * ground


def _ellipse(
    u: np.ndarray, v: np.ndarray, cu: float, cv: float, ru: float, rv: float, angle: float, edge: float
) -> np.ndarray:
    """Return the fraction of each pixel inside an ellipse with center (cu, cv) and radii (ru, rv): [H, W] in [0, 1]."""
    cos, sin = math.cos(angle), math.sin(angle)
    a, b = (u - cu) * cos + (v - cv) * sin, (v - cv) * cos - (u - cu) * sin
    radius = np.sqrt((a / ru) ** 2 + (b / rv) ** 2)
    return np.clip((1 - radius) * min(ru, rv) / edge + 0.5, 0, 1)


def _head(scene: Scene, forward: float, up: float) -> tuple[float, float]:
    """Return a point of the head in units of the body, relative to the end of the neck."""
    return 0.75 + 0.95 * math.cos(scene.neck_angle) + forward, -0.2 - 0.95 * math.sin(scene.neck_angle) - up


def _body_parts(scene: Scene, u: np.ndarray, v: np.ndarray, edge: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the parts of the animal from back to front: (fraction of each pixel, coordinate across the stripes)."""
    for i, swing in enumerate(scene.leg_swings):
        root = (-0.72, 0.62, -0.5, 0.8)[i]
        cu, cv = root + 0.5 * math.sin(swing), 0.35 + 0.5 * math.cos(swing)
        yield _ellipse(u, v, cu, cv, 0.13, 0.58, -swing, edge), v
    yield _ellipse(u, v, -1.12, 0.2, 0.09, 0.42, 0.3, edge), v  # the tail
    neck = math.pi - scene.neck_angle
    along = (u - 0.75) * math.cos(scene.neck_angle) - (v + 0.2) * math.sin(scene.neck_angle)
    cu, cv = (np.array([0.75, -0.2]) + _head(scene, 0, 0)) / 2
    yield _ellipse(u, v, cu, cv, 0.62, 0.24, neck, edge), along
    yield _ellipse(u, v, 0, 0, 1.05, 0.46, 0, edge), u  # the body
    yield _ellipse(u, v, *_head(scene, -0.08, 0.18), 0.06, 0.16, 0.1, edge), v  # an ear
    yield _ellipse(u, v, *_head(scene, 0.14, 0.0), 0.36, 0.18, 0.5, edge), u
