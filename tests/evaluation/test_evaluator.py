"""Scores of two generators, and the script that prints those of a run."""

import json
import os
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cyclegan.checkpointing.manager import CheckpointManager
from cyclegan.checkpointing.train_state import TrainState
from cyclegan.config import Config, serialization
from cyclegan.data import loading, sources, stripes
from cyclegan.errors import TrainingError, UserError
from cyclegan.evaluation import features, metrics
from cyclegan.evaluation.evaluator import Evaluator, of_training
from cyclegan.images.value_range import from_float
from cyclegan.networks import compat, generators
from cyclegan.training.gan import CycleGAN
from scripts import evaluate as script

ROOT = pathlib.Path(__file__).resolve().parents[2]


def drawn(animal, count, size=16):
    scenes = (stripes.scene(np.random.default_rng([7, i])) for i in range(count))
    return np.stack([stripes.draw(scene, animal, size) for scene in scenes])


@pytest.fixture(scope="module")
def pictures():
    """(horses, zebras), 5 and 7 of them; the first are the same scenes."""
    return drawn("horse", 5), drawn("zebra", 7)


@pytest.fixture(scope="module")
def random():
    return features.random()


def scaled(pictures):
    return (pictures / 127.5 - 1).astype(np.float32)


def darker(x):
    return x - 0.21


def brighter(x):
    return tf.minimum(x + 0.1, 1.0)


def test_scores_are_those_of_the_rounded_translations_and_all_real_pictures(pictures, random):
    x, y = pictures
    evaluation = Evaluator(darker, brighter, x, y, (16, 16), random, batch_size=2, seed=3)
    for direction, network, source, target in (("x2y", darker, x, y), ("y2x", brighter, y, x)):
        levels = np.clip(np.rint((network(tf.constant(scaled(source))) + 1).numpy() * 127.5), 0, 255).astype(np.uint8)
        found, real = random(scaled(levels)), random(scaled(target))
        scores = evaluation.scores(direction)
        kid, deviation = metrics.kid(found, real, 100, metrics.subset_size(5, 7), seed=3)
        assert scores["FID"] == pytest.approx(metrics.fid(found, real), rel=1e-3)
        assert scores["KID"] == pytest.approx(kid, rel=1e-2, abs=1e-6)
        assert scores["KID_std"] == pytest.approx(deviation, rel=1e-2, abs=1e-6)
        assert set(scores) == {"FID", "KID", "KID_std", "cycle_MAE", "identity_MAE"}
        how = evaluation.protocol(direction)
        assert (how["translated"], how["real"], how["seed"]) == (len(source), len(target), 3)
    assert evaluation.protocol("y2x")["KID_subset_size"] == 3


def test_cycle_and_identity_errors_by_hand(random):
    """Darker by 0.21 and brighter by 0.1, in units of [-1, 1], of which 127.5 grey levels are one."""
    x, y = np.full((3, 16, 16, 3), 100, np.uint8), np.full((2, 16, 16, 3), 150, np.uint8)
    evaluation = Evaluator(darker, brighter, x, y, (16, 16), random, batch_size=2)
    assert evaluation.scores("x2y")["cycle_MAE"] == pytest.approx(0.11 * 127.5, rel=1e-4)
    assert evaluation.scores("x2y")["identity_MAE"] == pytest.approx(0.21 * 127.5, rel=1e-4)
    assert evaluation.scores("y2x")["identity_MAE"] == pytest.approx(0.1 * 127.5, rel=1e-4)
    assert "cycle_MAE" not in evaluation.scores("x2y", errors=False)


