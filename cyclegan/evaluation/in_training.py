"""The evaluator of --evaluate_every, which scores the generators during training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from cyclegan.config import Config
from cyclegan.evaluation.evaluator import Evaluator
from cyclegan.evaluation.features import make_extractor
from cyclegan.images.image_array import ImageArray


def make_evaluator(
    config: Config, generators: Sequence[Callable[..., tf.Tensor]], x: ImageArray, y: ImageArray, size: tuple[int, int]
) -> Evaluator:
    """Return the evaluator of a training run.

    Args:
        config: The configuration.
        generators: G and F.
        x: Held-out images of X.
        y: Held-out images of Y.
        size: (height, width) in pixels that the networks see.

    Raises:
        UserError: The features are not available, or a domain has fewer than 2 images.
    """
    G, F = generators
    extractor = make_extractor(config.evaluation.evaluate_features, (config.data.channels_x, config.data.channels_y))
    is_paired = config.data.dataset == "stripes"
    return Evaluator(G, F, x, y, size, extractor, paired=is_paired, bars=config.run.verbose > 0)
