"""How good two generators are: FID and KID, errors against the truth, cycle and identity errors; and how that was measured."""

import numpy as np
import tensorflow as tf
import tqdm

from cyclegan.config.directions import DIRECTIONS
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import TrainingError, UserError
from cyclegan.evaluation import metrics
from cyclegan.evaluation.features import extractor
from cyclegan.images.value_range import from_float, to_float

BATCH = 4  # pictures at a time; a number of its own, so that scores do not depend on --batch_size
SUBSETS = 100


class Evaluator:
    """Scores two generators on test pictures, as often as wanted; what does not depend on them is computed once.

    Translations are rounded to whole grey levels, as files of them are, before FID, KID and the errors against the truth; cycle
    and identity errors are those of training, of unrounded ones. Nothing random is drawn but the subsets of KID, from a seed of
    their own.

    Args:
        G, F: X -> Y and Y -> X, functions from float32 [N, H, W, C] in [-1, 1] to the same. They may change what they do between
            calls of `scores` if they do it through variables: each is compiled once.
        x, y: test pictures of the domains, uint8 or uint16 [N, H, W, C], or what looks like them one picture at a time.
        size: (height, width) of what is cut from their middle, in pixels.
        extractor: see `features.FeatureExtractor`.
        paired: whether picture i of x and of y show the same.
        real: real pictures of the target domain by direction; by default y for "x2y" and x for "y2x".
        seed: of the subsets of KID.
        batch_size: pictures at a time.
        bars: show progress bars.

    Raises:
        UserError: there are fewer than 2 pictures of a kind; or paired domains differ in their number.
    """

    def __init__(self, G, F, x, y, size, extractor, paired=False, real=None, seed=0, batch_size=BATCH, bars=False):
        self.extractor, self.paired, self.seed, self.batch_size, self.bars = extractor, paired, seed, batch_size, bars
        self.same_channels = x.shape[-1] == y.shape[-1]
        self._sources = {"x2y": _Centred(x, size), "y2x": _Centred(y, size)}
        self._truths = {"x2y": self._sources["y2x"], "y2x": self._sources["x2y"]}
        given = {direction: _Centred(part, size) for direction, part in (real or {}).items()}
        self._real = {**self._truths, **given}
        for direction, (source, target) in DIRECTIONS.items():
            for part, domain in ((self._sources[direction], source), (self._real[direction], target)):
                if len(part) < 2:
                    raise UserError(
                        f"{len(part)} test picture of {domain}: FID and KID expect at least 2 of each domain"
                    )
        if paired and len(x) != len(y):
            raise UserError(f"{len(x)} test pictures of X and {len(y)} of Y: expected as many where they are paired")
        compiled = [tf.function(network, autograph=False) for network in (G, F)]
        self._there = dict(zip(DIRECTIONS, compiled))
        self._back = dict(zip(DIRECTIONS, reversed(compiled)))
        self._features = {}  # of real pictures, by id: the target of one direction is the source of the other

    def scores(self, direction, errors=True):
        """The figures of "x2y" or "y2x", a dict of floats.

        FID, KID and KID_std of the translations and the real pictures of the target domain. Where the truth is known: MAE in
        grey levels of 255, PSNR in dB and SSIM, means over the pictures. With `errors`: cycle_MAE, and where X and Y have as many
        channels, identity_MAE, in grey levels of 255.

        Raises:
            TrainingError: a translation is not finite, or a picture can't be read.
        """
        source, truth = self._sources[direction], self._truths[direction]
        there, back = self._there[direction], self._back[direction]
        found, rows = [], []
        for batch, indices in self._batches(source, f"{'G' if direction == 'x2y' else 'F'} translates"):
            fake = there(batch)
            try:
                rounded = from_float(fake.numpy(), truth.dtype)
            except ValueError as error:
                raise TrainingError(str(error)) from None
            found.append(self.extractor(tf.constant(to_float(rounded)))[: len(indices)])
            row = {"cycle_MAE": _grey_levels(batch, back(fake))} if errors else {}
            if self.paired:
                row.update(against_truth(rounded, truth.batch(indices, self.batch_size)))
            rows.append({name: values[: len(indices)] for name, values in row.items()})
        scores = self._distances(np.concatenate(found), self.real_features(direction))
        scores.update({name: float(np.mean(np.concatenate([row[name] for row in rows]))) for name in rows[0]})
        if errors and self.same_channels:
            same = [
                _grey_levels(batch, there(batch))[: len(indices)] for batch, indices in self._batches(truth, "Identity")
            ]
            scores["identity_MAE"] = float(np.mean(np.concatenate(same)))
        return scores

    def untranslated(self, direction):
        """What leaving the pictures as they are would score, which is what a translation has to beat: as `scores`, FID to SSIM.

        Empty where X and Y have different numbers of channels.
        """
        if not self.same_channels:
            return {}
        source, truth = self._sources[direction], self._truths[direction]
        scores = self._distances(self._features_of(source), self.real_features(direction))
        if self.paired:
            pairs = [
                against_truth(*(part.batch(indices, len(indices)) for part in (source, truth)))
                for _, indices in self._batches(source)
            ]
            scores.update({name: float(np.mean(np.concatenate([pair[name] for pair in pairs]))) for name in pairs[0]})
        return scores

    def real_features(self, direction):
        """The features of the real pictures of a direction's target domain, float32 [N, D]."""
        return self._features_of(self._real[direction])

    def protocol(self, direction):
        """What `scores` did, a dict of texts and numbers."""
        source, real, truth = self._sources[direction], self._real[direction], self._truths[direction]
        size = metrics.subset_size(len(source), len(real))
        return {
            "translated": len(source),
            "real": len(real),
            "height": source.size[0],
            "width": source.size[1],
            "rounding": f"translations are rounded to whole grey levels of {8 * truth.dtype.itemsize} bits",
            "features": self.extractor.protocol,
            "features_name": self.extractor.name,
            "KID": f"unbiased, (x.y/d + 1)^3, {SUBSETS} subsets of {size} and {size}",
            "KID_subsets": SUBSETS,
            "KID_subset_size": size,
            "seed": self.seed,
        }

    def _distances(self, found, real):
        mean, deviation = metrics.kid(found, real, SUBSETS, seed=self.seed)
        return {"FID": metrics.fid(found, real), "KID": mean, "KID_std": deviation}

    def _features_of(self, part):
        if id(part) not in self._features:
            found = [self.extractor(batch)[: len(indices)] for batch, indices in self._batches(part, "Features")]
            self._features[id(part)] = np.concatenate(found)
        return self._features[id(part)]

    def _batches(self, part, title=None):
        """(pictures in [-1, 1], indices) of all of a domain. All batches are full, so that nothing is compiled twice."""
        bar = tqdm.tqdm(
            total=len(part), desc=title, unit=" images", disable=not (self.bars and title) or None, leave=False
        )
        with bar:
            for start in range(0, len(part), self.batch_size):
                indices = range(start, min(start + self.batch_size, len(part)))
                yield tf.constant(to_float(part.batch(indices, self.batch_size))), indices
                bar.update(len(indices))