def test_errors_to_the_truth_of_paired_pictures_by_hand(pictures, random):
    x, y = pictures[0], pictures[1][:5]
    evaluation = Evaluator(lambda a: a * 0 - 1, lambda a: a, x, y, (16, 16), random, paired=True, batch_size=2)
    black, same = evaluation.scores("x2y"), evaluation.scores("y2x")
    assert black["MAE"] == pytest.approx(y.mean())
    assert black["PSNR"] == pytest.approx(np.mean(metrics.psnr(np.zeros_like(y), y)))
    assert black["SSIM"] == pytest.approx(np.mean(metrics.ssim(np.zeros_like(y), y)))
    untranslated = evaluation.untranslated("y2x")
    assert set(untranslated) == {"FID", "KID", "KID_std", "MAE", "PSNR", "SSIM"}
    assert untranslated == pytest.approx({name: same[name] for name in untranslated}, rel=1e-4)
    assert untranslated["MAE"] == pytest.approx(np.abs(x.astype(float) - y).mean())


def test_the_truth_scores_best(pictures, random):
    x, y = pictures[0], pictures[1][:5]
    answers = {"x2y": scaled(y), "y2x": scaled(x)}
    for direction, truth in answers.items():
        place = [0]

        def perfect(batch, truth=truth, place=place):  # asked for one picture after the other
            place[0] += 1
            return tf.constant(truth[(place[0] - 1) % 5 : (place[0] - 1) % 5 + 1])

        evaluation = Evaluator(darker, brighter, x, y, (16, 16), random, paired=True, batch_size=1)
        evaluation._there[direction] = perfect
        scores = evaluation.scores(direction, errors=False)
        assert scores["MAE"] == 0 and scores["PSNR"] == np.inf and scores["SSIM"] == 1
        assert abs(scores["FID"]) < 1e-3 and scores["KID"] < evaluation.untranslated(direction)["KID"]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_rounding_gives_each_grey_level_back(dtype):
    levels = np.arange(0, np.iinfo(dtype).max + 1, 7 if dtype is np.uint16 else 1).astype(dtype)
    translated = (levels / (np.iinfo(dtype).max / 2) - 1).astype(np.float32)
    np.testing.assert_array_equal(from_float(translated, dtype), levels)
    assert from_float(np.float32([-1.5, 1.5]), dtype).tolist() == [0, np.iinfo(dtype).max]


def test_deep_pictures_score_in_grey_levels_of_255(pictures, random):
    x, y = pictures[0], pictures[1][:5]
    found = [
        Evaluator(darker, brighter, a, b, (16, 16), random, paired=True).scores("x2y")
        for a, b in ((x, y), (x.astype(np.uint16) * 257, y.astype(np.uint16) * 257))
    ]
    for name in ("MAE", "PSNR", "SSIM", "cycle_MAE", "identity_MAE", "FID"):
        assert found[0][name] == pytest.approx(found[1][name], rel=0.02), name


def test_other_numbers_of_channels_have_no_identity_and_no_untranslated_scores(random):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 256, (3, 16, 16, channels)).astype(np.uint8) for channels in (1, 2))
    there, back = lambda a: tf.repeat(a, 2, axis=-1), lambda a: a[..., :1]
    evaluation = Evaluator(there, back, x, y, (16, 16), random, batch_size=2)
    assert set(evaluation.scores("x2y")) == {"FID", "KID", "KID_std", "cycle_MAE"}
    assert evaluation.scores("x2y")["cycle_MAE"] == 0 and evaluation.untranslated("x2y") == {}


def test_networks_are_traced_once_and_follow_their_variables(pictures, random):
    shade, calls = tf.Variable(0.0), []

    def shift(x):
        calls.append(x.shape)
        return x + shade

    evaluation = Evaluator(shift, brighter, *pictures, (16, 16), random, batch_size=4)
    first = evaluation.scores("x2y", errors=False)
    assert evaluation.scores("x2y", errors=False) == first
    shade.assign(0.5)
    assert evaluation.scores("x2y", errors=False)["FID"] > 1.1 * first["FID"]
    assert calls == [(4, 16, 16, 3)]


