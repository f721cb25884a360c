"""Training that begins with the weights of another run, or of PyTorch's files."""

import logging
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import cyclegan
from cyclegan.cli import import_torch, train
from cyclegan.config import Config, serialization
from cyclegan.distribution.workers import Workers
from cyclegan.errors import UserError
from cyclegan.interop import torch_networks
from cyclegan.networks import compat
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.run_directory import RunDirectory
from cyclegan.run.train_state import TrainState
from cyclegan.training.setup import load_data, make_trainer
from cyclegan.training.step import GAN
from tests.interop.pytorch_networks import patch_state, resnet_state
from tests.training.helpers import as_trained

SMALL = ["--image_size", "16", "--load_size", "16", "--precision", "float32", "--no_peak"]
SOURCE = {"image_size": 32, "filters": 2, "residual_blocks": 1, "discriminator_layers": 1, "precision": "float32"}


@pytest.fixture
def dataset(tmp_path):
    for split in ("trainA", "trainB", "testA", "testB"):
        (tmp_path / "data" / split).mkdir(parents=True)
        for value in (100, 200):
            Image.fromarray(np.full((16, 20, 3), value, np.uint8)).save(tmp_path / "data" / split / f"{value}.png")
    return tmp_path / "data"


@pytest.fixture
def source(tmp_path):
    """Return a function that saves a run whose weights no seed gives, and whose EMA weights differ from them."""

    def save(name="source", **settings):
        config = Config.from_settings(**{**SOURCE, "seed": 7, **settings})
        gan = as_trained(GAN(1, config))
        gan.networks.reset_ema()
        for variable in gan.networks.generator_variables:
            variable.assign_add(tf.ones_like(variable))
        CheckpointManager(tmp_path / name / "checkpoints", gan.state()).save(TrainState())
        serialization.save(tmp_path / name / "config.json", config, compat.stack(), {"trainA": "2 images"})
        return tmp_path / name, gan

    return save


@pytest.fixture
def begin(dataset, tmp_path, strategies, caplog):
    """Return a function that begins a run as train.py does, up to its first checkpoint; it returns (run, trainer)."""
    caplog.set_level(logging.INFO, "cyclegan")

    def begin(*flags, replicas=1, run="new"):
        flags = [*SMALL, "--dataset", str(dataset), "--output_dir", str(tmp_path / run), *map(str, flags)]
        config, weights = train.configure(flags)
        workers = Workers(strategies[replicas])
        with RunDirectory(config, compat.stack()) as folder:
            copies = {name: network.copy_to for name, network in weights.items()}
            trainer = make_trainer(config, workers, folder, load_data(config, workers, folder), copies)
            if not trainer.policy.checkpoints.newest:
                trainer.policy.checkpoints.save(trainer.state)
        return tmp_path / run

    return begin


def restored(run):
    config = serialization.load(run / "config.json").config
    gan = GAN(1, config)
    CheckpointManager(run / "checkpoints", gan.state()).restore()
    return gan, config


def weights(gan, name):
    return [tf.convert_to_tensor(variable).numpy() for variable in gan.state()[name].variables]


def assert_equal(gan, other, names):
    for name in names:
        for here, there in zip(weights(gan, name), weights(other, other_name(other, name))):
            np.testing.assert_array_equal(here, there, err_msg=name)


def other_name(gan, name):
    """Return the name of the weights of a source that translate."""
    return f"{name}_ema" if f"{name}_ema" in gan.state() else name


@pytest.mark.sampled
@pytest.mark.parametrize("replicas", [2, 1])
def test_all_networks_begin_with_the_weights_of_a_run(source, begin, caplog, replicas):
    path, gan = source(ema=0.9, norm="batch", variant="paper")
    new, config = restored(begin("--init_from", path, "--ema", "0.5", replicas=replicas))
    assert (config.networks.filters, config.networks.norm, config.networks.variant) == (2, "batch", "paper")
    assert config.optimization.discriminator_warmup == 0 and config.run.init_from == str(path)
    assert_equal(new, gan, ["G", "F", "D_X", "D_Y"])
    for name in "GF":
        for here, there in zip(weights(new, name), weights(new, f"{name}_ema")):
            np.testing.assert_array_equal(here, there)
    assert f"Weights of D_X, D_Y, F, G from {path}/checkpoints/epoch_0000-1, the EMA weights" in caplog.text


