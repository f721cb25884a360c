"""Scores of two generators."""

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.errors import TrainingError, UserError
from cyclegan.evaluation import evaluator as evaluator_module
from cyclegan.evaluation.evaluator import Evaluator
from cyclegan.evaluation.metrics import errors_to_truth, fid, kid
from tests.evaluation.drawings import draw


@pytest.fixture(scope="module")
def images():
    """Return 5 horses and 7 zebras; the first 5 zebras show the same scenes."""
    return draw("horse", 5), draw("zebra", 7)


def scaled(images):
    return (images / 127.5 - 1).astype(np.float32)


def darker(x, training=False):
    return x - 0.21


def brighter(x, training=False):
    return tf.minimum(x + 0.1, 1.0)


def evaluator_of(x, y, extractor, G=darker, F=brighter, **options):
    return Evaluator({"x2y": G, **({"y2x": F} if F else {})}, x, y, (16, 16), extractor, **options)


def test_scores_of_rounded_translations(images, extractor):
    x, y = images
    evaluator = evaluator_of(x, y, extractor, batch_size=2, seed=3)
    for direction, network, source, target in (("x2y", darker, x, y), ("y2x", brighter, y, x)):
        levels = np.clip(np.rint((network(tf.constant(scaled(source))) + 1).numpy() * 127.5), 0, 255).astype(np.uint8)
        found, real = extractor(scaled(levels)), extractor(scaled(target))
        scores = evaluator.scores(direction)
        mean, deviation = kid(found, real, seed=3)
        assert scores["FID"] == pytest.approx(fid(found, real), rel=1e-3)
        assert scores["KID"] == pytest.approx(mean, rel=1e-2, abs=1e-6)
        assert scores["KID_std"] == pytest.approx(deviation, rel=1e-2, abs=1e-6)
        assert set(scores) == {"FID", "KID", "KID_std", "cycle_MAE", "identity_MAE"}
        protocol = evaluator.protocol(direction)
        assert (protocol["translated"], protocol["real"], protocol["seed"]) == (len(source), len(target), 3)
    assert evaluator.protocol("y2x")["KID"].endswith("100 subsets of 3 and 3")


def test_scores_of_few_images_have_no_deviation(images, extractor, reliable, monkeypatch, caplog):
    x, y = images
    monkeypatch.setattr(evaluator_module, "RELIABLE", reliable)
    few = evaluator_of(x, y, extractor)
    assert not few.is_reliable and set(few.scores("x2y", errors=False)) == {"FID", "KID"}
    (text,) = caplog.messages
    assert text.startswith("Scores of 5 images depend on chance: below 20 they have no deviation, and choose neither a")
    many = evaluator_of(np.repeat(x, 4, axis=0), np.repeat(y, 3, axis=0), extractor)
    assert many.is_reliable and len(caplog.messages) == 1


def test_cycle_and_identity_errors_by_hand(extractor):
    """Translate to images darker by 0.21 and brighter by 0.1 in [-1, 1], where 1 is 127.5 gray levels."""
    x, y = np.full((3, 16, 16, 3), 100, np.uint8), np.full((2, 16, 16, 3), 150, np.uint8)
    evaluator = evaluator_of(x, y, extractor, batch_size=2)
    assert evaluator.scores("x2y")["cycle_MAE"] == pytest.approx(0.11 * 127.5, rel=1e-4)
    assert evaluator.scores("x2y")["identity_MAE"] == pytest.approx(0.21 * 127.5, rel=1e-4)
    assert evaluator.scores("y2x")["identity_MAE"] == pytest.approx(0.1 * 127.5, rel=1e-4)
    assert "cycle_MAE" not in evaluator.scores("x2y", errors=False)


