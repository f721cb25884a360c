"""The objective of FastCUT (Park et al. 2020, section 4): CUT without the identity loss, with random flips."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from cyclegan.methods.cut import NCE, CUTObjective, random_positions
from cyclegan.methods.randomness import FLIP, Noise, StepRandomness
from cyclegan.networks.network_set import NetworkSet


class FastCUTObjective(CUTObjective):
    """G: X -> Y, which translates mirrored copies of some images; the contrastive loss compares positions of the same content."""

    loss_names = ("loss_G/loss", NCE, "loss_G/total", "loss_Y/loss")
    generator_passes = 1
    encoder_products = 4  # for G(x), forward and backward, and for x, forward only
    nce_weight = 10.0

    def make_noise(self, random: StepRandomness, size: tuple[int, int]) -> Noise:
        """Return random positions in each feature map, and whether to mirror each image, bool [N], besides other random numbers."""
        flip = random.shard(random.uniform(FLIP, 1)[:, 0] < 0.5)
        return {**super().make_noise(random, size), FLIP: flip}

    def _translate(
        self,
        networks: NetworkSet,
        x: tf.Tensor,
        y: tf.Tensor,
        weight: tf.Tensor,
        noise: Noise | None,
        training: bool,
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Mirror some of the images in training; return the translations and the contrastive loss."""
        G, given, positions, of_queries = networks.generators["G"], x, random_positions(noise), None
        (keys,) = networks.compute_features(G, [x], training)
        if noise is not None:
            flip = noise[FLIP]
            given = tf.where(flip[:, None, None, None], tf.reverse(x, axis=[2]), x)
            of_queries = _mirror(positions, [each.shape[2] for each in keys], flip)
        fake_y = networks.apply(G, given, training)
        (queries,) = networks.compute_features(G, [fake_y], training)
        term = self.nce(networks, queries, keys, positions, of_queries)
        return [fake_y], {NCE: self.mean(weight, self.nce_weight * term)}


def _mirror(positions: Sequence[tf.Tensor], widths: Sequence[int], flip: tf.Tensor) -> list[tf.Tensor]:
    """Mirror the positions [N, P] of the samples in `flip` [N] along the widths of the feature maps."""
    return [
        tf.where(flip[:, None], chosen + width - 1 - 2 * (chosen % width), chosen)
        for chosen, width in zip(positions, widths)
    ]


OBJECTIVE = FastCUTObjective
