"""The objective of DCLGAN (Han et al. 2021): two generators with contrastive and identity losses instead of cycles."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from cyclegan.config.fields import WARN, flag
from cyclegan.config.sections import ObjectiveConfig
from cyclegan.lazy_tensorflow import tf
from cyclegan.methods import losses
from cyclegan.methods.cut import CUTObjective, embed, mean_over_maps, random_positions
from cyclegan.methods.objective import SAMES, TRANSLATIONS, Generated, Inputs, PairedSettings

if TYPE_CHECKING:
    from cyclegan.networks.network_set import NetworkSet


@dataclasses.dataclass(frozen=True)
class DCLGANSettings(PairedSettings):
    """Two generators that keep the content of each patch."""

    directions: ClassVar[tuple[str, ...]] = ("x2y", "y2x")
    adversarial_weight: ClassVar[float] = 0.5
    compares_features: ClassVar[bool] = True
    compares_images: ClassVar[bool] = False

    lambda_nce: float = flag(2.0, WARN)
    """weight of the mean of both contrastive losses"""
    lambda_identity: float = flag(1.0, WARN)
    """weight of the mean of both identity losses"""


class DCLGANObjective(CUTObjective):
    """G: X -> Y and F: Y -> X, their discriminators D_Y and D_X, and the heads of the features of G and F.

    The patches of G(x), as F sees them, should resemble the patches of x, as G sees them; and the other way around. The
    losses of both generators are halved, as published: together they minimize means over both.
    """

    Settings: ClassVar[type[ObjectiveConfig]] = DCLGANSettings
    parts = ("nce", "identity")
    outputs = (*SAMES, *TRANSLATIONS)
    encoder_products = 3  # of the translations, forward and backward

    def generate(self, networks: NetworkSet, given: Inputs) -> Generated:
        """Translate to the other and to the own domain; return the contrastive and identity losses."""
        G, F, (x, y, *_), training = networks.generators["G"], networks.generators["F"], given, given.training
        (_, *of_x, fake_y), (*_, same_y) = networks.compute_features(G, [x, y], training, to_output=True)
        (_, *of_y, fake_x), (*_, same_x) = networks.compute_features(F, [y, x], training, to_output=True)
        fake_y, same_x = given.compose_x(fake_y), given.compose_x(same_x)
        fake_x, same_y = given.compose_y(fake_x), given.compose_y(same_y)
        ((_, *of_fake_y),) = networks.compute_features(F, [fake_y], training)
        ((_, *of_fake_x),) = networks.compute_features(G, [fake_x], training)
        positions = random_positions(given.noise)
        positions = positions[1:] if positions else None  # the same for both generators

        def nce(own: str, other: str, features: Sequence[tf.Tensor], of_fake: Sequence[tf.Tensor]) -> tf.Tensor:
            queries = embed(networks.heads[other], of_fake, positions)
            return mean_over_maps(losses.patch_nce, queries, embed(networks.heads[own], features, positions))

        settings = self.settings
        terms = {
            "loss_G/nce": settings.lambda_nce * nce("G", "F", of_x, of_fake_y),
            "loss_G/identity": settings.lambda_identity * losses.mae(y, same_y),
            "loss_F/nce": settings.lambda_nce * nce("F", "G", of_y, of_fake_x),
            "loss_F/identity": settings.lambda_identity * losses.mae(x, same_x),
        }
        outputs = dict(zip(self.outputs, (same_x, same_y, fake_y, fake_x)))
        return Generated(outputs, {name: 0.5 * term for name, term in terms.items()})