def test_errors_of_paired_images_by_hand(images, extractor):
    x, y = images[0], images[1][:5]
    evaluator = evaluator_of(
        x, y, extractor, lambda a, training: a * 0 - 1, lambda a, training: a, paired=True, batch_size=2
    )
    black, same = evaluator.scores("x2y"), evaluator.scores("y2x")
    errors = errors_to_truth(np.zeros_like(y), y)
    assert black["MAE"] == pytest.approx(y.mean())
    assert black["PSNR"] == pytest.approx(np.mean(errors["PSNR"]))
    assert black["SSIM"] == pytest.approx(np.mean(errors["SSIM"]))
    untranslated = evaluator.untranslated("y2x")
    assert set(untranslated) == {"FID", "KID", "KID_std", "MAE", "PSNR", "SSIM"}
    assert untranslated == pytest.approx({name: same[name] for name in untranslated}, rel=1e-4)
    assert untranslated["MAE"] == pytest.approx(np.abs(x.astype(float) - y).mean())


def test_translations_are_composed_with_their_originals(extractor):
    class Masked(np.ndarray):
        """Images with masks, which are the upper quarter."""

        masks = np.zeros((3, 16, 16, 1), np.uint8)

    Masked.masks[:, :4] = 1
    x, y = (np.full((3, 16, 16, 3), level, np.uint8).view(Masked) for level in (100, 150))
    evaluator = evaluator_of(x, y, extractor, lambda a, training: a * 0 - 1, lambda a, training: a, paired=True)
    scores = evaluator.scores("x2y")
    assert scores["MAE"] == pytest.approx(0.25 * 150 + 0.75 * 50)
    assert scores["cycle_MAE"] == pytest.approx(0.25 * 100, rel=1e-4)
    assert scores["identity_MAE"] == pytest.approx(0.25 * 150, rel=1e-4)


def test_16_bit_images_score_like_8_bit_images(images, extractor):
    x, y = images[0], images[1][:5]
    shallow, deep = (
        evaluator_of(x.astype(dtype) * factor, y.astype(dtype) * factor, extractor, paired=True).scores("x2y")
        for dtype, factor in ((np.uint8, 1), (np.uint16, 257))
    )
    for name in ("MAE", "PSNR", "SSIM", "cycle_MAE", "identity_MAE", "FID"):
        assert shallow[name] == pytest.approx(deep[name], rel=0.02), name


def test_domains_of_different_channels(extractor):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 256, (3, 16, 16, channels)).astype(np.uint8) for channels in (1, 2))
    evaluator = evaluator_of(
        x, y, extractor, lambda a, training: tf.repeat(a, 2, axis=-1), lambda a, training: a[..., :1], batch_size=2
    )
    assert set(evaluator.scores("x2y")) == {"FID", "KID", "KID_std", "cycle_MAE"}
    assert evaluator.scores("x2y")["cycle_MAE"] == 0 and evaluator.untranslated("x2y") == {}


def test_networks_are_traced_once_and_follow_their_variables(images, extractor):
    shade, calls = tf.Variable(0.0), []

    def shift(x, training):
        calls.append(x.shape)
        return x + shade

    evaluator = evaluator_of(*images, extractor, shift, batch_size=4)
    first = evaluator.scores("x2y", errors=False)
    assert evaluator.scores("x2y", errors=False) == first
    shade.assign(0.5)
    assert evaluator.scores("x2y", errors=False)["FID"] > 1.1 * first["FID"]
    assert calls == [(4, 16, 16, 3)]


def test_translation_that_is_not_finite_has_no_scores(images, extractor):
    evaluator = evaluator_of(*images, extractor, lambda x, training: x / 0.0)
    with pytest.raises(TrainingError, match="not finite .*use an older checkpoint"):
        evaluator.scores("x2y")


def test_refuses_single_images_and_unequal_pairs(images, extractor):
    x, y = images
    with pytest.raises(UserError, match="1 held-out image of Y: FID and KID expect at least 2"):
        evaluator_of(x, y[:1], extractor)
    with pytest.raises(UserError, match="5 held-out images of X and 7 of Y: expected equal numbers of paired images"):
        evaluator_of(x, y, extractor, paired=True)


def test_scores_of_one_generator(images, extractor):
    x, y = images
    one, both = (evaluator_of(x, y, extractor, F=F) for F in (None, brighter))
    assert one.directions == ("x2y",) and both.directions == ("x2y", "y2x")
    expected = both.scores("x2y")
    del expected["cycle_MAE"]
    assert one.scores("x2y") == expected
