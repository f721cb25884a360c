"""The embedded data set: horses and zebras drawn by code, as a TFDS builder.

Brown horses (domain A) and black-and-white striped zebras (domain B), made of ellipses, on grass under a sky. Unpaired in
training; in the test split, trainA's and trainB's counterparts are drawn in pairs of one scene, so that the true
translation is known. Needs no network: for demonstrations, tests and trying things out.
"""

import dataclasses
import math

import numpy as np
import tensorflow_datasets as tfds

SPLITS = {"trainA": 256, "trainB": 288, "testA": 32, "testB": 32}


@dataclasses.dataclass(frozen=True)
class Scene:
    """One animal in one landscape. Lengths in units of the picture's side, angles in radians, colours RGB in [0, 1]."""

    place: tuple  # the middle of the body, (x, y) from the top left
    size: float  # half the length of the body
    tilt: float
    direction: int  # 1 looks to the right, -1 to the left
    legs: tuple  # how far each of the four legs swings forward
    head: float  # angle of the neck above the horizontal
    brown: tuple  # the coat of the horse
    stripe: float  # the period of the zebra's stripes, in units of `size`
    phase: float  # where the stripes begin
    light: float  # how much brighter the top of the animal is than its belly
    sky: tuple
    grass: tuple
    horizon: float
    texture: int  # seed of the grass


def scene(rng):
    """A random scene, drawn from a `numpy.random.Generator`."""
    tone = rng.uniform(0.8, 1.2)
    return Scene(
        place=(rng.uniform(0.4, 0.6), rng.uniform(0.48, 0.6)),
        size=rng.uniform(0.23, 0.29),
        tilt=rng.uniform(-0.15, 0.15),
        direction=int(rng.choice([-1, 1])),
        legs=tuple(rng.uniform(-0.25, 0.25, 4)),
        head=rng.uniform(0.6, 1.1),
        brown=tuple(tone * np.array([0.52, 0.31, 0.15]) + rng.uniform(-0.03, 0.03, 3)),
        stripe=rng.uniform(0.32, 0.4),
        phase=rng.uniform(0, 2 * math.pi),
        light=rng.uniform(0.15, 0.35),
        sky=tuple(np.array([0.55, 0.72, 0.9]) + rng.uniform(-0.06, 0.06, 3)),
        grass=tuple(np.array([0.36, 0.58, 0.22]) + rng.uniform(-0.06, 0.06, 3)),
        horizon=rng.uniform(0.3, 0.5),
        texture=int(rng.integers(2**31)),
    )


def draw(scene, animal, size=64):
    """Draws the scene with a "horse" or a "zebra" in it. Returns uint8 [size, size, 3].

    The two differ in the animal's coat only.
    """
    y, x = (np.mgrid[:size, :size] + 0.5) / size
    picture = _landscape(scene, x, y)
    cos, sin = math.cos(scene.tilt), math.sin(scene.tilt)
    dx, dy = scene.direction * (x - scene.place[0]), y - scene.place[1]
    u, v = (dx * cos + dy * sin) / scene.size, (dy * cos - dx * sin) / scene.size  # the body reaches from u = -1 to 1
    edge = 1 / (size * scene.size)  # one pixel: how soft an edge is
    light = 1 + scene.light * np.clip(-v, -0.6, 0.8)
    for inside, across in _parts(scene, u, v, edge):
        if animal == "horse":
            coat = np.array(scene.brown) * np.ones((size, size, 1))
        else:
            wave = np.sin(2 * math.pi * across / scene.stripe + scene.phase)
            white = np.clip(0.5 + wave * scene.stripe / (2 * math.pi * edge), 0, 1)
            coat = (0.08 + 0.84 * white)[..., None] * np.ones(3)
        coat = np.clip(coat * light[..., None], 0, 1)
        picture += inside[..., None] * (coat - picture)
    eye = _ellipse(u, v, *_head(scene, 0.1, 0.08), 0.06, 0.06, 0, edge)
    picture += eye[..., None] * (0.02 - picture)
    return np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)


