"""Scores of a run, by scripts/evaluate.py."""

import importlib.util
import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cyclegan.cli import evaluate
from cyclegan.config import serialization
from cyclegan.config.config import Config
from cyclegan.data import sources
from cyclegan.errors import UserError
from cyclegan.evaluation import score_run
from cyclegan.evaluation.evaluator import Evaluator
from cyclegan.evaluation.features import make_extractor
from cyclegan.evaluation.metrics import fid
from cyclegan.evaluation.score_run import check_same_names, read_folder
from cyclegan.images import formats
from cyclegan.images.image import DecodedImage
from cyclegan.inference.model import Model
from cyclegan.networks import compat
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.train_state import TrainState
from cyclegan.training.step import GAN
from tests.evaluation.drawings import draw
from tests.images.dicom_samples import twelve_bits
from tests.images.samples import deep_png
from tests.inference.arrays import images

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Make a run on the embedded dataset with a checkpoint of untrained networks, also under the name best-x2y."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    folder.mkdir()
    config = Config.from_settings(
        **{"dataset": "stripes", "image_size": 32, "filters": 2, "residual_blocks": 0},
        **{"output_dir": str(folder), "pool_size": 0, "precision": "float32"},
    )
    serialization.save(folder / "config.json", config, compat.stack(), {})
    checkpoints = CheckpointManager(folder / "checkpoints", GAN(1, config).state())
    checkpoints.save(TrainState(epoch=1, step=5), best=["best-x2y"])
    return folder


def score(run, *flags):
    return evaluate.main([str(run), "--features", "random", *map(str, flags)])


def test_prints_a_table_and_writes_json(run, tmp_path, capsys):
    file = tmp_path / "scores.json"
    result = score(run, "--checkpoint", "best-x2y", "--json", file, "--max_images", 6)
    out = capsys.readouterr().out
    assert json.loads(file.read_text()) == json.loads(json.dumps(result))
    assert result["checkpoint"].startswith("best-x2y") and result["epoch"] == 1 and "tensorflow" in result["versions"]
    for direction in ("x2y", "y2x"):
        part = result["directions"][direction]
        assert set(part["scores"]) == set(evaluate.TITLES)
        assert list(part["untranslated"]) == list(evaluate.TITLES)[:6]
        assert part["scores"]["FID"] > part["untranslated"]["FID"]  # gray everywhere
        assert f"{part['scores']['FID']:.5g}" in out and f"{part['untranslated']['SSIM']:.5g}" in out
        assert (part["protocol"]["translated"], part["protocol"]["real"], part["protocol"]["seed"]) == (6, 6, 0)
    for text in (
        "X -> Y",
        "6 held-out images of X (at most the first 6) of stripes",
        "32 x 32 pixels",
        "whole gray levels of 8 bits",
        "100 subsets of 4 and 4, seed 0",
        "not comparable with published FIDs",
    ):
        assert text in out


def save_another(run, epoch, change):
    """Save a further checkpoint of a run with other weights of G."""
    gan = GAN(1, serialization.load(run / "config.json").config)
    G = gan.networks.generators["G"]
    G.set_weights([change(weights) for weights in G.get_weights()])
    CheckpointManager(run / "checkpoints", gan.state()).save(TrainState(epoch=epoch, step=9))


def test_all_checkpoints_stand_in_one_table(run, tmp_path, capsys, caplog):
    copy, file = shutil.copytree(run, tmp_path / "run"), tmp_path / "scores.json"
    save_another(copy, 2, lambda weights: weights + 1)
    save_another(copy, 3, lambda weights: float("nan") * weights)
    (copy / "checkpoints" / "best-y2x-9").mkdir()  # damaged
    flags = ("--max_images", 3, "--direction", "x2y")
    first, last = score(copy, "--all-checkpoints", *flags, "--json", file)["checkpoints"]
    lines = capsys.readouterr().out.splitlines()
    first_line, last_line = (line for line in lines if line.startswith("epoch_"))
    assert re.match(r"epoch_0001\S*, best-x2y\S* +1 +5 ", first_line)
    fid = re.escape(f"{last['directions']['x2y']['scores']['FID']:.5g}")
    assert re.match(rf"epoch_0002\S* +2 +9 +{fid}", last_line)
    assert re.search("best-y2x.* can't be read", caplog.text) and re.search("epoch_0003.* has no scores: ", caplog.text)
    assert len(first["aliases"]) == 1 and last["aliases"] == []
    assert json.loads(file.read_text())["checkpoints"] == json.loads(json.dumps([first, last]))
    alone = score(copy, "--checkpoint", "epoch_0002", *flags)["directions"]["x2y"]
    assert alone["scores"] == pytest.approx(last["directions"]["x2y"]["scores"])
    assert alone["untranslated"] == last["directions"]["x2y"]["untranslated"]


