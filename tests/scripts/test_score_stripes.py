import functools
import json

import numpy as np
import pytest
from PIL import Image

from cyclegan.config import Config, serialization
from cyclegan.data import sources
from cyclegan.errors import UserError
from cyclegan.inference.model import Model
from cyclegan.networks import compat
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.train_state import TrainState
from cyclegan.training.step import GAN
from scripts import score_stripes


def make_run(folder, dataset, **settings):
    """Make a run with a checkpoint of untrained networks."""
    folder.mkdir(exist_ok=True)
    config = Config.from_settings(dataset=dataset, image_size=32, filters=4, residual_blocks=0, **settings)
    serialization.save(folder / "config.json", config, compat.stack(), {})
    CheckpointManager(folder / "checkpoints", GAN(1, config).state()).save(TrainState(epoch=1, step=1))
    return folder


@pytest.fixture
def stripes_run(tmp_path):
    return make_run(tmp_path, "stripes")


@pytest.fixture
def scenes_run(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "SPLIT_SIZES", dict.fromkeys(sources.SPLITS, 3))
    return make_run(tmp_path, "scenes")


def test_scores_stand_beside_those_of_the_identity(stripes_run, capsys):
    result = score_stripes.score(stripes_run)
    assert set(result["scores"]) == set(result["identity"]) == {"X -> Y", "Y -> X"}
    for direction, identity in result["identity"].items():
        assert identity["outside"] < 1 and identity["coat"] > 40
        assert result["scores"][direction]["outside"] > 20  # gray everywhere
    score_stripes.main([str(stripes_run)])
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 8 and table[0].split() == ["lower", "is", "better", "trained", "untranslated"]
    inside = f"{result['scores']['Y -> X']['inside']:.1f}"
    assert inside in next(line for line in table if "Y -> X: inside" in line)


def test_labels_and_renderings_are_compared_with_the_truth(scenes_run, capsys):
    score_stripes.main([str(scenes_run), "--json", str(scenes_run / "scores.json")])
    saved = json.loads((scenes_run / "scores.json").read_text())
    scores = saved["scores"]
    assert saved["step"] == 1 and set(scores["X -> Y"]) == {"MAE", "FID", "1000 KID"}
    assert scores["X -> Y"]["MAE"] > 20 and scores["Y -> X"]["classes"] < 20  # gray everywhere
    table = capsys.readouterr().out.splitlines()
    assert table[0].startswith("lower is better, except for accuracies  ")
    assert len(table) == 6 and f"{scores['Y -> X']['pixels']:.1f}" in table[4]


def test_the_truth_scores_best(stripes_run, monkeypatch):
    """Check with networks that return the truth that images and directions are not mixed up."""
    config, *_ = serialization.load(stripes_run / "config.json")
    domains = sources.load_domains(config.data, config.networks.multiple)
    x, y = (np.stack([*part]) for part in (domains.test_x, domains.test_y))
    pairs = {"x2y": (x, y), "y2x": (y, x)}

    def perfect(direction, self, given, size=None):
        source, truth = pairs[direction]
        indices = [int((source == image).all(axis=(1, 2, 3)).argmax()) for image in given]
        np.testing.assert_array_equal(source[indices], given)
        return truth[indices]

    for direction in pairs:
        monkeypatch.setattr(Model, direction, functools.partialmethod(functools.partial(perfect, direction)))
    result = score_stripes.score(stripes_run)
    for direction, trained in result["scores"].items():
        assert max(trained.values()) < 1 and max(result["identity"][direction].values()) > 20


def test_folders_of_photographs_and_label_maps_are_scored(tmp_path, make_images, monkeypatch):
    """Score translations to label maps, whose colors are found; a crop keeps the middle of the images."""
    photos, labels = make_images(2, 40), np.zeros((2, 40, 40, 3), np.uint8)
    labels[:, :, 30:] = (0, 0, 200)  # 6 of 32 columns of the crop
    for folder, images in (("testA", photos), ("testB", labels)):
        (tmp_path / "data" / folder).mkdir(parents=True)
        for i, image in enumerate(images):
            Image.fromarray(image).save(tmp_path / "data" / folder / f"{i}.png")
    run = make_run(tmp_path / "run", str(tmp_path / "data"), preprocess="crop")
    monkeypatch.setattr(Model, "x2y", lambda self, images: np.zeros_like(images))
    result = score_stripes.score(run)
    assert result["scores"]["X -> Y"] == {"pixels": 100 * 26 / 32, "classes": 50}
    assert set(result["scores"]["Y -> X"]) == {"MAE", "FID", "1000 KID"}
    (tmp_path / "data" / "testB" / "1.png").rename(tmp_path / "data" / "testB" / "2.png")
    with pytest.raises(UserError, match="do not have the same names"):
        score_stripes.score(run)


def test_refuses_runs_that_cannot_be_scored(tmp_path, make_images):
    with pytest.raises(UserError, match="no such folder"):
        score_stripes.score(tmp_path / "run")
    for folder in ("testA", "testB"):
        (tmp_path / folder).mkdir()
        for i, image in enumerate(make_images(2)):
            Image.fromarray(image).save(tmp_path / folder / f"{i}.png")
    with pytest.raises(UserError, match="have over 256 colors in both domains; expected RGB label maps in one"):
        score_stripes.score(make_run(tmp_path / "run", str(tmp_path)))


def test_label_accuracy_by_hand():
    colors = np.array([(0, 0, 0), (255, 0, 0), (0, 255, 255)], np.uint8)
    truth = np.array([[[colors[0]] * 6 + [colors[1]] * 2]], np.uint8)  # one image of 1 x 8 pixels
    got = truth.copy()
    got[0, 0, 0] = (127, 10, 10)  # nearer to black than to red
    got[0, 0, 1] = (129, 0, 0)  # red
    got[0, 0, 7] = (90, 180, 180)  # cyan
    expected = {"pixels": 75, "classes": pytest.approx(100 * (5 / 6 + 1 / 2) / 2)}
    assert score_stripes.label_accuracy(colors, got, truth) == expected
    assert score_stripes.label_accuracy(colors, truth, truth) == {"pixels": 100, "classes": 100}


def test_stripes_score_by_hand():
    """Score an image with a brown half on a green ground, whose truth has black and white stripes instead of brown."""
    source = np.full((1, 4, 8, 3), (0, 200, 0), np.uint8)
    truth = source.copy()
    source[:, :2] = 100
    truth[:, :2] = np.where(np.arange(8) % 2, 255, 0)[:, None]
    shifted, brighter = truth.copy(), truth.copy()
    shifted[:, :2] = 255 - truth[:, :2]  # displaced stripes have no error of the coat
    brighter[:, 2:] += 30
    gap = (100 + 155) / 2  # sorted: 100 against 0 in one half, against 255 in the other
    for image, outside, inside, coat, total in (
        (truth, 0, 0, 0, 0),
        (source, 0, gap, gap, gap / 2),
        (shifted, 0, 255, 0, 0),
        (brighter, 30, 0, 0, 15),
    ):
        expected = {"outside": outside, "inside": inside, "coat": coat, "total": total}
        assert score_stripes.stripes_score(source, image, truth) == expected