def _landscape(scene, x, y):
    rng = np.random.default_rng(scene.texture)
    cells = rng.uniform(-1, 1, (24, 24))  # coarse enough to look the same at any size
    rows, columns = (np.clip(t * 24, 0, 23).astype(int) for t in (y, x))
    blades = cells[rows, columns] * 0.05
    grass = np.array(scene.grass) * (0.75 + 0.5 * y[..., None]) + blades[..., None]
    sky = np.array(scene.sky) + 0.25 * (y / scene.horizon)[..., None] * np.array([1, 0.8, 0.3])
    ground = np.clip((y - scene.horizon) * len(y) + 0.5, 0, 1)[..., None]
    return np.clip(sky, 0, 1) * (1 - ground) + np.clip(grass, 0, 1) * ground


def _ellipse(u, v, cu, cv, ru, rv, angle, edge):
    """How much of each pixel lies inside an ellipse: [H, W] in [0, 1]."""
    cos, sin = math.cos(angle), math.sin(angle)
    a, b = (u - cu) * cos + (v - cv) * sin, (v - cv) * cos - (u - cu) * sin
    radius = np.sqrt((a / ru) ** 2 + (b / rv) ** 2)
    return np.clip((1 - radius) * min(ru, rv) / edge + 0.5, 0, 1)


def _head(scene, forward, up):
    """A point of the head, in body units: where the neck ends, and from there."""
    return 0.75 + 0.95 * math.cos(scene.head) + forward, -0.2 - 0.95 * math.sin(scene.head) - up


def _parts(scene, u, v, edge):
    """The animal from back to front: pairs of how much of each pixel a part covers, and the way across its stripes."""
    for i, swing in enumerate(scene.legs):
        root = (-0.72, 0.62, -0.5, 0.8)[i]
        cu, cv = root + 0.5 * math.sin(swing), 0.35 + 0.5 * math.cos(swing)
        yield _ellipse(u, v, cu, cv, 0.13, 0.58, -swing, edge), v
    yield _ellipse(u, v, -1.12, 0.2, 0.09, 0.42, 0.3, edge), v  # the tail
    neck = math.pi - scene.head
    along = (u - 0.75) * math.cos(scene.head) - (v + 0.2) * math.sin(scene.head)
    cu, cv = (np.array([0.75, -0.2]) + _head(scene, 0, 0)) / 2
    yield _ellipse(u, v, cu, cv, 0.62, 0.24, neck, edge), along
    yield _ellipse(u, v, 0, 0, 1.05, 0.46, 0, edge), u  # the body
    yield _ellipse(u, v, *_head(scene, -0.08, 0.18), 0.06, 0.16, 0.1, edge), v  # an ear
    yield _ellipse(u, v, *_head(scene, 0.14, 0.0), 0.36, 0.18, 0.5, edge), u


class StripesConfig(tfds.core.BuilderConfig):
    """`size`: the side of the pictures, in pixels."""

    def __init__(self, size=64):
        super().__init__(name=str(size), description=f"{size} x {size} pixels")
        self.size = size


class Stripes(tfds.core.GeneratorBasedBuilder):
    """Drawn horses (A) and zebras (B); the splits and features of `cycle_gan`. See `builder`."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First release."}
    BUILDER_CONFIGS = [StripesConfig(64)]

    def _info(self):
        size = self.builder_config.size
        return tfds.core.DatasetInfo(
            builder=self,
            disable_shuffling=True,  # keeps the test pairs together
            description="Drawn brown horses (A) and striped zebras (B), unpaired in training, paired in the test splits.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(size, size, 3), encoding_format="png"),
                    "label": tfds.features.ClassLabel(names=["A", "B"]),
                }
            ),
        )

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in SPLITS}

    def _generate_examples(self, split):
        domain = split[-1]
        # The test splits draw from the same seed: testA[i] and testB[i] are the same scene.
        seed = {"trainA": 1, "trainB": 2}.get(split, 3)
        for i in range(SPLITS[split]):
            where = scene(np.random.default_rng([seed, i]))
            animal = "horse" if domain == "A" else "zebra"
            yield i, {"image": draw(where, animal, self.builder_config.size), "label": domain}


def builder(size=64, data_dir=None):
    """The TFDS builder for pictures of `size` x `size` pixels."""
    named = {config.size: config.name for config in Stripes.BUILDER_CONFIGS}
    return Stripes(config=named.get(size) or StripesConfig(size), data_dir=data_dir)
