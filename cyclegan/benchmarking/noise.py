"""Datasets of noise."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from cyclegan.benchmarking.settings import Setting
from cyclegan.config import Config
from cyclegan.data.loading import LazyImages
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.images import reader


def make_dataset(setting: Setting, calls: int) -> UnpairedDataset:
    """Return a dataset of noise with `calls` calls in an epoch, cropped at random from larger images and flipped."""
    load_size = Config.from_settings(image_size=setting.size).data.load_size
    shape = (2, setting.batch * setting.steps_per_call * calls, load_size, load_size, 3)
    x, y = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    if setting.cache == "none":
        x, y = _as_jpegs(x), _as_jpegs(y)
    size = (setting.size, setting.size)
    return UnpairedDataset(x, y, setting.batch, size, seed=0, steps_per_call=setting.steps_per_call)


def _as_jpegs(images: np.ndarray) -> LazyImages:
    """Return JPEGs of noise, as many and as large as the images, uint8 [N, h, w, 3], which are decoded on each access."""
    count, height, width, channels = images.shape
    coarse = images[:8].repeat(4, axis=1).repeat(4, axis=2)[:, :height, :width]  # a photograph is no finer
    files = [tf.io.encode_jpeg(image).numpy() for image in coarse]
    return LazyImages(lambda i: reader.decode(files[i % len(files)]), (count, height, width, channels), images.dtype)
