"""The objective of CycleGAN (Zhu et al. 2017, equation 3): adversarial, cycle and identity losses."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from cyclegan.config.fields import WARN, flag
from cyclegan.lazy_tensorflow import tf
from cyclegan.methods import losses
from cyclegan.methods.objective import Generated, Inputs, Objective, PairedSettings

if TYPE_CHECKING:
    from cyclegan.networks.network_set import NetworkSet


@dataclasses.dataclass(frozen=True)
class CycleGANSettings(PairedSettings):
    """Two generators that undo each other."""

    directions: ClassVar[tuple[str, ...]] = ("x2y", "y2x")

    pool_size: int = flag(50, derive=lambda settings: 50)
    """earlier translations per domain that the discriminators also see; 0 is off"""
    lambda_cycle: float = flag(10.0, WARN)
    """weight of the cycle losses"""
    lambda_ssim: float = flag(0.0, WARN)
    """weight of 1 - SSIM of images and their cycles, which guards structure; 0 is off"""
    lambda_identity: float = flag(
        5.0, WARN, derive=lambda settings: 5.0 if settings["channels_x"] == settings["channels_y"] else 0.0
    )
    """weight of the identity losses; 0 leaves them out, as do domains with different numbers of channels"""


class CycleGANObjective(Objective):
    """G: X -> Y and F: Y -> X, which undo each other, and their discriminators D_Y and D_X.

    An identity weight of 0 leaves the identity losses out of training; validation still measures the identity errors.
    """

    Settings = CycleGANSettings

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the losses besides the adversarial loss."""
        return ("cycle", "ssim", "identity") if self.settings.lambda_ssim > 0 else ("cycle", "identity")

    @property
    def generator_passes(self) -> int:
        """Batches that each generator translates: real images, fakes, and real images of its own target domain."""
        return 3 if self.settings.lambda_identity > 0 else 2

    def generate(self, networks: NetworkSet, given: Inputs) -> Generated:
        """Translate to the other domain and back, and to the own domain; return the losses of cycles and identities."""
        G, F, (x, y, *_), training = networks.generators["G"], networks.generators["F"], given, given.training
        if self.settings.lambda_identity > 0 or (self.same_channels and not training):
            fake_y, same_y = networks.apply_to_two(G, x, y, training)
            fake_x, same_x = networks.apply_to_two(F, y, x, training)
        else:
            fake_y, fake_x = networks.apply(G, x, training), networks.apply(F, y, training)
            same_x, same_y = x, y
        fake_y, same_x = given.compose_x(fake_y), given.compose_x(same_x)
        fake_x, same_y = given.compose_y(fake_x), given.compose_y(same_y)
        cycle_x = given.compose_x(networks.apply(F, fake_y, training))
        cycle_y = given.compose_y(networks.apply(G, fake_x, training))
        parts = {**self._losses("loss_G", y, cycle_y, same_y), **self._losses("loss_F", x, cycle_x, same_x)}
        outputs = (cycle_x, cycle_y, same_x, same_y, fake_y, fake_x)
        return Generated(dict(zip(self.outputs, outputs)), parts)

    def _losses(self, network: str, real: tf.Tensor, cycle: tf.Tensor, same: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the losses of a generator, [N] each: how much real images of its target domain and copies differ."""
        settings, parts = self.settings, {}
        parts[f"{network}/cycle"] = settings.lambda_cycle * losses.mae(real, cycle)
        if settings.lambda_ssim > 0:
            parts[f"{network}/ssim"] = settings.lambda_ssim * losses.structural_dissimilarity(real, cycle)
        has_identity = settings.lambda_identity > 0
        identity = settings.lambda_identity * losses.mae(real, same) if has_identity else tf.zeros(real.shape[0])
        return {**parts, f"{network}/identity": identity}
