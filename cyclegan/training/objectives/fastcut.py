"""The objective of FastCUT (Park et al. 2020, section 4): CUT without the identity loss, with random flips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cyclegan.training.network_set import NetworkSet
from cyclegan.training.objectives.cut import NCE, CUTObjective
from cyclegan.training.randomness import FLIP, StepRandomness


class FastCUTObjective(CUTObjective):
    """G: X -> Y, which translates some images mirrored; the contrastive loss compares the same places all the same."""

    loss_names = ("loss_G/loss", NCE, "loss_G/total", "loss_Y/loss")
    generator_passes = 1
    encoder_products = 4  # for G(x), forward and backward, and for x, forward only
    nce_weight = 10.0

    def draw(self, random: StepRandomness, size: tuple[int, int]) -> Any:
        """Return positions in each feature map, int64 [N, P] each, and whether to mirror each image, bool [N]."""
        return super().draw(random, size), random.shard(random.uniform(FLIP, 1)[:, 0] < 0.5)

    def _translate(
        self, networks: NetworkSet, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor, noise: Any, training: bool
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Return the translations of images, of which some are mirrored in training, and the contrastive loss."""
        G, given, positions, of_queries = networks.generators["G"], x, None, None
        (keys,) = networks.compute_features(G, [x], training)
        if noise is not None:
            positions, flip = noise
            given = tf.where(flip[:, None, None, None], tf.reverse(x, axis=[2]), x)
            of_queries = _mirror(positions, [each.shape[2] for each in keys], flip)
        fake_y = networks.apply(G, given, training)
        (queries,) = networks.compute_features(G, [fake_y], training)
        term = self.nce(networks, queries, keys, positions, of_queries)
        return [fake_y], {NCE: self.mean(weight, self.nce_weight * term)}


def _mirror(positions: Sequence[tf.Tensor], widths: Sequence[int], flip: tf.Tensor) -> list[tf.Tensor]:
    """Return where positions [N, P] in feature maps of these widths lie once the samples of `flip` [N] are mirrored."""
    return [
        tf.where(flip[:, None], chosen + width - 1 - 2 * (chosen % width), chosen)
        for chosen, width in zip(positions, widths)
    ]


OBJECTIVE = FastCUTObjective
