"""Interface of an objective, its adversarial losses, and the names of the metrics of a step."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Optional

from cyclegan.config.fields import WARN, flag
from cyclegan.config.sections import ObjectiveConfig
from cyclegan.lazy_tensorflow import tf
from cyclegan.methods import losses
from cyclegan.methods.diffaugment import RANDOM_NUMBERS, diffaugment
from cyclegan.methods.randomness import AUGMENTATION, INTERPOLATION, POOL, Noise, StepRandomness

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

FLOAT16_GRADIENT_SCALE = 2.0**10  # factor on the gradients inside of a penalty, which are too small for float16


@dataclasses.dataclass(frozen=True)
class PairedSettings(ObjectiveConfig):
    """Settings of objectives that also learn from pairs of images."""

    lambda_paired: float = flag(0.0, WARN)
    """weight of the mean absolute error of the translations of pairs (--paired_names)"""


class Generated(NamedTuple):
    """Outputs of the generators in a step.

    Attributes:
        reals: Real images of the domain of each pair of adversaries, float32 [N, H, W, C] in [-1, 1], as the
            discriminators see them: with masks, 0 outside.
        fakes: Translations to the same domains, as the discriminators see them.
        losses: Losses of the generators that need no discriminator, by name.
        compared: In validation, the two images to compare for each name in `Objective.test_names`.
    """

    reals: tuple[tf.Tensor, ...]
    fakes: tuple[tf.Tensor, ...]
    losses: dict[str, tf.Tensor]
    compared: Mapping[str, tuple[tf.Tensor, tf.Tensor]]


class Objective(abc.ABC):
    """Losses that generators and discriminators minimize: images and networks in, named losses out.

    Every metric is this replica's share of the mean over the global batch: the shares of all replicas add up to the
    mean. No method changes any state. A new objective is a file with its settings and a subclass, and a line in
    `methods.OBJECTIVES`. The losses of generator G are named "loss_G/...", those of discriminator D_Y "loss_Y/...".

    Args:
        config: The configuration of the run.
        global_batch_size: Samples on all replicas.

    Attributes:
        Settings: Class of its settings.
        settings: Its settings, joined with the adversarial loss of `losses.ADVERSARIAL_LOSSES`, which has the methods
            `generator_loss` and `discriminator_loss`.
        adversaries: Each `generator`, "G" or "F", with the `domain` that it translates to, "Y" or "X".
        metric_names: Names of all losses and other metrics of "train" and "test", for the log.
    """

    Settings: ClassVar[type[ObjectiveConfig]]
    settings: Any  # an instance of a subclass of `Settings`, see `config.config.section_classes`

    def __init__(self, config: Config, global_batch_size: int) -> None:
        self.settings = config.objective
        self.adversaries = config.objective.adversaries
        self.same_channels = config.data.same_channels
        self.global_batch_size = global_batch_size
        self._penalty_scale = FLOAT16_GRADIENT_SCALE if config.performance.precision == "float16" else 1.0
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
        weight: tf.Tensor,
        noise: Noise | None = None,
        progress: tf.Tensor | float = 1.0,
        masks: Masks = NO_MASKS,
    ) -> Generated:
        """Run the generators' part of a step, up to the fakes.

        Args:
            networks: The networks.
            x: Images of domain X, float32 [N, H, W, C] in [-1, 1].
            y: Images of domain Y.
            weight: Weights of the samples, float32 [N]; 0 for padding.
            noise: Random numbers from `make_noise`; `None` in validation, where the networks run without `training`.
            progress: Share of the training that is done, in [0, 1]. Validation measures as at the end.
            masks: Pixels that the generators may change.
        """

    def make_noise(self, random: StepRandomness, networks: NetworkSet, size: tuple[int, int]) -> Noise:
        """Return the random numbers of a training step, except for dropout, on images of size (height, width)."""
        pairs, columns = len(self.adversaries), {}
        if self.settings.pool_size:
            columns.update(dict.fromkeys(range(POOL, POOL + pairs), 2))
        if self.settings.augmentations:  # of the real images of each pair of adversaries, then of the fakes
            columns.update(dict.fromkeys(range(AUGMENTATION, AUGMENTATION + 2 * pairs), RANDOM_NUMBERS))
        if self.settings.penalizes_gradients:
            columns.update(dict.fromkeys(range(INTERPOLATION, INTERPOLATION + pairs), 1))
        return {purpose: random.shard(random.uniform(purpose, count)) for purpose, count in columns.items()}

    def adversarial_losses(
        self,
        networks: NetworkSet,
        generated: Generated,
        weight: tf.Tensor,
        noise: Noise | None = None,
        shown: Sequence[tf.Tensor] | None = None,
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Return the adversarial losses of the generators, and the losses of the discriminators with their penalties.

        Without noise, as in validation, there are neither augmentations nor penalties. The discriminators learn from
        the translations `shown`, by default from the fakes themselves.
        """
        settings, training, pairs = self.settings, noise is not None, len(self.adversaries)
        of_generators, of_discriminators, penalties = {}, {}, {}
        for i, pair in enumerate(self.adversaries):
            discriminator = networks.discriminators[f"D_{pair.domain}"]
            real = self._augment(generated.reals[i], noise, AUGMENTATION + i)
            fake = self._augment(generated.fakes[i], noise, AUGMENTATION + pairs + i)
            seen = self._augment(shown[i], noise, AUGMENTATION + pairs + i) if shown else fake
            real_logits, seen_logits = networks.apply_to_two(discriminator, real, seen, training)
            # Without a pool, both losses share the logits of the fakes.
            fake_logits = discriminator(fake, training=training) if shown else seen_logits
            of_generators[f"loss_{pair.generator}/loss"] = self.mean(weight, settings.generator_loss(fake_logits))
            loss = settings.discriminator_loss(real_logits, seen_logits)
            of_discriminators[f"loss_{pair.domain}/loss"] = self.mean(weight, loss)
            if noise is not None and settings.has_penalty:
                terms = self._penalties(discriminator, real, seen, noise.get(INTERPOLATION + i))
                penalties[f"loss_{pair.domain}/penalty"] = sum(self.mean(weight, term) for term in terms)
        return of_generators, {**of_discriminators, **penalties}

    def _augment(self, images: tf.Tensor, noise: Noise | None, purpose: int) -> tf.Tensor:
        random = (noise or {}).get(purpose)
        return images if random is None else diffaugment(images, self.settings.augmentations, random)

    def _penalties(
        self, discriminator: losses.Discriminator, real: tf.Tensor, fake: tf.Tensor, position: tf.Tensor | None
    ) -> list[tf.Tensor]:
        """Return the terms of the gradient penalty, [N] each; `position` [N, 1] is only for WGAN-GP."""
        settings, scale, terms = self.settings, self._penalty_scale, []
        if position is not None:
            penalty = losses.gradient_penalty(discriminator, real, fake, position[:, 0], scale)
            terms.append(0.5 * (settings.lambda_gp * penalty))
        if settings.r1:
            terms.append(0.5 * settings.r1 * losses.squared_gradient_norm(discriminator, real, scale))
        return terms

    def paired_losses(self, generated: Generated, weight: tf.Tensor, masks: Masks = NO_MASKS) -> dict[str, tf.Tensor]:
        """Return the mean absolute error of each generator; weights [N] are 0 where the images are not a pair.

        With masks, pixels that are not inside both weigh 0.
        """
        pairs = (
            [losses.hide(masks[0], losses.hide(masks[1], image)) for image in pair]
            for pair in zip(generated.reals, generated.fakes)
        )
        errors = (losses.mae(*pair) for pair in pairs)
        names = (f"loss_{pair.generator}/paired" for pair in self.adversaries)
        return {name: self.mean(weight, self.settings.lambda_paired * error) for name, error in zip(names, errors)}

    def test(
        self, networks: NetworkSet, x: tf.Tensor, y: tf.Tensor, weight: tf.Tensor, masks: Masks = NO_MASKS
    ) -> dict[str, tf.Tensor]:
        """Return the metrics of validation: losses, and comparisons of `test_names`. Arguments as for `generate`."""
        generated = self.generate(networks, x, y, weight, masks=masks)
        of_generators, of_discriminators = self.adversarial_losses(networks, generated, weight)
        parts = {**generated.losses, **of_generators, **of_discriminators}
        metrics = self.collect(parts, weight, "test")
        for name in self.test_names:
            compare = losses.correlation if "correlation" in name else losses.mae
            value, mask = compare(*generated.compared[name]), masks["XY".index(name[name.index("(") + 1])]
            if mask is not None and compare is losses.mae:  # 0 outside: the mean over the pixels inside
                value = tf.math.divide_no_nan(value, losses.mean_per_sample(tf.cast(mask, value.dtype)))
            metrics[name] = self.mean(weight, value)
        return metrics

    def collect(self, parts: Mapping[str, tf.Tensor], weight: tf.Tensor, split: str = "train") -> dict[str, tf.Tensor]:
        """Return all losses of "train" or "test" by name, with the totals of the networks and `SAMPLES`.

        Raises:
            ValueError: A loss has no name in `metric_names`, so it would be trained without being logged.
        """
        names, metrics = self.metric_names[split], {}
        if unknown := set(parts) - {*names}:
            raise ValueError(
                f"losses {sorted(unknown)} of {type(self).__name__}: expected only losses named in its `parts`"
            )
        for name in names:
            network, part = name.split("/", 1)
            if part == "total":
                terms = [parts[other] for other in names if other in parts and other.startswith(f"{network}/")]
                # Not a chain of additions: TensorFlow fuses it into one operation that adds in the order of arrival.
                metrics[name] = tf.reduce_sum(tf.stack(terms))
            elif name in parts:
                metrics[name] = parts[name]
        return {**metrics, SAMPLES: self.mean(weight, tf.ones_like(weight))}

    def mean(self, weight: tf.Tensor, per_sample: tf.Tensor) -> tf.Tensor:
        """Return this replica's share of the weighted mean of losses [N] over the global batch."""
        return losses.reduce_mean(weight * per_sample, self.global_batch_size)

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
