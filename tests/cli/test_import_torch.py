"""Import of PyTorch's files as a run, which training continues."""

import logging
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import cyclegan
from cyclegan.cli import import_torch, train
from cyclegan.config import serialization
from cyclegan.errors import UserError
from cyclegan.interop import torch_networks
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.training.step import GAN
from tests.interop.pytorch_networks import (
    filled,
    patch_state,
    pytorch_patch_discriminator,
    pytorch_resnet,
    resnet_state,
    with_random_weights,
)

SMALL = ["--image_size", "32", "--precision", "float32"]


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that puts a state dict into a file, for which PyTorch is not needed."""
    states, load = {}, torch_networks.load_state_dict

    def write(name, state):
        states[str(tmp_path / name)] = state
        return str(tmp_path / name)

    monkeypatch.setattr(torch_networks, "load_state_dict", lambda path: states[path] if path in states else load(path))
    return write


def restored(run):
    """Return (networks, configuration, dataset, position) of a run's newest checkpoint."""
    config, _, data, *_ = serialization.load(run / "config.json")
    gan = GAN(1, config)
    state, _ = CheckpointManager(run / "checkpoints", gan.state()).restore()
    return gan, config, data, state


def image(channels=3):
    return np.random.default_rng(5).uniform(-1, 1, (1, 32, 32, channels)).astype(np.float32)


def check_outputs(gan, states):
    """Check that each network has the weights of its state dict."""
    for name, state in states.items():
        np.testing.assert_array_equal(gan.networks[name](image()).numpy(), filled(state)[0](image()).numpy())


def all_states():
    discriminators = {"D_Y": patch_state(layers=2, seed=3), "D_X": patch_state(layers=2, seed=4)}
    return {"G": resnet_state(seed=1), "F": resnet_state(seed=2), **discriminators}


def write_images(folder):
    for number, domain in enumerate(("trainA", "trainB", "testA", "testB")):
        (folder / domain).mkdir(parents=True)
        colours = np.random.default_rng(number).integers(0, 256, (2, 40, 40, 3)).astype(np.uint8)
        for name, colour in zip("12", colours):
            Image.fromarray(colour).save(folder / domain / f"{name}.png")


@pytest.mark.slow
def test_all_four_networks_are_imported_and_trained_further(write, tmp_path, caplog, capsys):
    caplog.set_level(logging.INFO, "cyclegan")
    run, data, states = tmp_path / "run", tmp_path / "data", all_states()
    g_a, g_b, d_a, d_b = (write(f"{name}.pth", state) for name, state in states.items())
    flags = [*SMALL, "--dataset", "stripes", "--epochs", "1", "--discriminators", d_a, d_b]
    import_torch.main([g_a, g_b, "--output_dir", str(run), *flags])
    gan, config, seen, state = restored(run)
    networks = config.networks
    assert (networks.variant, networks.generator, networks.filters) == ("paper", "resnet_1blocks", 2)
    assert (networks.discriminator, networks.discriminator_layers) == ("patch", 2)
    assert seen == {} and (state.epoch, state.step) == (0, 0)
    check_outputs(gan, states)
    assert "random weights" not in caplog.text
    assert f"python train.py --output_dir {run}" in caplog.text
    write_images(data)
    command = ["--output_dir", str(run), "--no_peak", "--devices", "1"]
    command += f"--dataset {data} --load_size 36 --max_dataset_size 9".split()  # allowed before the first image
    train.main(command)
    captured = capsys.readouterr()
    assert "Resumed from" in captured.out and "epoch_0000" in captured.out and "Warning" not in captured.err
    trained, _, seen, state = restored(run)
    assert state.epoch == 1 and seen
    for name in states:
        change = np.abs(trained.networks[name](image()).numpy() - gan.networks[name](image()).numpy()).max()
        assert 1e-5 < change < 0.5
    (data / "trainA" / "3.png").write_bytes((data / "trainA" / "2.png").read_bytes())
    with pytest.raises(UserError, match="holds a run that differs"):  # the run has seen images now
        train.main([*command, "--epochs", "2"])


