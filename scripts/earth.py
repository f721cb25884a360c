#!/usr/bin/env python
"""Make the dataset of README's photographs: NASA's photograph of the Earth, and maps of other places drawn from it.

`apt-get download xplanet-images && dpkg-deb -x xplanet-images*.deb nasa` brings the photograph; then
`python scripts/earth.py nasa/usr/share/xplanet/images/earth.jpg earth` writes earth/trainA (photographs) and so on.
"""

import argparse
import pathlib

import numpy as np
from PIL import Image, ImageFilter

SIDE, STRIPE = 96, 128  # pixels of a crop, and of the stripes that divide the world among the folders
COLORS = [[50, 80, 150], [90, 180, 200], [70, 115, 55], [155, 165, 95], [225, 195, 140], [250, 250, 250]]
DEEP, SHALLOW, FOREST, STEPPE, DESERT, ICE = range(len(COLORS))


def draw_map(photograph: Image.Image) -> Image.Image:
    """Return a map of six colors, by the colors of a photograph."""
    pixels = np.asarray(photograph.filter(ImageFilter.GaussianBlur(1.5)), np.float32)
    red, green, blue = np.moveaxis(pixels, -1, 0)
    light, range_of_channels = pixels.mean(-1), np.ptp(pixels, axis=-1)
    is_sea = (blue > red + 12) & (blue > green - 10)
    kinds = np.where(is_sea, np.where(light > 75, SHALLOW, DEEP), FOREST)
    kinds[~is_sea & (red > green - 2) & (light > 75)] = STEPPE
    kinds[~is_sea & (red > green + 8) & (light > 120)] = DESERT
    kinds[~is_sea & (light > 165) & (range_of_channels < 60)] = ICE
    smooth = Image.fromarray(kinds.astype(np.uint8)).filter(ImageFilter.ModeFilter(5))
    return Image.fromarray(np.array(COLORS, np.uint8)[np.asarray(smooth)])


def main() -> None:
    """Write the crops."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photograph", help="earth.jpg, 2048 x 1024 pixels")
    parser.add_argument("folder", type=pathlib.Path, help="folder of the dataset")
    options = parser.parse_args()
    photograph = Image.open(options.photograph).convert("RGB")
    drawn = draw_map(photograph)
    is_sea = (np.asarray(drawn) == COLORS[DEEP]).all(-1)
    for left in range(0, photograph.width, STRIPE):
        places = ("trainA", "trainB", "trainA" if left // STRIPE % 8 > 4 else "trainB", "test")
        place = places[left // STRIPE % 4]
        step = 8 if place != "test" else 32
        for x in range(left, left + STRIPE - SIDE + 1, step):
            for y in range(150, 720, 2 * step):
                box = (x, y, x + SIDE, y + SIDE)
                if is_sea[y : y + SIDE, x : x + SIDE].mean() > 0.75:
                    continue
                for name, image in (("A", photograph), ("B", drawn)):
                    if place in (f"train{name}", "test"):
                        folder = options.folder / f"{place.rstrip('AB')}{name}"
                        folder.mkdir(parents=True, exist_ok=True)
                        image.crop(box).save(folder / f"{x:04d}_{y:03d}.png")


if __name__ == "__main__":
    main()
