import functools
import json

import numpy as np
import pytest

from cyclegan.config import Config, serialization
from cyclegan.data import sources
from cyclegan.errors import UserError
from cyclegan.inference.model import Model
from cyclegan.networks import compat
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.train_state import TrainState
from cyclegan.training.gan import GAN
from scripts import score_stripes


def make_run(folder, dataset):
    """Make a run on an embedded dataset with a checkpoint of untrained networks."""
    config = Config.from_settings(dataset=dataset, image_size=32, filters=4, residual_blocks=0)
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
    _, result = score_stripes.score(stripes_run)
    assert set(result) == {"X -> Y", "Y -> X"}
    for trained, identity in result.values():
        assert identity["outside"] < 1 and identity["inside"] > 40 and identity["coat"] > 40
        assert trained["outside"] > 20  # gray everywhere
    score_stripes.main([str(stripes_run)])
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 8 and table[0].split()[-2:] == ["trained", "identity"]
    assert f"{result['Y -> X'][0]['inside']:.1f}" in next(line for line in table if "Y -> X: inside" in line)


def test_labels_and_renderings_are_compared_with_the_truth(scenes_run, capsys):
    score_stripes.main([str(scenes_run), "--json", str(scenes_run / "scores.json")])
    saved = json.loads((scenes_run / "scores.json").read_text())
    assert set(saved["X -> Y"]) == {"error"} and set(saved["Y -> X"]) == {"pixels", "classes"}
    assert saved["X -> Y"]["error"] > 20 and saved["Y -> X"]["classes"] > 80  # gray everywhere
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 4 and f"{saved['Y -> X']['pixels']:.1f}" in table[2]


@pytest.mark.sampled
@pytest.mark.parametrize("run", ["scenes_run", "stripes_run"])
def test_the_truth_scores_best(run, request, monkeypatch):
    """Check with networks that return the truth that images and directions are not mixed up."""
    run = request.getfixturevalue(run)
    config, *_ = serialization.load(run / "config.json")
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
    for trained, identity in score_stripes.score(run)[1].values():
        assert max(trained.values()) < 1 and max(identity.values()) > 20


def test_refuses_runs_that_cannot_be_scored(tmp_path, stripes_run):
    with pytest.raises(UserError, match="no such file; expected the config.json of a run"):
        score_stripes.score(tmp_path / "checkpoints")
    config = serialization.load(stripes_run / "config.json").config
    serialization.save(stripes_run / "config.json", config.replace(dataset="photos"), compat.stack(), {})
    with pytest.raises(UserError, match="was trained on photos; expected a run on stripes or scenes"):
        score_stripes.score(stripes_run)


def test_label_errors_by_hand():
    colors = [(0, 0, 0), (255, 0, 0), (0, 255, 255)]
    truth = np.array([[[colors[0]] * 6 + [colors[1]] * 2]], np.uint8)  # one image of 1 x 8 pixels
    got = truth.copy()
    got[0, 0, 0] = (127, 10, 10)  # nearer to black than to red
    got[0, 0, 1] = (129, 0, 0)  # red
    got[0, 0, 7] = (90, 180, 180)  # cyan
    expected = {"pixels": 25.0, "classes": pytest.approx(100 * (1 / 6 + 1 / 2) / 2)}
    assert score_stripes.label_errors(got, truth, colors) == expected
    assert score_stripes.label_errors(truth, truth, colors) == {"pixels": 0.0, "classes": 0.0}


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
