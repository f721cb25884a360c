"""The objective of CycleGAN (Zhu et al. 2017, equation 3): adversarial, cycle and identity losses."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from cyclegan.config.fields import WARN, flag
from cyclegan.lazy_tensorflow import tf
from cyclegan.methods import losses
from cyclegan.methods.adversarial import DiscriminatorInput
from cyclegan.methods.metric_names import CHANGES, ERRORS
from cyclegan.methods.objective import Generated, Objective, PairedSettings
from cyclegan.methods.randomness import Noise

if TYPE_CHECKING:
    from cyclegan.networks.network_set import NetworkSet

LOSSES = (
    *(f"{generator}/{part}" for generator in ("loss_G", "loss_F") for part in ("loss", "cycle", "identity", "total")),
    *("loss_X/loss", "loss_Y/loss"),
)
STRUCTURE = ("loss_G/ssim", "loss_F/ssim")  # with --lambda_ssim only


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


class Translations(NamedTuple):
    """Outputs of both generators, float32 [N, H, W, C] in [-1, 1]."""

    fake_y: tf.Tensor
    fake_x: tf.Tensor
    cycle_x: tf.Tensor
    cycle_y: tf.Tensor
    same_x: tf.Tensor
    same_y: tf.Tensor


class CycleGANObjective(Objective):
    """G: X -> Y and F: Y -> X, which undo each other, and their discriminators D_Y and D_X.

    An identity weight of 0 leaves the identity losses out of training; validation still measures the identity errors.
    """

    Settings = CycleGANSettings
    loss_names = LOSSES

    def __init__(self, settings: CycleGANSettings, *args: Any, **kwargs: Any) -> None:
        super().__init__(settings, *args, **kwargs)
        if settings.lambda_ssim > 0:
            self.loss_names = (*LOSSES, *STRUCTURE)

    @property
    def test_names(self) -> tuple[str, ...]:
        """Names of the errors, and of the comparisons that need the same number of channels."""
        return (*ERRORS, *CHANGES) if self.same_channels else ERRORS[:2]

    @property
    def generator_passes(self) -> int:
        """Batches that each generator translates: real images, fakes, and real images of its own target domain."""
        return 3 if self.settings.lambda_identity > 0 else 2

    def generate(self, networks: NetworkSet, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor, noise: Noise) -> Generated:
        """Translate there and back; return the fakes, and the cycle and identity losses."""
        images = translate(networks, x, y, self.settings.lambda_identity > 0, training=True)
        return Generated((y, x), (images.fake_y, images.fake_x), self._reconstruction_losses(x, y, images, weight))

    def test(self, networks: NetworkSet, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the losses, the mean absolute errors, and how much the generators change the images."""
        images = translate(networks, x, y, self.same_channels, training=False)
        inputs = DiscriminatorInput((y, x), (images.fake_y, images.fake_x))
        of_generators, of_discriminators = self.adversarial.compute_losses(networks, inputs, weight)
        parts = {**self._reconstruction_losses(x, y, images, weight), **of_generators, **of_discriminators}
        metrics = self.collect(parts, weight)
        # In the order of `ERRORS`, then of `CHANGES`.
        others = (images.cycle_x, images.cycle_y, images.same_x, images.same_y, *(images.fake_y, images.fake_x) * 2)
        for i, name in enumerate(self.test_names):
            compare = losses.correlation if name in CHANGES[2:] else losses.mae
            metrics[name] = self.mean(weight, compare((x, y)[i % 2], others[i]))
        return metrics

    def translate_samples(
        self, networks: NetworkSet, x: tf.Tensor, y: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
        """Return (G(x), F(G(x))) and (F(y), G(F(y)))."""
        images = translate(networks, x, y, identity=False, training=False)
        return (images.fake_y, images.cycle_x), (images.fake_x, images.cycle_y)

    def _reconstruction_losses(
        self, x: tf.Tensor, y: tf.Tensor, images: Translations, weight: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Return the cycle, structural and identity losses, by name."""
        cycle_weight, identity_weight = self.settings.lambda_cycle, self.settings.lambda_identity
        result = {}
        for name, real, cycle, same in (
            ("loss_G", y, images.cycle_y, images.same_y),
            ("loss_F", x, images.cycle_x, images.same_x),
        ):
            result[f"{name}/cycle"] = self.mean(weight, cycle_weight * losses.mae(real, cycle))
            if self.settings.lambda_ssim > 0:
                structure = losses.structural_dissimilarity(real, cycle)
                result[f"{name}/ssim"] = self.mean(weight, self.settings.lambda_ssim * structure)
            result[f"{name}/identity"] = tf.constant(0.0)
            if identity_weight > 0:
                result[f"{name}/identity"] = self.mean(weight, identity_weight * losses.mae(real, same))
        return result


def translate(networks: NetworkSet, x: tf.Tensor, y: tf.Tensor, identity: bool, training: bool) -> Translations:
    """Translate images of both domains there and back, and with `identity` to their own domain; else `same_x` is x.

    `training` says whether the networks run as in training.
    """
    G, F = networks.generators["G"], networks.generators["F"]
    if identity:
        fake_y, same_y = networks.apply_to_two(G, x, y, training)
        fake_x, same_x = networks.apply_to_two(F, y, x, training)
    else:
        fake_y, fake_x, same_x, same_y = networks.apply(G, x, training), networks.apply(F, y, training), x, y
    cycle_x, cycle_y = networks.apply(F, fake_y, training), networks.apply(G, fake_x, training)
    return Translations(fake_y, fake_x, cycle_x, cycle_y, same_x, same_y)