def test_files_that_pytorch_wrote_are_imported(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    files, states = [], all_states()
    for number, (name, state) in enumerate(states.items()):
        files.append(str(tmp_path / f"latest_net_{name}.pth"))
        tensors = {f"module.{key}": torch.from_numpy(value) for key, value in state.items()}
        torch.save(tensors, files[-1], _use_new_zipfile_serialization=number % 2 == 0)
    arguments = [*files[:2], "--discriminators", *files[2:], "--output_dir", str(tmp_path / "run"), *SMALL]
    check_outputs(restored(import_torch.main(arguments))[0], states)


def test_one_generator_between_different_channels_is_imported(write, tmp_path, caplog):
    caplog.set_level(logging.INFO, "cyclegan")
    state = resnet_state(inputs=1, outputs=3)
    flags = [*SMALL, "--lr", "1e-5"]
    run = import_torch.main([write("A.pth", state), "--output_dir", str(tmp_path / "run"), *flags])
    gan, config, _, _ = restored(run)
    assert (config.data.channels_x, config.data.channels_y, config.optimization.lr) == (1, 3, 1e-5)
    assert gan.networks["F"].input_shape[-1] == gan.networks["D_Y"].input_shape[-1] == 3
    assert gan.networks["F"].output_shape[-1] == 1
    assert gan.networks["F"].count_params() == gan.networks["G"].count_params() - 2  # biases of the images' channels
    for network in ("F, the generator from Y to X", "D_Y, the discriminator of Y", "D_X, the discriminator of X"):
        assert f"No file was given for {network}: it begins with random weights" in caplog.text
    gray = image(1)[0]
    np.testing.assert_allclose(cyclegan.load(run).x2y(gray), filled(state)[0](gray[None]).numpy()[0], atol=1e-5)


def test_networks_of_cut_are_imported(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    networks = {
        "G": with_random_weights(torch, pytorch_resnet(torch, 3, 3, 4, 1, "instance", blurs=True)),
        "D_Y": with_random_weights(torch, pytorch_patch_discriminator(torch, 3, 4, 3, "instance", blurs=True)),
    }
    files = {name: str(tmp_path / f"{name}.pth") for name in networks}
    for name, network in networks.items():
        torch.save(network.state_dict(), files[name])
    flags = ["--discriminators", files["D_Y"], *SMALL, "--preset", "cut", "--output_dir", str(tmp_path / "run")]
    gan, config, _, _ = restored(import_torch.main([files["G"], *flags]))
    assert config.objective.objective == "cut" and config.networks.antialias
    x = image()
    for name, network in networks.items():
        expected = network(torch.from_numpy(x.transpose(0, 3, 1, 2))).detach().numpy().transpose(0, 2, 3, 1)
        np.testing.assert_allclose(gan.networks[name](x), expected, atol=1e-5)
    with pytest.raises(UserError, match=r"G\.pth: --objective cut trains G and D_Y only"):
        import_torch.main([files["G"], files["G"], *flags, "--clear_output_dir"])


def test_refused_imports_leave_nothing_behind(write, tmp_path):
    a, b = write("A.pth", resnet_state()), write("B.pth", resnet_state(filters=3))
    bad = write("C.pth", {**resnet_state(), "model.4.bias": np.zeros(9, np.float32)})
    d = write("D.pth", patch_state())
    nan = write("N.pth", {**patch_state(), "model.5.bias": np.full(8, np.nan, np.float32)})
    run = tmp_path / "run"
    for arguments, text in (
        ([a, b], r"B\.pth has filters 3; expected 2, as .*A\.pth has"),
        ([bad], r"C\.pth: its 'model.4.bias' has shape"),
        ([a, "--filters", "64"], r"--filters 64: expected 2, as .*A\.pth has: drop the flag"),
        ([a, "--discriminators", d, nan], r"N\.pth: its 'model.5.bias' has numbers that are not finite"),
        (
            [a, "--discriminator", "pixel", "--discriminators", d, d],
            r"--discriminator pixel: expected patch, as .*D\.pth has: drop",
        ),
    ):
        with pytest.raises(UserError, match=text):
            import_torch.main([*arguments, "--output_dir", str(run)])
        assert not run.exists()


def test_wrong_arguments_are_refused(write, tmp_path, capsys):
    for flags, text in (
        (["--discriminators", "D_A.pth", "D_B.pth", "D_C.pth"], "expected at most 2 files"),
        (["--lrr", "1"], "arguments: --lrr (do you mean --lr?)"),
    ):
        with pytest.raises(SystemExit):
            import_torch.main([write("A.pth", resnet_state()), *flags, "--output_dir", str(tmp_path / "run")])
        assert text in capsys.readouterr().err


def test_a_run_is_replaced_on_request_only(write, tmp_path):
    run = ["--output_dir", str(tmp_path / "run"), "--image_size", "32"]
    a = write("A.pth", resnet_state())
    import_torch.main([a, *run])
    with pytest.raises(UserError, match="holds a run; expected another folder"):
        import_torch.main([a, *run])
    import_torch.main([write("E.pth", resnet_state(filters=4)), *run, "--clear_output_dir"])
    assert restored(tmp_path / "run")[1].networks.filters == 4


def test_a_failed_checkpoint_leaves_no_run(write, tmp_path, monkeypatch):
    run = tmp_path / "run"
    command = [write("A.pth", resnet_state()), "--output_dir", str(run), "--image_size", "32"]
    with monkeypatch.context() as full:
        error = tf.errors.ResourceExhaustedError(None, None, "No space left on device")
        full.setattr(tf.train.Checkpoint, "write", mock.Mock(side_effect=error))
        with pytest.raises(UserError, match="epoch_0000 could not be written"):
            import_torch.main(command)
    assert not (run / "config.json").exists()
    assert restored(import_torch.main(command))[1].networks.filters == 2


def test_image_pools_require_a_known_size(write, tmp_path):
    path = write("A.pth", resnet_state(seed=1))
    flags = ["--preprocess", "none", "--output_dir", str(tmp_path / "run")]
    with pytest.raises(UserError, match="--preprocess none: .* expected --pool_size 0"):
        import_torch.main([path, *flags])
    assert not (tmp_path / "run").exists()
    assert import_torch.main([path, *flags, "--pool_size", "0"]).is_dir()
