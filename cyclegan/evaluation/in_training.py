"""The evaluator of --evaluate_every, which scores the generators during training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from cyclegan.evaluation.evaluator import Evaluator
from cyclegan.evaluation.features import make_extractor
from cyclegan.images.image_array import ImageArray


def make_evaluator(
    features: str,
    generators: Sequence[Callable[..., tf.Tensor]],
    x: ImageArray,
    y: ImageArray,
    size: tuple[int, int],
    paired: bool,
    bars: bool,
) -> Evaluator:
    """Return the evaluator of a training run.

    Args:
        features: Features that FID and KID compare, as in --evaluate_features.
        generators: G and, if there is one, F.
        x: Held-out images of X.
        y: Held-out images of Y.
        size: (height, width) in pixels that the networks see.
        paired: Whether image i of Y is the ground truth of image i of X, and the reverse.
        bars: Whether to show progress bars.

    Raises:
        UserError: The features are not available, or a domain has fewer than 2 images.
    """
    G, F = generators[0], generators[1] if len(generators) > 1 else None
    extractor = make_extractor(features, (x.shape[-1], y.shape[-1]))
    return Evaluator(G, F, x, y, size, extractor, paired=paired, bars=bars)
