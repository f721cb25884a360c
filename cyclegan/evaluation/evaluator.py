"""Scores of one or two generators on held-out images: FID, KID, errors to the ground truth, cycle and identity errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf
import tqdm

from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import TrainingError, UserError
from cyclegan.evaluation.centre_crops import CentreCrops
from cyclegan.evaluation.feature_distances import fid, kid, subset_size
from cyclegan.evaluation.features import FeatureExtractor
from cyclegan.evaluation.image_errors import errors_to_truth, mae
from cyclegan.images.image_array import ImageArray
from cyclegan.images.value_range import from_float, to_float

BATCH_SIZE = 4  # fixed, so that scores during training do not depend on --batch_size
SUBSETS = 100  # of KID
LEVELS = 127.5  # gray levels per unit of the networks' value range [-1, 1]


class Evaluator:
    """Scorer of one or two generators. Features of the real images are computed once and kept for later scores.

    FID, KID and the errors to the ground truth use translations rounded to whole gray levels, as in files. Cycle and identity
    errors are computed without rounding, as in training. Only the subsets of KID are random, from a seed of their own.

    Args:
        G: The generator X -> Y, called as `G(images, training=False)` with float32 [N, H, W, C] in [-1, 1]. It is compiled once,
            so it may change between calls of `scores` through its variables only.
        F: The generator Y -> X; `None` if there is none.
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
        extractor: Features that FID and KID compare.
        directions: Directions of the generators.
        size: (height, width) of the crops in pixels.
        batch_size: Images per batch.

    Raises:
        UserError: A domain has fewer than 2 images, or paired domains have different numbers of images.
    """

    def __init__(  # noqa: PLR0913  five of them are keyword-only
        self,
        G: Callable[..., tf.Tensor],
        F: Callable[..., tf.Tensor] | None,
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
        self.extractor, self.size, self.batch_size = extractor, tuple(size), batch_size
        self._paired, self._seed, self._bars = paired, seed, bars
        self._same_channels = x.shape[-1] == y.shape[-1]
        crops_x, crops_y = CentreCrops(x, size), CentreCrops(y, size)
        self._source = {"x2y": crops_x, "y2x": crops_y}
        self._target = {"x2y": crops_y, "y2x": crops_x}
        given = {direction: CentreCrops(images, size) for direction, images in (real or {}).items()}
        self._real = {**self._target, **given}
        networks = {"x2y": G, **({"y2x": F} if F else {})}
        self.directions = tuple(networks)
        self._check_counts()
        self._forward = {direction: _compiled(network) for direction, network in networks.items()}
        self._backward = dict(zip(self.directions, reversed(self._forward.values()))) if F else {}
        self._features: dict[int, np.ndarray] = {}  # of real images by id, because the directions share them

    def scores(self, direction: str, errors: bool = True) -> dict[str, float]:
        """Score the generator of a direction.

        Args:
            direction: "x2y" or "y2x".
            errors: Whether to compute the cycle and identity errors.

        Returns:
            Scores by name. FID, KID and KID_std compare the translations with the real images of the target domain. Paired images
            have MAE in gray levels of 255, PSNR in dB and SSIM, means over the images. With `errors`, there is cycle_MAE, if
            there is F, and identity_MAE, if X and Y have the same number of channels, both in gray levels of 255.

        Raises:
            TrainingError: A translation is not finite, or an image cannot be read.
        """
        features, rows = self._translate(direction, errors)
        scores = {**self._distances(features, direction), **_means(rows)}
        if errors and self._same_channels:
            scores["identity_MAE"] = self._identity_error(direction)
        return scores

    def untranslated(self, direction: str) -> dict[str, float]:
        """Score the untranslated images; a translation has to beat these scores.

        Returns:
            FID, KID and KID_std, and MAE, PSNR and SSIM of paired images; empty if X and Y have different numbers of channels.
        """
        if not self._same_channels:
            return {}
        source, target = self._source[direction], self._target[direction]
        scores = self._distances(self._features_of(source), direction)
        if self._paired:
            rows = [
                errors_to_truth(*(crops.batch(indices, len(indices)) for crops in (source, target)))
                for _, indices in self._batches(source)
            ]
            scores.update(_means(rows))
        return scores

    def protocol(self, direction: str) -> dict[str, str | int]:
        """Return how `scores` are computed, as texts and numbers by name."""
        source, real = self._source[direction], self._real[direction]
        size = subset_size(len(source), len(real))
        return {
            "translated": len(source),
            "real": len(real),
            "height": source.size[0],
            "width": source.size[1],
            "rounding": f"translations are rounded to whole gray levels of {8 * self._target[direction].dtype.itemsize} bits",
            "features": self.extractor.protocol,
            "features_name": self.extractor.name,
            "KID": f"unbiased, (x.y/d + 1)^3, {SUBSETS} subsets of {size} and {size}",
            "KID_subsets": SUBSETS,
            "KID_subset_size": size,
            "seed": self._seed,
        }

    def _check_counts(self) -> None:
        for direction in self.directions:
            for crops, domain in zip((self._source[direction], self._real[direction]), DIRECTIONS[direction]):
                if len(crops) < 2:
                    raise UserError(
                        f"{len(crops)} held-out image of {domain}: FID and KID expect at least 2 of each domain; add images to"
                        " testA and testB of the dataset"
                    )
        x, y = (len(self._source[direction]) for direction in DIRECTIONS)
        if self._paired and x != y:
            raise UserError(f"{x} held-out images of X and {y} of Y: expected equal numbers of paired images")

    def _translate(self, direction: str, errors: bool) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
        """Return the features of all translations, [N, D], and for each batch the errors of its images by name."""
        source, target = self._source[direction], self._target[direction]
        features, rows = [], []
        for images, indices in self._batches(source, f"{'G' if direction == 'x2y' else 'F'} translates"):
            fake = self._forward[direction](images)
            try:
                rounded = from_float(fake.numpy(), target.dtype)
            except ValueError as error:
                raise TrainingError(str(error)) from None
            features.append(self.extractor(to_float(rounded))[: len(indices)])
            row = {}
            if errors and self._backward:
                row["cycle_MAE"] = _difference(images, self._backward[direction](fake))
            if self._paired:
                row.update(errors_to_truth(rounded, target.batch(indices, self.batch_size)))
            rows.append({name: values[: len(indices)] for name, values in row.items()})
        return np.concatenate(features), rows

    def _identity_error(self, direction: str) -> float:
        target, network = self._target[direction], self._forward[direction]
        errors = [
            _difference(images, network(images))[: len(indices)]
            for images, indices in self._batches(target, "Identity")
        ]
        return float(np.mean(np.concatenate(errors)))

    def _distances(self, features: np.ndarray, direction: str) -> dict[str, float]:
        real = self._features_of(self._real[direction])
        mean, deviation = kid(features, real, SUBSETS, seed=self._seed)
        return {"FID": fid(features, real), "KID": mean, "KID_std": deviation}

    def _features_of(self, crops: CentreCrops) -> np.ndarray:
        if id(crops) not in self._features:
            features = [self.extractor(images)[: len(indices)] for images, indices in self._batches(crops, "Features")]
            self._features[id(crops)] = np.concatenate(features)
        return self._features[id(crops)]

    def _batches(self, crops: CentreCrops, title: str | None = None) -> Iterator[tuple[tf.Tensor, range]]:
        """Yield (images in [-1, 1], indices) for all images; batches are full, so that networks are traced once."""
        hidden = not (self._bars and title) or None  # None shows bars on a terminal only
        with tqdm.tqdm(total=len(crops), desc=title, unit=" images", disable=hidden, leave=False) as bar:
            for start in range(0, len(crops), self.batch_size):
                indices = range(start, min(start + self.batch_size, len(crops)))
                yield tf.constant(to_float(crops.batch(indices, self.batch_size))), indices
                bar.update(len(indices))


def _compiled(network: Callable[..., tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    return tf.function(lambda images: network(images, training=False), autograph=False)


def _difference(x: tf.Tensor, y: tf.Tensor) -> np.ndarray:
    """Return the mean absolute difference of each image in gray levels of 255, for images in [-1, 1]."""
    return LEVELS * mae(x.numpy(), y.numpy())


def _means(rows: list[dict[str, np.ndarray]]) -> dict[str, float]:
    """Return the means over the images of all batches by name."""
    return {name: float(np.mean(np.concatenate([row[name] for row in rows]))) for name in rows[0]}
