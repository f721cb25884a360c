"""The objectives of CUT and FastCUT (Park et al. 2020): adversarial and contrastive losses of one generator."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from cyclegan.config.sections import ObjectiveConfig
from cyclegan.lazy_tensorflow import tf
from cyclegan.methods import losses
from cyclegan.methods.objective import CHANGES, ERRORS, Generated, Objective, PairedSettings
from cyclegan.methods.randomness import FLIP, PATCHES, Noise, StepRandomness

if TYPE_CHECKING:
    from cyclegan.networks.network_set import NetworkSet

PATCH_COUNT = 256  # positions in each feature map


@dataclasses.dataclass(frozen=True)
class CUTSettings(PairedSettings):
    """One generator X -> Y that keeps the content of each patch."""

    directions: ClassVar[tuple[str, ...]] = ("x2y",)
    compares_features: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class FastCUTSettings(ObjectiveConfig):
    """Cut without the identity loss, with random flips."""

    directions: ClassVar[tuple[str, ...]] = ("x2y",)
    compares_features: ClassVar[bool] = True


class CUTObjective(Objective):
    """G: X -> Y, its discriminator D_Y, and the heads of G's features.

    At random positions, the features of a translation should resemble the features of the original at the same position
    rather than at the other positions. G itself computes the features. The same holds for G(y), which replaces the
    identity loss.

    Attributes:
        nce_weight: Weight of each contrastive loss.
        encoder_products: Passes that only compute features, in forward passes: a backward pass counts as two.
    """

    Settings: ClassVar[type[ObjectiveConfig]] = CUTSettings
    parts: tuple[str, ...] = ("nce", "nce_identity")
    test_names = (ERRORS[3], CHANGES[0], CHANGES[2])
    generator_passes = 2
    encoder_products: ClassVar[int] = 6  # for G(x) and G(y), forward and backward
    nce_weight: ClassVar[float] = 0.5

    def make_noise(self, random: StepRandomness, networks: NetworkSet, size: tuple[int, int]) -> Noise:
        """Return random positions in each feature map, int64 [N, P], besides the random numbers of the other losses."""
        from cyclegan.networks.features import feature_sizes

        areas = enumerate((h * w for h, w in feature_sizes(networks.generators["G"], *size)), PATCHES)
        positions = {purpose: random.subsets(purpose, area, PATCH_COUNT) for purpose, area in areas}
        return {**super().make_noise(random, networks, size), **positions}

    def generate(
        self, networks: NetworkSet, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor, noise: Noise | None = None
    ) -> Generated:
        """Translate images of both domains to Y; return the translations of X, and the contrastive losses."""
        G, training, positions = networks.generators["G"], noise is not None, random_positions(noise)
        (*of_x, fake_y), (*of_y, same_y) = networks.compute_features(G, [x, y], training, to_output=True)
        of_fake, of_same = networks.compute_features(G, [fake_y, same_y], training)
        terms = {
            "loss_G/nce": nce(networks.heads["G"], of_fake, of_x, positions),
            "loss_G/nce_identity": nce(networks.heads["G"], of_same, of_y, positions),
        }
        parts = {name: self.mean(weight, self.nce_weight * term) for name, term in terms.items()}
        return Generated((y,), (fake_y,), parts, dict(zip(self.test_names, ((y, same_y), (x, fake_y), (x, fake_y)))))

    def flops(self, networks: NetworkSet, height: int, width: int) -> float:
        """Return the operations of `Objective.flops` and of the passes that compute features of translations only."""
        from cyclegan.networks import features

        G = networks.generators["G"]
        encoder = features.count_macs(G, height, width, last=features.feature_layers(G)[-1])
        return super().flops(networks, height, width) + 2.0 * self.encoder_products * encoder


def nce(
    heads: tf.keras.Model,
    queries: Sequence[tf.Tensor],
    keys: Sequence[tf.Tensor],
    positions: Sequence[tf.Tensor] | None = None,
    query_positions: Sequence[tf.Tensor] | None = None,
) -> tf.Tensor:
    """Return the contrastive loss, averaged over the feature maps, [N].

    Args:
        heads: Network that embeds the features.
        queries: Features of the translations, [N, h, w, C] each.
        keys: Features of the originals.
        positions: Positions in each feature map, int64 [N, P] each; by default evenly spaced.
        query_positions: Positions in the features of the translations; by default the same.
    """
    positions = positions or [_evenly_spaced(each) for each in keys]
    of_queries, of_keys = heads(_gather(queries, query_positions or positions)), heads(_gather(keys, positions))
    terms = [losses.patch_nce(*pair) for pair in zip(of_queries, of_keys)]
    return tf.reduce_mean(tf.stack(terms), axis=0)


def random_positions(noise: Noise | None) -> list[tf.Tensor] | None:
    """Return the random positions in each feature map; `None` in validation."""
    return None if noise is None else [noise[purpose] for purpose in range(PATCHES, FLIP) if purpose in noise]


class FastCUTObjective(CUTObjective):
    """CUT without G(y), where G translates mirrored copies of some images; the loss compares the same content."""

    Settings = FastCUTSettings
    parts = ("nce",)
    generator_passes = 1
    encoder_products = 4  # for G(x), forward and backward, and for x, forward only
    nce_weight = 10.0

    def make_noise(self, random: StepRandomness, networks: NetworkSet, size: tuple[int, int]) -> Noise:
        """Return random positions, and whether to mirror each image, bool [N], besides the other random numbers."""
        flip = random.shard(random.uniform(FLIP, 1)[:, 0] < 0.5)
        return {**super().make_noise(random, networks, size), FLIP: flip}

    def generate(
        self, networks: NetworkSet, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor, noise: Noise | None = None
    ) -> Generated:
        """Mirror some of the images in training; return the translations and the contrastive loss."""
        G, training, positions = networks.generators["G"], noise is not None, random_positions(noise)
        given, of_queries, same_y = x, positions, y
        (keys,) = networks.compute_features(G, [x], training)
        if noise is None or positions is None:
            same_y = networks.apply(G, y, training)
        else:
            given = tf.where(noise[FLIP][:, None, None, None], tf.reverse(x, axis=[2]), x)
            of_queries = _mirror(positions, [each.shape[2] for each in keys], noise[FLIP])
        fake_y = networks.apply(G, given, training)
        (queries,) = networks.compute_features(G, [fake_y], training)
        term = nce(networks.heads["G"], queries, keys, positions, of_queries)
        parts = {"loss_G/nce": self.mean(weight, self.nce_weight * term)}
        return Generated((y,), (fake_y,), parts, dict(zip(self.test_names, ((y, same_y), (x, fake_y), (x, fake_y)))))


def _evenly_spaced(features: tf.Tensor) -> tf.Tensor:
    """Return positions in feature maps [N, h, w, C], int64 [N, P]."""
    count, area = features.shape[0], features.shape[1] * features.shape[2]
    chosen = np.linspace(0, area - 1, min(PATCH_COUNT, area)).round().astype(np.int64)
    return tf.constant(np.tile(chosen, (count, 1)))


def _gather(features: Sequence[tf.Tensor], positions: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the values of feature maps [N, h, w, C] at positions [N, P], float32 [N, P, C] each."""
    rows = (tf.reshape(each, [each.shape[0], -1, each.shape[-1]]) for each in features)
    return [tf.cast(tf.gather(each, chosen, batch_dims=1), tf.float32) for each, chosen in zip(rows, positions)]


def _mirror(positions: Sequence[tf.Tensor], widths: Sequence[int], flip: tf.Tensor) -> list[tf.Tensor]:
    """Mirror the positions [N, P] of the samples in `flip` [N] along the widths of the feature maps."""
    return [
        tf.where(flip[:, None], chosen + width - 1 - 2 * (chosen % width), chosen)
        for chosen, width in zip(positions, widths)
    ]
