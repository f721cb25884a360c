import functools
import json

import numpy as np
import pytest

from cyclegan.config import Config, serialization
from cyclegan.data import embedded, sources
from cyclegan.errors import UserError
from cyclegan.inference.model import Model
from cyclegan.networks import compat
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.train_state import TrainState
from cyclegan.training.gan import GAN
from scripts import score_stripes


def make_run(folder, dataset, data_dir):
    """Make a run on an embedded dataset with a checkpoint of untrained networks."""
    config = Config.from_settings(dataset=dataset, image_size=32, filters=4, residual_blocks=0, data_dir=data_dir)
    serialization.save(folder / "config.json", config, compat.stack(), {})
    CheckpointManager(
        folder / "checkpoints",
        GAN(1, Config.from_settings(filters=4, residual_blocks=0, image_size=32)).state(),
    ).save(TrainState(epoch=1, step=1))
    return folder


@pytest.fixture
def stripes_run(tmp_path, stripes_dir):
    return make_run(tmp_path, "stripes", stripes_dir)


@pytest.fixture
def scenes_run(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "SPLIT_SIZES", dict.fromkeys(sources.SPLITS, 3))
    return make_run(tmp_path, "scenes", str(tmp_path))


def test_scores_stand_beside_those_of_the_identity(stripes_run, capsys):
    result = score_stripes.score(stripes_run)
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
    x, y = (np.stack([*part.images]) for part in (domains.test_x, domains.test_y))
    pairs = {"x2y": (x, y), "y2x": (y, x)}

    def perfect(direction, self, given, size=None):
        source, truth = pairs[direction]
        indices = [int((source == image).all(axis=(1, 2, 3)).argmax()) for image in given]
        np.testing.assert_array_equal(source[indices], given)
        return truth[indices]

    for direction in pairs:
        monkeypatch.setattr(Model, direction, functools.partialmethod(functools.partial(perfect, direction)))
    for trained, identity in score_stripes.score(run).values():
        assert max(trained.values()) < 1 and max(identity.values()) > 20


def test_refuses_runs_that_cannot_be_scored(tmp_path):
    with pytest.raises(UserError, match="no such file; expected the config.json of a run"):
        score_stripes.score(tmp_path)
    serialization.save(tmp_path / "config.json", Config.from_settings(dataset="photos"), {}, {})
    with pytest.raises(UserError, match="was trained on photos; expected a run on stripes or scenes"):
        score_stripes.score(tmp_path)
    config = Config.from_settings(dataset="stripes", image_size=32, filters=4, residual_blocks=0)
    serialization.save(tmp_path / "config.json", config, compat.stack(), {})
    with pytest.raises(UserError, match="no checkpoint yet; expected a run that has begun to train"):
        score_stripes.score(tmp_path)