def test_real_features_are_computed_once(pictures):
    extractor, seen = features.random(), []
    counted = features.FeatureExtractor("random", "", lambda x: x)
    counted._compute = lambda x: seen.append(len(x)) or extractor._compute(x)
    evaluation = Evaluator(darker, brighter, *pictures, (16, 16), counted, batch_size=8)
    for _ in range(3):
        evaluation.scores("x2y")
    assert len(seen) == 1 + 3


def test_a_translation_that_is_not_finite_has_no_scores(pictures, random):
    evaluation = Evaluator(lambda x: x / 0.0, brighter, *pictures, (16, 16), random)
    with pytest.raises(TrainingError, match="not finite .*use an older checkpoint"):
        evaluation.scores("x2y")


def test_single_pictures_and_pairs_that_are_none_are_refused(pictures, random):
    x, y = pictures
    with pytest.raises(UserError, match="1 test picture of Y: FID and KID expect at least 2"):
        Evaluator(darker, brighter, x, y[:1], (16, 16), random)
    with pytest.raises(UserError, match="5 test pictures of X and 7 of Y: expected as many where they are paired"):
        Evaluator(darker, brighter, x, y, (16, 16), random, paired=True)


def test_three_replicas_score_as_one_does(strategies, pictures):
    config = Config.from_settings(filters=2, residual_blocks=0, image_size=16)
    parts = [loading.ImageSet(part, [str(i) for i in range(len(part))], None) for part in pictures]
    domains = sources.Domains(*parts, *parts, size=(16, 16))
    found = []
    for replicas in (1, 3):
        tf.keras.utils.set_random_seed(0)
        with strategies[replicas].scope():
            gan = types.SimpleNamespace(used=[generators.make_generator(config.networks) for _ in range(2)])
        found.append(of_training(gan, domains, config).scores("x2y", errors=False))
    assert found[0] == pytest.approx(found[1], rel=1e-3)


@pytest.fixture(scope="module")
def run(tmp_path_factory, stripes_dir):
    """A run on the embedded data set with a checkpoint of untrained networks, the same one under the name best-x2y."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    folder.mkdir()
    config = Config.from_settings(
        **{"dataset": "stripes", "image_size": 32, "filters": 2, "residual_blocks": 0, "data_dir": stripes_dir},
        **{"output_dir": str(folder), "pool_size": 0, "precision": "float32"},
    )
    serialization.save(folder / "config.json", config, compat.stack(), {})
    checkpoints = CheckpointManager(folder / "checkpoints", CycleGAN(1, config).state())
    checkpoints.save(TrainState(epoch=1, step=5), names=["best-x2y"])
    return folder


def score(run, *flags):
    return script.main([str(run), "--features", "random", *map(str, flags)])


def test_the_script_prints_a_table_and_writes_json(run, tmp_path, capsys):
    file = tmp_path / "scores.json"
    result = score(run, "--checkpoint", "best-x2y", "--json", file, "--max_images", 6)
    out = capsys.readouterr().out
    assert json.loads(file.read_text()) == json.loads(json.dumps(result))
    assert result["checkpoint"] == "best-x2y" and result["epoch"] == 1 and set(result["versions"]) >= {"tensorflow"}
    for direction in ("x2y", "y2x"):
        part = result["directions"][direction]
        assert set(part["scores"]) == set(script.FIGURES)
        assert list(part["untranslated"]) == list(script.FIGURES)[:6]
        assert part["scores"]["FID"] > part["untranslated"]["FID"]  # gray everywhere
        assert f"{part['scores']['FID']:.5g}" in out and f"{part['untranslated']['SSIM']:.5g}" in out
        assert (part["protocol"]["translated"], part["protocol"]["real"], part["protocol"]["seed"]) == (6, 6, 0)
    for text in ("X -> Y", "6 test pictures of X (the first 6 at most) of stripes", "32 x 32 pixels", "whole grey levels of 8 bits",
                 "100 subsets of 4 and 4, seed 0", "not comparable with published FIDs"):  # fmt: skip
        assert text in out


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A data set folder: pictures 0 to 3 of each split, those of testA and testB the same scenes; and "others", as testB."""
    folder = tmp_path_factory.mktemp("pictures")
    for split in (*sources.SPLITS, "others"):
        (folder / split).mkdir()
        for i, picture in enumerate(drawn("horse" if split.endswith("A") else "zebra", 4, 40)):
            Image.fromarray(picture).save(folder / split / f"{i}.png")
    return folder


