"""Scores of generators on held-out images: FID, KID, errors to the ground truth, cycle and identity errors."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from cyclegan import terminal
from cyclegan.config.sections import DIRECTIONS
from cyclegan.config.serialization import RELIABLE
from cyclegan.data import sources
from cyclegan.errors import TrainingError, UserError
from cyclegan.evaluation.features import FeatureExtractor
from cyclegan.evaluation.metrics import errors_to_truth, fid, kid, mae, subset_size
from cyclegan.evaluation.options import BATCH_SIZE
from cyclegan.images.geometry import centre_crop
from cyclegan.images.image import ImageArray
from cyclegan.images.value_range import from_float, to_float

logger = logging.getLogger(__name__)
SUBSETS = 100  # of KID
LEVELS = 127.5  # gray levels per unit of the networks' value range [-1, 1]
Measures = dict[str, np.ndarray]  # features or errors of images by name, [N, ...]


class Evaluator:
    """Compute scores of one or two generators. Features of real images are computed once and kept for later scores.

    FID, KID and the errors to the ground truth use translations rounded to whole gray levels, as in files. Cycle and
    identity errors are computed without rounding, as in training. Only the subsets of KID are random, from `seed`.

    Args:
        generators: The generators by direction, called as `G(images, training=False)` with float32 [N, H, W, C] in
            [-1, 1]. They are compiled once, so they may change between scores through their variables only.
        x: Held-out images of X, uint8 or uint16 [N, h, w, C].
        y: Held-out images of Y.
        size: (height, width) in pixels of the crop from the middle of each image.
        extractor: Features that FID and KID compare.
        paired: Whether image i of Y is the ground truth of image i of X, and the reverse.
        real: Real images of the target domain by direction; by default `y` for "x2y" and `x` for "y2x".
        seed: Seed of the subsets of KID.
        batch_size: Images per batch.
        bars: Whether to show progress bars.

    Attributes:
        is_reliable: Whether there are at least `RELIABLE` images; otherwise scores have no deviation.

    Raises:
        UserError: A domain has fewer than 2 images, or paired domains have different numbers of images.
    """

    def __init__(  # noqa: PLR0913  five of them are keyword-only
        self,
        generators: Mapping[str, Callable[..., tf.Tensor]],
        x: ImageArray,
        y: ImageArray,
        size: tuple[int, int],
        extractor: FeatureExtractor,
        *,
        paired: bool = False,
        real: Mapping[str, ImageArray] | None = None,
        seed: int = 0,
        batch_size: int = BATCH_SIZE,
        bars: bool = False,
    ) -> None:
        self.extractor, self.directions = extractor, tuple(generators)
        self._size, self._batch_size, self._paired, self._seed, self._bars = size, batch_size, paired, seed, bars
        self._same_channels = x.shape[-1] == y.shape[-1]
        self._source, self._target = {"x2y": x, "y2x": y}, {"x2y": y, "y2x": x}
        self._real = {**self._target, **(real or {})}
        self._forward = {direction: _compiled(network) for direction, network in generators.items()}
        self._backward = dict(zip(self.directions, reversed(self._forward.values()))) if len(generators) > 1 else {}
        self._features: dict[int, np.ndarray] = {}  # of real images by id, because the directions share them
        for direction in self.directions:
            for images, domain in zip((self._source[direction], self._real[direction]), DIRECTIONS[direction]):
                if len(images) < 2:
                    raise UserError(
                        f"{len(images)} held-out image of {domain}: FID and KID expect at least 2 of each domain; add"
                        f" images to {' and '.join(sources.TEST_SPLITS)} of the dataset"
                    )
        if paired and len(x) != len(y):
            raise UserError(f"{len(x)} held-out images of X and {len(y)} of Y: expected equal numbers of paired images")
        counts = [len(part[direction]) for direction in self.directions for part in (self._source, self._real)]
        self.is_reliable = min(counts) >= RELIABLE
        if not self.is_reliable:
            logger.warning(
                f"Scores of {min(counts)} images depend on chance: below {RELIABLE} they have no deviation, and choose"
                f" neither a best checkpoint nor the end of training (--patience); add images to"
                f" {' and '.join(sources.TEST_SPLITS)}"
            )

    def scores(self, direction: str, errors: bool = True) -> dict[str, float]:
        """Return the scores of the generator of a direction by name.

        FID, KID and KID_std compare the translations with the real images of the target domain. Paired images have MAE
        in gray levels of 255, PSNR in dB and SSIM, means over the images. With `errors`, there is cycle_MAE, if there
        are two generators, and identity_MAE, if X and Y have the same number of channels, both in gray levels of 255.

        Raises:
            TrainingError: A translation is not finite, or an image cannot be read.
        """
        source, target = self._source[direction], self._target[direction]
        forward, backward = self._forward[direction], self._backward.get(direction)

        def measure(images: tf.Tensor, indices: Sequence[int]) -> Measures:
            fake = self._translate(forward, images, source, indices)
            try:
                rounded = from_float(fake.numpy(), target.dtype)
            except ValueError as error:
                raise TrainingError(str(error)) from None
            cycle = {}
            if errors and backward:
                cycle["cycle_MAE"] = _difference(images, self._translate(backward, fake, source, indices))
            truth = errors_to_truth(rounded, self._crops(target, indices)) if self._paired else {}
            return {"features": self.extractor(to_float(rounded)), **cycle, **truth}

        found = self._measure(source, measure, " to ".join(DIRECTIONS[direction]))
        distances = self._distances(found.pop("features"), direction)
        if errors and self._same_channels:

            def measure_identity(y: tf.Tensor, indices: Sequence[int]) -> Measures:
                return {"identity_MAE": _difference(y, self._translate(forward, y, target, indices))}

            found |= self._measure(target, measure_identity, "Identity")
        return {**distances, **_means(found)}

    def untranslated(self, direction: str) -> dict[str, float]:
        """Return the FID, KID and errors of the untranslated images: the scores that a translation has to beat.

        There are none if X and Y have different numbers of channels.
        """
        if not self._same_channels:
            return {}
        source, target = self._source[direction], self._target[direction]

        def measure(_: tf.Tensor, indices: Sequence[int]) -> Measures:
            return errors_to_truth(self._crops(source, indices), self._crops(target, indices))

        found = self._measure(source, measure, "Untranslated") if self._paired else {}
        return {**self._distances(self._features_of(source), direction), **_means(found)}

    def protocol(self, direction: str) -> dict[str, str | int]:
        """Return how `scores` are computed, as texts and numbers by name."""
        translated, real = len(self._source[direction]), len(self._real[direction])
        size = subset_size(translated, real)
        bits = 8 * np.dtype(self._target[direction].dtype).itemsize
        return {
            "translated": translated,
            "real": real,
            "height": self._size[0],
            "width": self._size[1],
            "rounding": f"translations are rounded to whole gray levels of {bits} bits",
            "features": self.extractor.protocol,
            "features_name": self.extractor.name,
            "KID": f"unbiased, (x.y/d + 1)^3, {SUBSETS} subsets of {size} and {size}",
            "seed": self._seed,
        }

    def _distances(self, features: np.ndarray, direction: str) -> dict[str, float]:
        real = self._features_of(self._real[direction])
        mean, deviation = kid(features, real, SUBSETS, seed=self._seed)
        return {"FID": fid(features, real), "KID": mean, **({"KID_std": deviation} if self.is_reliable else {})}

    def _features_of(self, images: ImageArray) -> np.ndarray:
        if id(images) not in self._features:
            found = self._measure(images, lambda batch, _: {"features": self.extractor(batch)}, "Features")
            self._features[id(images)] = found["features"]
        return self._features[id(images)]

    def _measure(
        self, images: ImageArray, measure: Callable[[tf.Tensor, Sequence[int]], Measures], title: str
    ) -> Measures:
        """Return the results of `measure` for all images, called with batches of crops in [-1, 1] and their indices.

        Batches are full, so that networks are traced once.
        """
        found: dict[str, list[np.ndarray]] = collections.defaultdict(list)
        with terminal.progress_bar(self._bars, total=len(images), desc=title, unit=" images", leave=False) as bar:
            for start in range(0, len(images), self._batch_size):
                indices = range(start, min(start + self._batch_size, len(images)))
                for name, values in measure(tf.constant(to_float(self._crops(images, indices))), indices).items():
                    found[name].append(values[: len(indices)])
                bar.update(len(indices))
        return {name: np.concatenate(parts) for name, parts in found.items()}

    def _translate(
        self, network: Callable[..., tf.Tensor], batch: tf.Tensor, images: ImageArray, indices: Sequence[int]
    ) -> tf.Tensor:
        """Translate a batch; outside of the masks that the images may have, return the batch itself."""
        output, masks = network(batch), getattr(images, "masks", None)
        return output if masks is None else tf.where(self._crops(masks, indices) > 0, output, batch)

    def _crops(self, images: ImageArray, indices: Sequence[int]) -> np.ndarray:
        """Return the centre crops of some images, as in validation; repeat the last one to fill a batch."""
        padded = [*indices] + [indices[-1]] * (self._batch_size - len(indices))
        return np.stack([centre_crop(images[i], self._size) for i in padded])


def _compiled(network: Callable[..., tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    return tf.function(lambda images: network(images, training=False), autograph=False)


def _difference(x: tf.Tensor, y: tf.Tensor) -> np.ndarray:
    """Return the mean absolute difference of each image in gray levels of 255, for images in [-1, 1]."""
    return LEVELS * mae(x.numpy(), y.numpy())


def _means(found: Measures) -> dict[str, float]:
    return {name: float(np.mean(values)) for name, values in found.items()}
