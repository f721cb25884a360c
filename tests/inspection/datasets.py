"""Folders of images for the tests of inspections."""

import numpy as np
import tifffile
from PIL import Image

from cyclegan.config import Config
from cyclegan.inspection import inspection


def texture(seed, size=(64, 64)):
    """Return an image of colored spots unlike each other."""
    spots = np.random.default_rng(seed).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    return Image.fromarray(spots).resize(size, Image.Resampling.BICUBIC)


def save(image, path, **options):
    """Save an image; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def inspect(folder, **settings):
    """Inspect a folder with these settings of training."""
    config = Config.from_settings(**{"image_size": 64, "load_size": 64, **settings})
    return inspection.inspect(folder, config.data, config.networks.multiple)


def sound_folder(folder, counts=(6, 6, 3, 3)):
    """Write images without a defect; return the folder."""
    for split, (name, count) in enumerate(zip(("trainA", "trainB", "testA", "testB"), counts)):
        for i in range(count):
            save(texture(100 * split + i), folder / name / f"{i}.png")
    return folder


def planted_folder(folder):
    """Write images with one defect of each kind; return {title of the finding: names of its groups}."""
    sound_folder(folder, (6, 16, 3, 3))
    save(texture(900), folder / "trainA/cut.jpg")
    content = (folder / "trainA/cut.jpg").read_bytes()
    (folder / "trainA/cut.jpg").write_bytes(content[: len(content) // 2])
    save(texture(901), folder / "trainA/both.png")
    save(texture(901), folder / "trainB/both.bmp")
    save(texture(902), folder / "trainA/leak.png")
    save(texture(902), folder / "testA/leak.png")
    save(texture(903), folder / "trainB/copy1.png")
    save(texture(903), folder / "trainB/copy2.tif")
    save(texture(904), folder / "testB/like1.png")
    save(texture(904).resize((50, 50)), folder / "testB/like2.jpg", quality=60)
    save(Image.new("RGB", (64, 64), (200, 100, 50)), folder / "trainA/flat.png")
    save(texture(905).convert("L"), folder / "trainB/gray.png")
    save(texture(906).resize((30, 58)), folder / "testA/small.png")
    save(texture(907), folder / "testB/named.jpg", format="png")
    tifffile.imwrite(folder / "trainA/dark.tif", np.asarray(texture(908)).astype(np.uint16) * 16)  # 12 bits
    return {
        "unreadable files": [["trainA/cut.jpg"]],
        "images in both domains": [["trainA/both.png", "trainB/both.bmp"]],
        "images in training and test": [["trainA/leak.png", "testA/leak.png"]],
        "duplicates": [["trainB/copy1.png", "trainB/copy2.tif"]],
        "near duplicates": [["testB/like1.png", "testB/like2.jpg"]],
        "nearly constant images": [["trainA/flat.png"]],
        "gray images among colored ones, or the reverse": [["trainB/gray.png"]],
        "images that are enlarged more than 1.5 times": [["testA/small.png"]],
        "very different numbers of images": [],
        "names that contradict the content": [["testB/named.jpg"]],
        "values that fill a small part of their range": [],
    }