def test_data_sets_that_moved_and_pairs_by_name(run, folders, tmp_path):
    for split in sources.TEST:  # all that is needed
        (tmp_path / split).symlink_to(folders / split)
    flags = ("--dataset", tmp_path, "--max_images", 3)
    assert "SSIM" in score(run, *flags, "--direction", "x2y", "--paired")["directions"]["x2y"]["scores"]
    (folders / "testB" / "1.png").rename(folders / "testB" / "one.png")
    try:
        with pytest.raises(UserError, match=r"--paired: .* do not have the same names, 1 for one"):
            score(run, *flags, "--paired")
    finally:
        (folders / "testB" / "one.png").rename(folders / "testB" / "1.png")


@pytest.mark.slow
def test_real_pictures_from_elsewhere(run, folders):
    both = score(run, "--real", folders, "--max_images", 4)["directions"]
    assert [both[d]["protocol"]["real"] for d in both] == [4, 4]
    alone = score(run, "--real", folders / "others", "--direction", "x2y", "--max_images", 4)["directions"]
    expected = both["x2y"]["scores"]
    assert alone["x2y"]["scores"] == pytest.approx(expected)  # others holds what testB does
    own = score(run, "--direction", "x2y", "--max_images", 4)["directions"]["x2y"]["scores"]
    assert own["FID"] != pytest.approx(expected["FID"], rel=1e-3) and own["MAE"] == expected["MAE"]


@pytest.mark.parametrize(
    "flags, text",
    [
        (["--max_images", "1"], "--max_images 1: expected at least 2"),
        (["--batch_size", "0"], "--batch_size 0: expected at least 1"),
        (["--seed", "-1"], "--seed -1: expected at least 0"),
        (["--real", "/nowhere"], "--real /nowhere: no such folder; expected one with testA and testB"),
        (
            ["--real", str(ROOT / "docs")],
            "has no testA and testB, so it is pictures of one domain; expected --direction",
        ),
        (["--real", str(ROOT / "tests"), "--direction", "x2y"], "no pictures; expected at least 2 of .jpg"),
        (["--json", "/nowhere/scores.json"], "--json /nowhere/scores.json: expected a file in a folder"),
        (["--checkpoint", "best-y2x"], "best-y2x: no such checkpoint; expected one of best-x2y, epoch_0001"),
        (["--features", "weights.h5"], "weights.h5: no such file; expected random, inception, or a file"),
        (["--dataset", "/nowhere"], "--dataset /nowhere: no such folder"),
    ],
)
def test_what_can_not_be_scored_is_refused(run, flags, text):
    with pytest.raises(UserError) as error:
        score(run, *flags)
    assert text in str(error.value)


def test_too_little_memory_is_one_error(run, monkeypatch):
    def full(self, direction):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor\nwith shape")

    monkeypatch.setattr(Evaluator, "scores", full)
    with pytest.raises(UserError, match="not enough memory for 3 pictures of 32 x 32 pixels .* smaller --batch_size"):
        score(run, "--batch_size", 3)


def test_a_mistake_is_one_line_and_code_2(tmp_path):
    command = [sys.executable, str(ROOT / "scripts" / "evaluate.py"), str(tmp_path / "none"), "--max_images", "0"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 2 and done.stderr == "evaluate.py: --max_images 0: expected at least 2\n"
