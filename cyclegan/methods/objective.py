"""Interface of an objective, and the names of the metrics of a step."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Optional

from cyclegan.config.fields import WARN, flag
from cyclegan.config.sections import ObjectiveConfig
from cyclegan.lazy_tensorflow import tf
from cyclegan.methods.randomness import Noise, StepRandomness

if TYPE_CHECKING:
    from cyclegan.config import Config
    from cyclegan.networks.network_set import NetworkSet

# Mean absolute errors of cycles and identities, in the units of [-1, 1]; validation only.
ERRORS = ("error/MAE(X, F(G(X)))", "error/MAE(Y, G(F(Y)))", "error/MAE(X, F(X))", "error/MAE(Y, G(Y))")
# Comparisons of images with their translations; validation only.
CHANGES = ("change/MAE(X, G(X))", "change/MAE(Y, F(Y))", "change/correlation(X, G(X))", "change/correlation(Y, F(Y))")
# Norms of a replica's gradients, which are finite only if all gradients are.
GRADIENTS = ("gradients of the generators", "gradients of the discriminators")
LOSS_SCALE = "loss_scale"  # with float16 only
SAMPLES = "samples"  # share of the batch that is samples, not padding

# Behaviour of a loss in a training that works, by the last part of its name; TensorBoard shows it beside the curve.
DESCRIPTIONS = {
    "loss": "The losses of generators and discriminators balance each other: near 0, the discriminator has won.",
    "cycle": "Falls as cycles come to resemble the originals.",
    "identity": "Falls as the generator comes to keep images of its target domain as they are.",
    "nce": "Falls as each patch of a translation comes to resemble the patch of the original at the same position.",
    "nce_identity": "Falls as each patch of G(y) comes to resemble the patch of y at the same position.",
    "src": "Rises while the heads learn to tell patches apart, then falls as G keeps which ones resemble each other.",
}

Masks = tuple[Optional["tf.Tensor"], Optional["tf.Tensor"]]  # of x and of y, bool [N, H, W, 1]
NO_MASKS: Masks = (None, None)


@dataclasses.dataclass(frozen=True)
class PairedSettings(ObjectiveConfig):
    """Settings of objectives that also learn from pairs of images."""

    lambda_paired: float = flag(0.0, WARN)
    """weight of the mean absolute error of the translations of pairs (--paired_names)"""


class Generated(NamedTuple):
    """Outputs of the generators in a step.

    Attributes:
        reals: Real images of the domain of each pair of adversaries, float32 [N, H, W, C] in [-1, 1].
        fakes: Translations to the same domains.
        losses: Losses of the generators that need no discriminator, [N] each, by name.
        compared: In validation, the two images to compare for each name in `Objective.test_names`.
    """

    reals: tuple[tf.Tensor, ...]
    fakes: tuple[tf.Tensor, ...]
    losses: dict[str, tf.Tensor]
    compared: Mapping[str, tuple[tf.Tensor, tf.Tensor]]


class Objective(abc.ABC):
    """Losses that generators and discriminators minimize: images and networks in, named losses out.

    No method changes any state. A new objective is a file with its settings and a subclass, and a line in
    `methods.OBJECTIVES`. The losses of generator G are named "loss_G/...", those of discriminator D_Y "loss_Y/...".

    Args:
        config: The configuration of the run.

    Attributes:
        Settings: Class of its settings.
        settings: Its settings, joined with the adversarial loss of `losses.ADVERSARIAL_LOSSES`, which has the methods
            `generator_loss` and `discriminator_loss`.
        adversaries: Each `generator`, "G" or "F", with the `domain` that it translates to, "Y" or "X".
        adversarial_weight: Weight of the generators' adversarial losses.
        metric_names: Names of all losses and other metrics of "train" and "test", for the log.
    """

    Settings: ClassVar[type[ObjectiveConfig]]
    adversarial_weight: ClassVar[float] = 1.0
    settings: Any  # an instance of a subclass of `Settings`, see `config.config.section_classes`

    def __init__(self, config: Config) -> None:
        self.settings = config.objective
        self.adversaries = config.objective.adversaries
        self.same_channels = config.data.same_channels
        decay = ["weight_decay"] if config.optimization.weight_decay else []
        paired = ["paired"] if config.uses_pairs else []
        penalty = ["penalty"] if self.settings.has_penalty else []
        self.metric_names = {
            "train": self._loss_names([*paired, *decay], [*penalty, *decay]),
            "test": (*self._loss_names(), *self.test_names),
        }

    def _loss_names(self, of_generators: Sequence[str] = (), of_discriminators: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the names of all losses, with these additional ones, and of a total for each network with several."""
        parts = {pair.generator: ["loss", *self.parts, *of_generators] for pair in self.adversaries}
        domains = sorted(pair.domain for pair in self.adversaries)
        parts.update({domain: ["loss", *of_discriminators] for domain in domains})
        totals = {network: ["total"] if len(names) > 1 else [] for network, names in parts.items()}
        return tuple(f"loss_{network}/{name}" for network in parts for name in parts[network] + totals[network])

    @property
    @abc.abstractmethod
    def parts(self) -> tuple[str, ...]:
        """Names of the losses that `generate` returns for each generator, without the prefix "loss_G/"."""

    @property
    @abc.abstractmethod
    def test_names(self) -> tuple[str, ...]:
        """Names of the errors and changes, from `ERRORS` and `CHANGES`, that validation measures."""

    @property
    @abc.abstractmethod
    def generator_passes(self) -> int:
        """Batches that each generator translates in a training step."""

    @abc.abstractmethod
    def generate(
        self,
        networks: NetworkSet,
        x: tf.Tensor,
        y: tf.Tensor,
        noise: Noise | None = None,
        progress: tf.Tensor | float = 1.0,
        masks: Masks = NO_MASKS,
    ) -> Generated:
        """Run the generators' part of a step, up to the fakes.

        Args:
            networks: The networks.
            x: Images of domain X, float32 [N, H, W, C] in [-1, 1].
            y: Images of domain Y.
            noise: Random numbers of the step; `None` in validation, where the networks run without `training`.
            progress: Share of the training that is done, in [0, 1]. Validation measures as at the end.
            masks: Pixels that the generators may change; the others stay as in their input.
        """

    def make_noise(self, random: StepRandomness, networks: NetworkSet, size: tuple[int, int]) -> Noise:
        """Return the random numbers of `generate` in a training step on images of size (height, width)."""
        return {}

    def flops(self, networks: NetworkSet, height: int, width: int) -> float:
        """Return the floating-point operations of the convolutions in a training step, for one pair of images.

        A forward pass is one product, a backward pass two: for the inputs and for the weights. Gradients at real images
        are counted, too, although nothing needs them; penalties and all operations but convolutions are not.
        """
        from cyclegan.networks.features import count_macs

        # A discriminator learns from real images and fakes. The generators need its gradients at the fakes and, with a
        # pool, another forward pass.
        of_discriminator = 3 * 2 + (2 if self.settings.pool_size else 1)
        macs = 0
        for network in networks.generators.values():
            macs += 3 * self.generator_passes * count_macs(network, height, width)
        for network in networks.discriminators.values():
            macs += of_discriminator * count_macs(network, height, width)
        return 2.0 * macs
