"""The generators of a run, found by its folder alone."""

import json

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config, serialization
from cyclegan.errors import UserError
from cyclegan.inference.restore import restore
from cyclegan.networks import compat, generators
from tests.inference.runs import TINY, UNET, make_run


@pytest.mark.sampled
@pytest.mark.parametrize("changes", [{}, {"ema": 0.9}, {"norm": "batch"}, UNET], ids=str)
def test_three_replicas_restore_without_a_strategy(tmp_path, strategies, changes):
    gan, config = make_run(tmp_path / "run", strategies[3], **changes)
    found = restore(tmp_path / "run")
    assert (found.train_state.epoch, found.train_state.step, found.checkpoint.name) == (2, 7, "epoch_0002-2")
    assert found.config == config
    shape = (1, *found.config.data.image_shape)
    x, y = (np.random.default_rng(0).uniform(-1, 1, (*shape, c)).astype(np.float32) for c in (3, 2))
    (fake_y, cycle_x), (fake_x, _) = gan.objective.translate_samples(gan.networks.in_use, x, y)
    np.testing.assert_array_equal(found.G(x), fake_y)
    np.testing.assert_array_equal(found.F(y), fake_x)
    np.testing.assert_array_equal(found.generator("y2x")(fake_y), cycle_x)
    assert (found.channels("x2y"), found.channels("y2x")) == ((3, 2), (2, 3))


@pytest.mark.sampled
def test_checkpoint_and_precision_can_be_chosen(tmp_path, strategies):
    make_run(tmp_path / "run", strategies[1])
    checkpoints = tmp_path / "run" / "checkpoints"
    (checkpoints / "epoch_0001-1").rename(checkpoints / "best-x2y-1")
    newest, best = restore(tmp_path / "run"), restore(tmp_path / "run", "best-x2y", "bfloat16")
    assert best.checkpoint.name == "best-x2y-1" and best.train_state.epoch == 1
    assert abs(newest.G.variables[0].numpy() - best.G.variables[0].numpy()).min() > 0.009
    assert {tf.as_dtype(v.dtype) for v in best.G.variables} == {tf.float32}
    assert best.G.layers[2].compute_dtype == "bfloat16" and newest.G.layers[2].compute_dtype == "float32"


def test_gpu_memory_grows(tmp_path, strategies, monkeypatch):
    make_run(tmp_path / "run", strategies[1])
    calls = []

    def grow(gpu, on):
        calls.append((gpu, on))
        raise {"gpu 0": RuntimeError, "gpu 1": ValueError}[gpu]("laid down already")

    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["gpu 0", "gpu 1"])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", grow)
    restore(tmp_path / "run")
    assert calls == [("gpu 0", True), ("gpu 1", True)]


def test_random_networks_cause_a_warning(tmp_path, strategies, caplog):
    _, config = make_run(tmp_path / "run", strategies[1])
    restore(tmp_path / "run", "epoch_0001")
    assert not caplog.messages  # without data, a run counts as imported
    serialization.save(tmp_path / "run" / "config.json", config, compat.stack(), {"trainA": "2 images"})
    for _ in range(2):
        restore(tmp_path / "run", "epoch_0001")
    restore(tmp_path / "run")
    (text,) = caplog.messages
    assert "epoch_0001-1 is from before the first step of training" in text


def test_a_damaged_checkpoint_is_skipped_or_refused_by_name(tmp_path, strategies, caplog):
    make_run(tmp_path / "run", strategies[1])
    (tmp_path / "run" / "checkpoints" / "epoch_0002-2" / "state.index").write_bytes(b"")
    assert restore(tmp_path / "run").train_state.epoch == 1
    assert len(caplog.messages) == 1 and "epoch_0002-2 can't be read (" in caplog.messages[0]
    with pytest.raises(UserError, match=r"epoch_0002-2 can't be read \(.*\): expected a checkpoint"):
        restore(tmp_path / "run", "epoch_0002")
    (tmp_path / "run" / "checkpoints" / "epoch_0001-1" / "state.index").unlink()
    with pytest.raises(UserError, match="epoch_0002-2 can't be read .*epoch_0001-1 can't be read ") as raised:
        restore(tmp_path / "run")
    assert "clear_output_dir" not in str(raised.value)


def test_folders_that_hold_no_usable_run_are_refused(tmp_path, strategies):
    with pytest.raises(UserError, match="no such folder; expected the folder of a run"):
        restore(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"config.json: no such file; expected the config.json of a run"):
        restore(tmp_path / "empty")
    config = Config.from_settings(output_dir=str(tmp_path), **TINY)
    serialization.save(tmp_path / "empty" / "config.json", config, compat.stack(), {})
    with pytest.raises(UserError, match="no checkpoint yet; expected a run that has begun to train"):
        restore(tmp_path / "empty")
    make_run(tmp_path / "run", strategies[1])
    with pytest.raises(UserError, match="best-x2y: no such checkpoint; expected one of epoch_0001-1, epoch_0002-2"):
        restore(tmp_path / "run", "best-x2y")
    path = tmp_path / "run" / "config.json"
    saved = json.loads(path.read_text())
    saved["stack"]["keras"] = 5 - saved["stack"]["keras"]
    path.write_text(json.dumps(saved))
    with pytest.raises(UserError, match="was trained with TensorFlow .* its checkpoints fit only there"):
        restore(tmp_path / "run")


def test_a_checkpoint_of_other_networks_is_refused(tmp_path, strategies):
    _, config = make_run(tmp_path / "run", strategies[1])
    serialization.save(tmp_path / "run" / "config.json", config.replace(filters=8), compat.stack(), {})
    with pytest.raises(UserError, match="epoch_0002-2 can't be read .*epoch_0001-1 can't be read "):
        restore(tmp_path / "run")


def test_networks_that_do_not_fit_into_the_memory_are_refused_in_one_line(tmp_path, monkeypatch):
    config = Config.from_settings(output_dir=str(tmp_path), **TINY)
    serialization.save(tmp_path / "config.json", config, compat.stack(), {})

    def fail(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    monkeypatch.setattr(generators, "make_generator", fail)
    with pytest.raises(
        UserError, match="--filters 4: not enough memory for its generators; expected a device with more"
    ):
        restore(tmp_path)
