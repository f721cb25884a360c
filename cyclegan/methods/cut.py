"""The objectives of CUT and FastCUT (Park et al. 2020): adversarial and contrastive losses of one generator."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable, ClassVar, Literal

import numpy as np

from cyclegan.config.fields import WARN, flag
from cyclegan.config.sections import ObjectiveConfig
from cyclegan.lazy_tensorflow import tf
from cyclegan.methods import losses
from cyclegan.methods.objective import Generated, Inputs, Objective, PairedSettings
from cyclegan.methods.randomness import FLIP, PATCHES, Noise, StepRandomness

if TYPE_CHECKING:
    from cyclegan.networks.network_set import NetworkSet

FASTCUT_WEIGHT = 10.0  # of the contrastive loss
PATCH_COUNT = 256  # positions in each feature map
GAMMAS = 50.0, 10.0  # of --nce hdce, at the beginning and at the end of training


@dataclasses.dataclass(frozen=True)
class CUTSettings(PairedSettings):
    """One generator X -> Y that keeps the content of each patch."""

    directions: ClassVar[tuple[str, ...]] = ("x2y",)
    compares_features: ClassVar[bool] = True

    nce: Literal["patch", "hdce"] = flag("patch")
    """contrastive loss. patch: of CUT; hdce: hard negatives, and no positive in the denominator (Jung et al. 2022)"""
    lambda_nce: float = flag(1.0, WARN, derive=lambda settings: 0.1 if settings["nce"] == "hdce" else 1.0)
    """weight of the mean of both contrastive losses (default: 1; --nce hdce: 0.1)"""
    lambda_src: float = flag(0.0, WARN, derive=lambda settings: 0.05 if settings["nce"] == "hdce" else 0.0)
    """weight of the divergence between how patches of x and how patches of G(x) resemble each other; 0 is off (default:
    0; --nce hdce: 0.05)"""


@dataclasses.dataclass(frozen=True)
class FastCUTSettings(ObjectiveConfig):
    """One generator X -> Y, as in cut, without the identity loss, with random flips."""

    directions: ClassVar[tuple[str, ...]] = ("x2y",)
    compares_features: ClassVar[bool] = True


class CUTObjective(Objective):
    """G: X -> Y, its discriminator D_Y, and the heads of G's features.

    At random positions, the features of a translation should resemble the features of the original at the same position
    rather than at the other positions. G itself computes the features. The same holds for G(y), which replaces the
    identity loss.
    """

    Settings: ClassVar[type[ObjectiveConfig]] = CUTSettings
    outputs: ClassVar[tuple[str, ...]] = ("G(X)", "G(Y)")
    generator_passes = 2
    encoder_products = 6  # for G(x) and G(y), forward and backward

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the losses besides the adversarial loss."""
        return ("nce", "nce_identity", *(["src"] if self.settings.lambda_src > 0 else []))

    def make_noise(self, random: StepRandomness, networks: NetworkSet, size: tuple[int, int]) -> Noise:
        """Return random positions in each feature map, int64 [N, P], besides the other random numbers."""
        from cyclegan.networks.features import feature_sizes

        areas = enumerate((h * w for h, w in feature_sizes(networks.generators["G"], *size)), PATCHES)
        positions = {purpose: random.subsets(purpose, area, PATCH_COUNT) for purpose, area in areas}
        return {**super().make_noise(random, networks, size), **positions}

    def generate(self, networks: NetworkSet, given: Inputs) -> Generated:
        """Translate images of both domains to Y; return the translations of X, and the losses of their features."""
        G, training, positions = networks.generators["G"], given.training, random_positions(given.noise)
        (*of_x, fake_y), (*of_y, same_y) = networks.compute_features(G, [given.x, given.y], training, to_output=True)
        fake_y, same_y = given.compose_x(fake_y), given.compose_y(same_y)
        of_fake, of_same = networks.compute_features(G, [fake_y, same_y], training)
        of_fake, of_x, of_same, of_y = (
            embed(networks.heads["G"], each, positions) for each in (of_fake, of_x, of_same, of_y)
        )
        settings, loss = self.settings, losses.patch_nce
        if settings.nce == "hdce":
            loss = functools.partial(losses.hard_nce, gamma=GAMMAS[0] + (GAMMAS[1] - GAMMAS[0]) * given.progress)
        parts = {
            "loss_G/nce": 0.5 * settings.lambda_nce * mean_over_maps(loss, of_fake, of_x),
            "loss_G/nce_identity": 0.5 * settings.lambda_nce * mean_over_maps(loss, of_same, of_y),
        }
        if settings.lambda_src > 0:
            divergence = mean_over_maps(losses.relation_divergence, of_fake, of_x)
            parts["loss_G/src"] = settings.lambda_src * divergence
        return Generated({"G(X)": fake_y, "G(Y)": same_y}, parts)


