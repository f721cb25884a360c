"""Interface of an objective, and the names of the metrics of a step."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, ClassVar, NamedTuple, Optional

from cyclegan.config.fields import WARN, flag
from cyclegan.config.sections import ObjectiveConfig
from cyclegan.lazy_tensorflow import tf
from cyclegan.methods import losses
from cyclegan.methods.diffaugment import RANDOM_NUMBERS
from cyclegan.methods.randomness import AUGMENTATION, INTERPOLATION, POOL, Noise, StepRandomness

if TYPE_CHECKING:
    from cyclegan.config import Config
    from cyclegan.networks.network_set import NetworkSet

CYCLES, SAMES, TRANSLATIONS = ("F(G(X))", "G(F(Y))"), ("F(X)", "G(Y)"), ("G(X)", "F(Y)")  # for images of X and of Y
# Comparisons of an image with an output of the generators, by name: (function, domain, output); validation only.
COMPARISONS: dict[str, tuple[Callable[[tf.Tensor, tf.Tensor], tf.Tensor], str, str]] = {
    f"{name}({domain}, {output})": (function, domain, output)
    for name, function, outputs in (
        ("error/MAE", losses.mae, CYCLES),
        ("error/MAE", losses.mae, SAMES),
        ("change/MAE", losses.mae, TRANSLATIONS),
        ("change/correlation", losses.correlation, TRANSLATIONS),
    )
    for domain, output in zip("XY", outputs)
}
ERRORS = tuple(name for name in COMPARISONS if name.startswith("error/"))
CHANGES = tuple(name for name in COMPARISONS if name.startswith("change/"))
# Norms of a replica's gradients, which are finite only if all gradients are.
GRADIENTS = ("gradients of the generators", "gradients of the discriminators")
LOSS_SCALE = "loss_scale"  # with float16 only
SAMPLES = "samples"  # share of the batch that is samples, not padding

# Behaviour of a loss in a training that works, by the last part of its name, for TensorBoard (--load_fast=false).
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


class Inputs(NamedTuple):
    """Inputs of the generators in a step.

    Attributes:
        x: Images of domain X, float32 [N, H, W, C] in [-1, 1].
        y: Images of domain Y.
        noise: Random numbers of a training step; `None` in validation, where the networks run without `training`.
        progress: Share of the training that is done, in [0, 1]. Validation measures as at the end.
        masks: Pixels that the generators may change; the others stay as in their input.
    """

    x: tf.Tensor
    y: tf.Tensor
    noise: Noise | None = None
    progress: tf.Tensor | float = 1.0
    masks: Masks = NO_MASKS

    @property
    def training(self) -> bool:
        """Whether this is a training step."""
        return self.noise is not None

    def compose_x(self, output: tf.Tensor) -> tf.Tensor:
        """Return an output for the images of X inside of their masks, and the images themselves outside."""
        return losses.compose(self.masks[0], output, self.x)

    def compose_y(self, output: tf.Tensor) -> tf.Tensor:
        """Return an output for the images of Y inside of their masks, and the images themselves outside."""
        return losses.compose(self.masks[1], output, self.y)


class Generated(NamedTuple):
    """Outputs of the generators in a step.

    Attributes:
        images: Outputs by name, such as "G(X)" or "F(G(X))", float32 [N, H, W, C] in [-1, 1].
        losses: Losses of the generators that need no discriminator, [N] each, by name.
    """

    images: dict[str, tf.Tensor]
    losses: dict[str, tf.Tensor]


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
        outputs: Names of the images that `generate` returns.
        encoder_products: Passes of each generator that only compute features, in forward passes, for `flops`.
        metric_names: Names of all losses and other metrics of "train" and "test", for the log.
    """

    Settings: ClassVar[type[ObjectiveConfig]]
    outputs: ClassVar[tuple[str, ...]] = (*CYCLES, *SAMES, *TRANSLATIONS)
    encoder_products: ClassVar[int] = 0
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
    def test_names(self) -> tuple[str, ...]:
        """Names of the errors and changes that validation measures: all that have an output and equal channels."""
        outputs = self.outputs if self.same_channels else CYCLES
        return tuple(name for name, (_, _, output) in COMPARISONS.items() if output in outputs)

    @property
    @abc.abstractmethod
    def generator_passes(self) -> int:
        """Batches that each generator translates in a training step."""

    @abc.abstractmethod
    def generate(self, networks: NetworkSet, given: Inputs) -> Generated:
        """Run the generators' part of a step, up to the fakes."""

    def make_noise(self, random: StepRandomness, networks: NetworkSet, size: tuple[int, int]) -> Noise:
        """Return the random numbers of a training step on images of size (height, width), except for dropout."""
        settings, pairs, columns = self.settings, len(self.adversaries), {}
        if settings.pool_size:
            columns.update(dict.fromkeys(range(POOL, POOL + pairs), 2))
        if settings.augmentations:  # of the real images of each pair of adversaries, then of the fakes
            columns.update(dict.fromkeys(range(AUGMENTATION, AUGMENTATION + 2 * pairs), RANDOM_NUMBERS))
        if settings.penalizes_gradients:
            columns.update(dict.fromkeys(range(INTERPOLATION, INTERPOLATION + pairs), 1))
        return {purpose: random.shard(random.uniform(purpose, count)) for purpose, count in columns.items()}

    def flops(self, networks: NetworkSet, height: int, width: int) -> float:
        """Return the floating-point operations of the convolutions in a training step, for one pair of images.

        A forward pass is one product, a backward pass two: for the inputs and for the weights. The count includes the
        gradients at real images, which nothing needs, and leaves out penalties.
        """
        from cyclegan.networks import features

        # A discriminator learns from real images and fakes. The generators need its gradients at the fakes and, with a
        # pool, another forward pass.
        of_discriminator = 3 * 2 + (2 if self.settings.pool_size else 1)
        macs = 0
        for network in networks.generators.values():
            macs += 3 * self.generator_passes * features.count_macs(network, height, width)
            if self.encoder_products:
                last = features.feature_layers(network)[-1]
                macs += self.encoder_products * features.count_macs(network, height, width, last)
        for network in networks.discriminators.values():
            macs += of_discriminator * features.count_macs(network, height, width)
        return 2.0 * macs
