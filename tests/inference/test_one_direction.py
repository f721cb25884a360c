"""Use of a run with a generator X -> Y only."""

import numpy as np
import pytest

from cyclegan.cli import export, import_torch
from cyclegan.errors import UserError
from cyclegan.evaluation.score_options import ScoreOptions
from cyclegan.images import writer
from cyclegan.images.image import DecodedImage
from cyclegan.inference.model import Model
from cyclegan.inference.restore import restore
from cyclegan.inference.score_run import score_run
from cyclegan.inference.translate_files import translate
from tests.inference.arrays import images
from tests.inference.runs import make_run

MISSING = "run: --objective cut has no generator Y -> X; expected --direction x2y"


@pytest.fixture(scope="module")
def one_way(tmp_path_factory, strategies, stripes_dir):
    """Return the folder of a run, and its `GAN`."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    options = {"objective": "cut", "channels_y": 3, "ema": 0.5, "dataset": "stripes", "data_dir": stripes_dir}
    gan, _ = make_run(folder, strategies[1], **options)
    return folder, gan


def test_restores_one_generator(one_way):
    folder, gan = one_way
    found, x = restore(folder), np.random.default_rng(0).uniform(-1, 1, (1, 32, 32, 3)).astype(np.float32)
    assert found.F is None
    assert found.at("epoch_0001").train_state.epoch == 1 and found.at("epoch_0002").F is None
    np.testing.assert_array_equal(found.generator("x2y")(x), gan.networks.in_use.generators["G"](x))


def test_translates_one_way(one_way, tmp_path):
    folder, _ = one_way
    model = Model(folder)
    writer.write(tmp_path / "a.png", DecodedImage(images(20, 24, 3)))
    report = translate(model, tmp_path / "a.png", tmp_path / "out", html=True)
    assert (report.done, report.failed, report.unshown) == (1, [], [])
    page = report.page.read_text()
    assert "No cycle: the run has no generator for the other direction" in page and '"cycle":""' in page
    assert not list((tmp_path / "out").rglob("*cycle*")) and "cycle error" not in page.split("application/json")[1]
    for ask in (lambda: model.y2x(images(20, 24, 3)), lambda: translate(model, tmp_path, tmp_path / "b", "y2x")):
        with pytest.raises(UserError, match=MISSING):
            ask()
    assert not (tmp_path / "b").exists()


def test_scores_one_direction(one_way, caplog):
    folder, _ = one_way
    caplog.set_level("INFO")
    result = score_run(folder, None, ScoreOptions(features="random", max_images=4))
    assert list(result["directions"]) == ["x2y"]
    assert "No scores for Y -> X: --objective cut has no such generator" in caplog.messages
    assert "cycle_MAE" not in result["directions"]["x2y"]["scores"]
    with pytest.raises(UserError, match=MISSING):
        score_run(folder, None, ScoreOptions(features="random", directions=("y2x",)))


def test_exports_one_direction(one_way, tmp_path):
    folder, _ = one_way
    arguments = [str(folder), str(tmp_path / "y2x.keras"), "--format", "keras", "--direction", "y2x"]
    with pytest.raises(UserError, match=MISSING):
        export.main(arguments)
    arguments[1], arguments[5] = str(tmp_path / "x2y.keras"), "x2y"
    assert export.main(arguments) < 1e-4


def test_networks_of_a_cyclegan_cannot_begin_another_objective(tmp_path, monkeypatch):
    monkeypatch.setattr(import_torch, "combined_settings", lambda networks: {})
    with pytest.raises(UserError, match="objective cut: expected cyclegan, whose networks the files hold"):
        import_torch.configure(["--objective", "cut", "--output_dir", str(tmp_path)], {})