class _Centred:
    """The middles of pictures, as testing sees them."""

    def __init__(self, images, size):
        # A domain paired with itself: all of its pictures, where testing stops at the end of the smaller domain.
        self._pairs = UnpairedDataset(images, images, 1, size)
        self.size, self.dtype = tuple(size), np.dtype(images.dtype)

    def __len__(self):
        return self._pairs.epoch_size

    def batch(self, indices, count):
        """The pictures of some indices, the last of them again and again up to `count`: [count, H, W, C]."""
        whole = [*indices] + [indices[-1]] * (count - len(indices))
        return np.stack([self._pairs.image(0, 0, i) for i in whole])


def _grey_levels(pictures, others):
    """The mean absolute difference of each, in grey levels of 255. float32 [N, H, W, C] in [-1, 1] twice -> [N]."""
    return 127.5 * metrics.mae(pictures.numpy(), others.numpy())


def against_truth(translated, truth):
    """{"MAE", "PSNR", "SSIM"} of each picture, [N]; uint8 or uint16 [N, H, W, C] twice. MAE in grey levels of 255."""
    peak = float(np.iinfo(truth.dtype).max)
    return {
        "MAE": metrics.mae(translated, truth) * (255 / peak),
        "PSNR": metrics.psnr(translated, truth, peak),
        "SSIM": metrics.ssim(translated, truth, peak),
    }


def of_training(gan, domains, config):
    """The `Evaluator` of --evaluate_every: of the generators for use, on the test pictures.

    Raises:
        UserError: see `Evaluator` and `features.extractor`.
    """
    used = [lambda pictures, i=i: gan.used[i](pictures, training=False) for i in (0, 1)]
    found = extractor(config.evaluate_features, (config.channels_x, config.channels_y))
    x, y = domains.test_x.images, domains.test_y.images
    return Evaluator(*used, x, y, domains.size, found, paired=config.dataset == "stripes", bars=config.verbose > 0)
