"""Datasets of noise."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.data.lazy_images import LazyImages
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.images import reader
from scripts.benchmarking.settings import Setting


def make_dataset(setting: Setting, calls: int) -> UnpairedDataset:
    """Return a dataset of noise with `calls` calls in an epoch, cropped at random from larger images and flipped."""
    load_size = Config.from_settings(image_size=setting.size).data.load_size
    shape = (2, setting.batch * setting.steps_per_call * calls, load_size, load_size, 3)
    domains = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    if setting.cache == "none":
        domains = map(_as_jpegs, domains)
    size = (setting.size, setting.size)
    return UnpairedDataset(*domains, setting.batch, size, seed=0, steps_per_call=setting.steps_per_call)


def _as_jpegs(images: np.ndarray) -> LazyImages:
    """Return JPEGs of noise, as many and as large as the images, uint8 [N, h, w, 3], which are decoded on each access."""
    height, width = images.shape[1:3]
    coarse = images[:8].repeat(4, axis=1).repeat(4, axis=2)[:, :height, :width]  # a photograph is no finer
    files = [tf.io.encode_jpeg(image).numpy() for image in coarse]
    sizes = np.broadcast_to([height, width], (len(images), 2))
    return LazyImages(lambda i: reader.decode(files[i % len(files)]), images.shape, sizes, images.dtype)