def test_the_best_checkpoint_alone_is_scored(run, tmp_path, caplog):
    copy = shutil.copytree(run, tmp_path / "run")
    save_another(copy, 2, lambda weights: float("nan") * weights)
    (damaged,) = (copy / "checkpoints").glob("epoch_0001*/state.index")
    damaged.write_bytes(b"damaged")
    flags = ("--all-checkpoints", "--max_images", 3, "--direction", "x2y")
    (result,) = score(copy, *flags)["checkpoints"]
    assert result["checkpoint"].startswith("best-x2y") and result["aliases"] == []
    assert re.search("epoch_0001.* can't be read", caplog.text)
    for name in ("epoch_0001*", "best-x2y*"):
        shutil.rmtree(*(copy / "checkpoints").glob(name))
    with pytest.raises(UserError, match="no checkpoint has scores, see above"):
        score(copy, *flags)


def test_a_run_of_one_direction(run, tmp_path):
    copy = tmp_path / "run"
    copy.mkdir()
    config = serialization.load(run / "config.json").config.replace(objective="cut")
    serialization.save(copy / "config.json", config, compat.stack(), {})
    CheckpointManager(copy / "checkpoints", GAN(1, config).state()).save(TrainState(epoch=1, step=5))
    (part,) = score(copy, "--max_images", 4)["directions"].values()
    assert "FID" in part["scores"] and "cycle_MAE" not in part["scores"]
    with pytest.raises(UserError, match="--objective cut has no generator Y -> X; expected --direction x2y"):
        score(copy, "--direction", "y2x")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Make a dataset with 4 images per split, the test splits of the same scenes, and "others", a copy of testB."""
    folder = tmp_path_factory.mktemp("images")
    for split in (*sources.SPLITS, "others"):
        (folder / split).mkdir()
        for i, image in enumerate(draw("horse" if split.endswith("A") else "zebra", 4, 40)):
            Image.fromarray(image).save(folder / split / f"{i}.png")
    return folder


def test_the_protocol_of_cut_compares_saved_images_at_the_best_and_the_last_checkpoint(
    run, folders, tmp_path, monkeypatch, capsys
):
    """Compare with the FID between PNG files of the translations and the resized images of testB."""
    copy, kinds = shutil.copytree(run, tmp_path / "run"), []
    save_another(copy, 2, lambda weights: weights - 0.5)
    save_another(copy, 3, lambda weights: weights + 1)
    config = serialization.load(copy / "config.json").config.replace(max_dataset_size=2)
    serialization.save(copy / "config.json", config, compat.stack(), {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)  # PyTorch is not needed for these features
    monkeypatch.setattr(score_run, "make_extractor", lambda kind, _: kinds.append(kind) or make_extractor("random"))
    result = evaluate.main([str(copy), "--protocol", "cut", "--direction", "x2y", "--dataset", str(folders)])
    assert kinds == ["fid"]
    last, best = result["checkpoints"]
    assert last["epoch"] == 3 and best["epoch"] == 1 and best["checkpoint"].startswith("best-x2y")
    out, size = capsys.readouterr().out, (256, 256)
    assert "256 x 256 pixels" in out and "Protocol: cut; published FIDs are of the best checkpoint" in out
    for each in (last, best):
        model = Model(copy, each["checkpoint"])
        fake, real = [], []
        for i in range(4):
            model.x2y(folders / "testA" / f"{i}.png", size).save(tmp_path / f"{i}.png")
            fake.append(np.asarray(Image.open(tmp_path / f"{i}.png")))
            real.append(np.asarray(Image.open(folders / "testB" / f"{i}.png").resize(size, Image.Resampling.BICUBIC)))
        features = [make_extractor("random")((np.stack(part) / 127.5 - 1).astype(np.float32)) for part in (fake, real)]
        assert each["directions"]["x2y"]["scores"]["FID"] == pytest.approx(fid(*features), rel=1e-3)
    assert {4} == {best["directions"]["x2y"]["protocol"][name] for name in ("real", "translated")}


def test_a_moved_dataset_is_paired_by_name(run, folders, tmp_path):
    for split in sources.TEST_SPLITS:  # the other splits are not needed
        (tmp_path / split).symlink_to(folders / split)
    flags = ("--dataset", tmp_path, "--max_images", 3)
    assert "SSIM" in score(run, *flags, "--direction", "x2y", "--paired")["directions"]["x2y"]["scores"]
    (folders / "testB" / "1.png").rename(folders / "testB" / "one.png")
    try:
        with pytest.raises(UserError, match=r"--paired: .* do not have the same names, for example 1;"):
            score(run, *flags, "--paired")
    finally:
        (folders / "testB" / "one.png").rename(folders / "testB" / "1.png")


def test_other_images_than_those_of_the_training_are_a_warning(run, folders, tmp_path, caplog):
    copy = shutil.copytree(run, tmp_path / "run")
    config = serialization.load(run / "config.json").config.replace(dataset=str(folders))
    data = sources.load_domains(config.data, 4, splits=sources.TEST_SPLITS).fingerprint()
    for saved, warns in ((data, False), ({**data, "testB": "1 images (00000000)"}, True)):
        serialization.save(copy / "config.json", config, compat.stack(), saved)
        caplog.clear()
        score(copy, "--direction", "x2y")
        assert any("testB are not those of the run's training" in text for text in caplog.messages) == warns


def test_values_of_a_range_are_scored_like_files_of_all_values(run, tmp_path):
    """Score images of 12 bits with a range, and the same images rescaled to 16 bits without one."""
    results = []
    for name, ranges in (("ranged", {"A": "0:4095", "B": "0:8190"}), ("plain", {"A": None, "B": None})):
        for domain, high in (("A", 4095), ("B", 8190)):
            (tmp_path / name / f"test{domain}").mkdir(parents=True)
            for i in range(3):
                values = np.repeat(twelve_bits(32, 32, seed=i)[..., np.newaxis], 3, axis=2)
                levels = values if ranges[domain] else np.rint(values / high * 65535).astype(np.uint16)
                (tmp_path / name / f"test{domain}" / f"{i}.png").write_bytes(deep_png(levels))
        copy = shutil.copytree(run, tmp_path / name / "run")
        config = serialization.load(run / "config.json").config
        config = config.replace(value_range_x=ranges["A"], value_range_y=ranges["B"])
        serialization.save(copy / "config.json", config, compat.stack(), {})
        result = score(copy, "--dataset", tmp_path / name, "--real", tmp_path / name)
        results.append([(part["scores"], part["untranslated"]) for part in result["directions"].values()])
    assert results[0] == results[1]


@pytest.mark.slow
def test_real_images_of_another_folder_are_compared(run, folders):
    both = score(run, "--real", folders, "--max_images", 4)["directions"]
    assert [both[d]["protocol"]["real"] for d in both] == [4, 4]
    alone = score(run, "--real", folders / "others", "--direction", "x2y", "--max_images", 4)["directions"]
    expected = both["x2y"]["scores"]
    assert alone["x2y"]["scores"] == pytest.approx(expected)  # others has the images of testB
    own = score(run, "--direction", "x2y", "--max_images", 4)["directions"]["x2y"]["scores"]
    assert own["FID"] != pytest.approx(expected["FID"], rel=1e-3) and own["MAE"] == expected["MAE"]


def test_real_images_are_resized_like_held_out_images(run, tmp_path):
    model, names = Model(run), ("a.png", "b.png", "sub/c.jpg")
    exact, deep, _ = pixels = [images(32, 32, 1), images(32, 32, 1, dtype=np.uint16), images(33, 50, 3)]
    for name, image in zip(names, pixels):
        formats.write(tmp_path / name, DecodedImage(image))
    found = read_folder(tmp_path, model, "x2y", (32, 32))
    assert found.shape == (3, 32, 32, 3) and found.dtype == np.uint16  # one image of 16 bits makes all so
    np.testing.assert_array_equal(found[0][..., :1], exact * np.uint16(257))
    np.testing.assert_array_equal(found[1][..., :1], deep)
    assert found[2].shape == (32, 32, 3)
    model.config = model.config.replace(preprocess="none", dataset="photos")
    (tmp_path / "sub" / "c.jpg").unlink()
    text = f"--real {tmp_path}: the images have 32 x 32 pixels after resizing; expected the run's 16 x 32 pixels"
    with pytest.raises(UserError, match=re.escape(text)):
        read_folder(tmp_path, model, "x2y", (32, 16))


@pytest.mark.parametrize(
    "x, y, counts, example",
    [
        (["testA/1.png", "testA/2.png"], ["testB/1.png", "testB/3.png"], (2, 2), "2"),
        (["testA/1.png"], ["testB/b/1.png"], (1, 1), "1"),
        (["testA/2.png", "testA/1.png"], ["testB/1.png", "testB/2.png"], (2, 2), "2"),  # in another order
    ],
)
def test_pairs_differ_in_folder_and_suffix_only(x, y, counts, example):
    check_same_names(["testA/1.png", "testA/b/2.jpg"], ["testB/1.tif", "testB/b/2.png"])
    with pytest.raises(UserError) as error:
        check_same_names(x, y)
    assert "of X ({}) and Y ({}) do not have the same names".format(*counts) in str(error.value)
    assert f"for example {example}; expected an image of Y with the same name" in str(error.value)


@pytest.mark.parametrize(
    "flags, text",
    [
        (["--max_images", 1], "--max_images 1: expected a whole number of at least 2"),
        (["--seed", -1], "--seed -1: expected a whole number of at least 0"),
        (["--real", "/nowhere"], "--real /nowhere: no such folder; expected a folder with testA and testB"),
        (["--real", ROOT], "has no testA and testB, so its images are of one domain; expected --direction"),
        (["--real", ROOT / "tests", "--direction", "x2y"], "no images; expected at least 2 of .png"),
        (["--checkpoint", "best-y2x"], "best-y2x: no such checkpoint; expected one of epoch_0001"),
        (["--features", "weights.h5"], "weights.h5: no such file; expected one of random, inception, fid, fid-tf1,"),
        (
            ["--protocol", "cut", "--max_images", 3],
            "--protocol cut compares all held-out images; expected neither --real",
        ),
        (["--dataset", "/nowhere"], "--dataset /nowhere: no such folder"),
    ],
)
def test_refuses_requests_that_cannot_work(run, flags, text):
    with pytest.raises(UserError) as error:
        score(run, *flags)
    assert text in str(error.value)


def test_training_images_are_not_taken_for_one_domain(tmp_path):
    (tmp_path / "trainA").mkdir()
    with pytest.raises(UserError, match="has no testB; expected the folder of one domain"):
        score_run.ScoreOptions(real=str(tmp_path)).real_folder("x2y")


def test_an_unknown_protocol_is_refused():
    with pytest.raises(UserError, match="--protocol cur: expected cut"):
        score_run.ScoreOptions(protocol="cur")


def test_too_little_memory_is_explained(run, monkeypatch):
    def full(self, direction):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor\nwith shape")

    monkeypatch.setattr(Evaluator, "scores", full)
    with pytest.raises(UserError, match="not have enough memory for batches of 3 images; .* --batch_size"):
        score(run, "--batch_size", 3)
