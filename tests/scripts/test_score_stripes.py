import functools

import numpy as np
import pytest

from cyclegan.checkpointing.manager import CheckpointManager
from cyclegan.checkpointing.train_state import TrainState
from cyclegan.config import Config, serialization
from cyclegan.data import sources
from cyclegan.errors import UserError
from cyclegan.inference.model import Model
from cyclegan.networks import compat
from cyclegan.training.gan import GAN
from scripts import score_stripes


@pytest.fixture
def stripes_run(tmp_path, stripes_dir):
    """Make a run on the embedded dataset with a checkpoint of untrained networks."""
    config = Config.from_settings(dataset="stripes", image_size=32, filters=4, residual_blocks=0, data_dir=stripes_dir)
    serialization.save(tmp_path / "config.json", config, compat.stack(), {})
    CheckpointManager(
        tmp_path / "checkpoints",
        GAN(1, Config.from_settings(filters=4, residual_blocks=0, image_size=32)).state(),
    ).save(TrainState(epoch=1, step=1))
    return tmp_path


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


def test_the_truth_scores_best(stripes_run, monkeypatch):
    """Check with networks that return the truth that images and directions are not mixed up."""
    config, *_ = serialization.load(stripes_run / "config.json")
    domains = sources.load_domains(config.data, config.networks.multiple)
    pairs = {
        "x2y": (domains.test_x.images, domains.test_y.images),
        "y2x": (domains.test_y.images, domains.test_x.images),
    }

    def perfect(direction, self, given, size=None):
        source, truth = pairs[direction]
        indices = [int((source == image).all(axis=(1, 2, 3)).argmax()) for image in given]
        np.testing.assert_array_equal(source[indices], given)
        return truth[indices]

    for direction in pairs:
        monkeypatch.setattr(Model, direction, functools.partialmethod(functools.partial(perfect, direction)))
    for trained, _ in score_stripes.score(stripes_run).values():
        assert max(trained.values()) < 1


def test_refuses_runs_that_cannot_be_scored(tmp_path):
    with pytest.raises(UserError, match="no such file; expected the config.json of a run"):
        score_stripes.score(tmp_path)
    serialization.save(tmp_path / "config.json", Config.from_settings(dataset="photos"), {}, {})
    with pytest.raises(UserError, match="was trained on photos; expected a run on stripes"):
        score_stripes.score(tmp_path)
    config = Config.from_settings(dataset="stripes", image_size=32, filters=4, residual_blocks=0)
    serialization.save(tmp_path / "config.json", config, compat.stack(), {})
    with pytest.raises(UserError, match="no checkpoint yet; expected a run that has begun to train"):
        score_stripes.score(tmp_path)