def test_networks_that_a_run_lacks_begin_anew(source, begin, caplog):
    path, gan = source(objective="cut")
    new, config = restored(begin("--init_from", path, "--objective", "dclgan"))
    assert_equal(new, gan, ["G", "D_Y"])
    assert config.optimization.discriminator_warmup == 0  # the generator of D_X is new, too
    assert "D_X begins with random weights; F begins with random weights" in caplog.text
    same, _ = restored(begin("--init_from", path, "--objective", "cut", run="cut"))
    assert_equal(same, gan, ["G", "D_Y", "heads"])


def test_a_resumed_run_needs_its_source_no_more(source, begin, caplog):
    path, gan = source()
    flags = ["--init_from", f"{path}/checkpoints/epoch_0000-1"]
    run = begin(*flags)
    shutil.rmtree(path)
    begin(*flags)
    assert "Resumed from" in caplog.text
    assert_equal(restored(run)[0], gan, ["G", "F", "D_X", "D_Y"])
    assert cyclegan.load(run).config.run.init_from == flags[1] and "random" not in caplog.text
    with pytest.raises(UserError, match=r"--init_from .*: no such file or folder; expected the folder of a run"):
        begin(*flags, run="other")
    begin()  # the run knows its source
    with pytest.raises(UserError, match="holds a run that differs: .*init_from"):
        begin("--init_from", "other")


def test_flags_that_contradict_the_weights_are_named(source, begin):
    path, _ = source(channels_x=1)
    with pytest.raises(UserError) as error:
        begin("--init_from", path, "--filters", "3", "--norm", "batch", "--dropout", "0.5")
    assert str(error.value) == (
        f"--filters 3: expected 2, as {path} has; --norm batch: expected instance, as {path} has: drop the flags"
    )


def test_other_images_point_to_init_from(begin, dataset, tmp_path):
    run = begin("--filters", 1, "--residual_blocks", 0, "--discriminator_layers", 1)
    (dataset / "trainA" / "100.png").rename(dataset / "trainA" / "other.png")
    with pytest.raises(UserError, match=f"with these settings, give --config {run} --init_from {run} and another"):
        begin("--filters", 1, "--residual_blocks", 0, "--discriminator_layers", 1)


def test_a_run_begins_with_files_of_pytorch(begin, tmp_path, monkeypatch, caplog):
    folder = tmp_path / "theirs"
    folder.mkdir()
    states = {"G_A": resnet_state(seed=1), "G_B": resnet_state(seed=2), "D_A": patch_state(layers=1, seed=3)}
    files = {str(folder / f"latest_net_{name}.pth"): state for name, state in states.items()}
    for path in (*files, folder / "5_net_G_A.pth", folder / "latest_net_G.pth"):
        open(path, "w").close()
    monkeypatch.setattr(torch_networks, "load_state_dict", files.__getitem__)
    new, config = restored(begin("--init_from", folder, "--dropout", "0.1"))
    assert config.optimization.discriminator_warmup == train.WARMUP and config.networks.dropout == 0.1
    assert "D_X begins with random weights\nThe first 500 steps update only" in "\n".join(caplog.messages)
    imported = import_torch.main([*files][:2] + ["--image_size", "32", "--output_dir", str(tmp_path / "imported")])
    assert_equal(new, restored(imported)[0], ["G", "F"])
    assert torch_networks.find_files(str(folder / "5_net_G_A.pth")) == {"G": str(folder / "5_net_G_A.pth")}