def embed(
    heads: tf.keras.Model, features: Sequence[tf.Tensor], positions: Sequence[tf.Tensor] | None
) -> list[tf.Tensor]:
    """Return unit vectors, float32 [N, P, D] each, that embed the values of feature maps [N, h, w, C] at positions.

    The positions are int64 [N, P] each; `None` stands for evenly spaced ones.
    """
    values = heads(_gather(features, positions or [_evenly_spaced(each) for each in features]))
    return [tf.math.l2_normalize(each, axis=-1, epsilon=1e-14) for each in values]


def mean_over_maps(
    loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], queries: Sequence[tf.Tensor], keys: Sequence[tf.Tensor]
) -> tf.Tensor:
    """Return a loss of embeddings [N, P, D], averaged over the feature maps, [N]."""
    return tf.reduce_mean(tf.stack([loss(*pair) for pair in zip(queries, keys)]), axis=0)


def random_positions(noise: Noise | None) -> list[tf.Tensor] | None:
    """Return the random positions in each feature map; `None` in validation."""
    return None if noise is None else [noise[purpose] for purpose in range(PATCHES, FLIP) if purpose in noise]


class FastCUTObjective(CUTObjective):
    """CUT without G(y), where G translates mirrored copies of some images; the loss compares the same content."""

    Settings = FastCUTSettings
    parts = ("nce",)
    generator_passes = 1
    encoder_products = 4  # for G(x), forward and backward, and for x, forward only

    def make_noise(self, random: StepRandomness, networks: NetworkSet, size: tuple[int, int]) -> Noise:
        """Return whether to mirror each image, bool [N], besides the other random numbers."""
        flip = random.shard(random.uniform(FLIP, 1)[:, 0] < 0.5)
        return {**super().make_noise(random, networks, size), FLIP: flip}

    def generate(self, networks: NetworkSet, given: Inputs) -> Generated:
        """Mirror some of the images in training; return the translations and the contrastive loss."""
        G, training, positions = networks.generators["G"], given.training, random_positions(given.noise)
        (keys,) = networks.compute_features(G, [given.x], training)
        of_queries, same_y = positions, given.y
        if given.noise is None or positions is None:
            same_y = given.compose_y(networks.apply(G, given.y, training))
        else:
            flip = given.noise[FLIP]
            x, mask = (each if each is None else _mirror_images(each, flip) for each in (given.x, given.masks[0]))
            given = given._replace(x=x, masks=(mask, given.masks[1]))
            of_queries = _mirror(positions, [each.shape[2] for each in keys], flip)
        fake_y = given.compose_x(networks.apply(G, given.x, training))
        (queries,) = networks.compute_features(G, [fake_y], training)
        heads = networks.heads["G"]
        pair = embed(heads, queries, of_queries), embed(heads, keys, positions)
        parts = {"loss_G/nce": FASTCUT_WEIGHT * mean_over_maps(losses.patch_nce, *pair)}
        return Generated({"G(X)": fake_y, "G(Y)": same_y}, parts)


def _evenly_spaced(features: tf.Tensor) -> tf.Tensor:
    """Return positions in feature maps [N, h, w, C], int64 [N, P]."""
    count, area = features.shape[0], features.shape[1] * features.shape[2]
    chosen = np.linspace(0, area - 1, min(PATCH_COUNT, area)).round().astype(np.int64)
    return tf.constant(np.tile(chosen, (count, 1)))


def _gather(features: Sequence[tf.Tensor], positions: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the values of feature maps [N, h, w, C] at positions [N, P], float32 [N, P, C] each."""
    rows = (tf.reshape(each, [each.shape[0], -1, each.shape[-1]]) for each in features)
    return [tf.cast(tf.gather(each, chosen, batch_dims=1), tf.float32) for each, chosen in zip(rows, positions)]


def _mirror_images(images: tf.Tensor, flip: tf.Tensor) -> tf.Tensor:
    """Mirror the images or masks [N, H, W, C] of the samples in `flip` [N]."""
    return tf.where(flip[:, None, None, None], tf.reverse(images, axis=[2]), images)


def _mirror(positions: Sequence[tf.Tensor], widths: Sequence[int], flip: tf.Tensor) -> list[tf.Tensor]:
    """Mirror the positions [N, P] of the samples in `flip` [N] along the widths of the feature maps."""
    return [
        tf.where(flip[:, None], chosen + width - 1 - 2 * (chosen % width), chosen)
        for chosen, width in zip(positions, widths)
    ]
