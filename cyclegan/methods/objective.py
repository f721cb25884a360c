"""Interface of an objective."""

from __future__ import annotations

import abc
import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from cyclegan.config.fields import WARN, flag
from cyclegan.config.sections import DIRECTIONS, ObjectiveConfig
from cyclegan.lazy_tensorflow import tf
from cyclegan.methods import losses
from cyclegan.methods.adversarial import AdversarialPart
from cyclegan.methods.metric_names import SAMPLES
from cyclegan.methods.randomness import Noise, StepRandomness

if TYPE_CHECKING:
    from cyclegan.networks.network_set import Adversaries, NetworkSet

FLOAT16_GRADIENT_SCALE = 2.0**10  # factor on the gradients inside of a penalty, which are too small for float16


@dataclasses.dataclass(frozen=True)
class PairedSettings(ObjectiveConfig):
    """Settings of objectives that also learn from pairs of images."""

    lambda_paired: float = flag(0.0, WARN)
    """weight of the mean absolute error of the translations of pairs (--paired_names)"""


class Generated(NamedTuple):
    """Outputs of the generators in a training step.

    Attributes:
        reals: Real images of the domain of each pair of adversaries, float32 [N, H, W, C] in [-1, 1].
        fakes: Translations to the same domains.
        losses: Losses of the generators that need no discriminator, by name.
    """

    reals: tuple[tf.Tensor, ...]
    fakes: tuple[tf.Tensor, ...]
    losses: dict[str, tf.Tensor]


class Objective(abc.ABC):
    """Losses that generators and discriminators minimize: images and networks in, named losses out.

    Every metric is this replica's share of the mean over the global batch: the shares of all replicas add up to the mean.
    No method changes any state. A new objective is a file with its settings and a subclass, and a line in `methods.OBJECTIVES`.

    Args:
        settings: Weights and kinds of the losses.
        global_batch_size: Samples on all replicas.
        same_channels: Whether the images of both domains have the same number of channels.
        precision: Type in which the networks compute.

    Attributes:
        Settings: Class of its settings.
        settings: Its settings.
        loss_names: Names of the losses in training and validation, without penalties; "NAME/total" is the sum of the other losses
            "NAME/...".
        has_heads: Whether it needs `NetworkSet.heads`.
        adversarial: The losses that need a discriminator.
    """

    Settings: ClassVar[type[ObjectiveConfig]]
    settings: Any  # an instance of `Settings`
    loss_names: tuple[str, ...]
    has_heads: ClassVar[bool] = False

    def __init__(
        self, settings: ObjectiveConfig, global_batch_size: int, same_channels: bool = True, precision: str = "float32"
    ) -> None:
        self.settings = settings
        self.same_channels = same_channels
        self.global_batch_size = global_batch_size
        scale = FLOAT16_GRADIENT_SCALE if precision == "float16" else 1.0
        self.adversarial = AdversarialPart(self.adversaries, settings, global_batch_size, scale)

    @property
    def adversaries(self) -> tuple[Adversaries, ...]:
        """The generators and the discriminators of their translations."""
        from cyclegan.networks.network_set import Adversaries

        generators = {"x2y": "G", "y2x": "F"}
        return tuple(Adversaries(generators[each], DIRECTIONS[each][1]) for each in self.settings.directions)

    @property
    @abc.abstractmethod
    def test_names(self) -> tuple[str, ...]:
        """Names of the metrics that validation has besides the losses."""

    @property
    @abc.abstractmethod
    def generator_passes(self) -> int:
        """Batches that each generator translates in a training step."""

    def make_noise(self, random: StepRandomness, size: tuple[int, int]) -> Noise:
        """Return the random numbers that the losses need in training.

        Args:
            random: Random numbers of the step.
            size: (height, width) of the images in pixels.
        """
        return self.adversarial.make_noise(random)

    @abc.abstractmethod
    def generate(self, networks: NetworkSet, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor, noise: Noise) -> Generated:
        """Run the generators' part of a training step, up to the fakes.

        Args:
            networks: The networks.
            x: Images of domain X, float32 [N, H, W, C] in [-1, 1].
            y: Images of domain Y.
            weight: Weights of the samples, float32 [N]; 0 for padding.
            noise: Random numbers from `make_noise`.
        """

    @abc.abstractmethod
    def test(self, networks: NetworkSet, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the metrics of validation. Arguments as for `generate`."""

    @abc.abstractmethod
    def translate_samples(
        self, networks: NetworkSet, x: tf.Tensor, y: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
        """Return the images to plot beside x and beside y: translations, then cycle images with two generators."""

    def flops(self, networks: NetworkSet, height: int, width: int) -> float:
        """Return the floating-point operations of the convolutions in a training step, for one pair of images.

        A forward pass is one product, a backward pass two: for the inputs and for the weights. Gradients at real images are
        counted, too, although nothing needs them; penalties and all operations but convolutions are not.
        """
        from cyclegan.networks.features import count_macs

        # A discriminator learns from real images and fakes. The generators need its gradients at the fakes and, with a pool,
        # another forward pass.
        of_discriminator = 3 * 2 + (2 if self.settings.pool_size else 1)
        macs = 0
        for network in networks.generators.values():
            macs += 3 * self.generator_passes * count_macs(network, height, width)
        for network in networks.discriminators.values():
            macs += of_discriminator * count_macs(network, height, width)
        return 2.0 * macs

    @property
    def paired_names(self) -> tuple[str, ...]:
        """Names of the losses of pairs, which training has if it uses pairs."""
        return tuple(f"{each.generator_losses}/paired" for each in self.adversaries)

    def paired_losses(self, generated: Generated, weight: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the mean absolute error of each generator, by name; the weight [N] is 0 where the images are not a pair."""
        errors = map(losses.mae, generated.reals, generated.fakes)
        means = (self.mean(weight, self.settings.lambda_paired * error) for error in errors)
        return dict(zip(self.paired_names, means))

    def collect(self, parts: dict[str, tf.Tensor], weight: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return all losses but the totals, by name, with the totals, and the share of samples in the batch.

        Raises:
            ValueError: A loss has no name in `loss_names`, so it would be trained without being logged.
        """
        metrics = {}
        all_losses = *self.loss_names, *(name for name in self.paired_names if name in parts)
        if unknown := set(parts) - {*all_losses, *self.adversarial.penalty_names}:
            raise ValueError(f"losses {sorted(unknown)} of {type(self).__name__}: expected them in loss_names")
        for name in all_losses:
            network, part = name.split("/")
            if part == "total":
                terms = [parts[other] for other in all_losses if other.startswith(f"{network}/") and other != name]
                # Not a chain of additions: TensorFlow fuses it into one operation that adds in the order of arrival.
                metrics[name] = tf.reduce_sum(tf.stack(terms))
            else:
                metrics[name] = parts[name]
        penalties = {name: parts[name] for name in self.adversarial.penalty_names if name in parts}
        return {**metrics, **penalties, SAMPLES: self.mean(weight, tf.ones_like(weight))}

    def mean(self, weight: tf.Tensor, per_sample: tf.Tensor) -> tf.Tensor:
        """Return this replica's share of the weighted mean of losses [N] over the global batch."""
        return losses.reduce_mean(weight * per_sample, self.global_batch_size)
