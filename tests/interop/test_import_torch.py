"""From files of PyTorch to a run that training goes on with."""

import numpy as np
import pytest
from PIL import Image

import cyclegan
import train
from cyclegan.checkpointing.manager import CheckpointManager
from cyclegan.config import Config, serialization
from cyclegan.errors import UserError
from cyclegan.training.gan import CycleGAN
from scripts import import_torch
from tests.interop.test_torch_file import Rebuilt, write_legacy, write_zip
from tests.interop.test_torch_weights import filled, resnet_state


def write(path, state, how=write_zip):
    how(path, {name: Rebuilt(array, str(number)) for number, (name, array) in enumerate(state.items())})
    return str(path)


def restored(run):
    config, _, data = serialization.load(run / "config.json")
    gan = CycleGAN(1, config)
    progress, _ = CheckpointManager(run / "checkpoints", gan.state()).restore()
    return gan, config, data, progress


def picture(channels=3):
    return np.random.default_rng(5).uniform(-1, 1, (1, 32, 32, channels)).astype(np.float32)


def test_a_run_is_made_of_two_generators_and_trained_further(tmp_path, capsys):
    g, f = resnet_state(seed=1), resnet_state(seed=2)
    paths = write(tmp_path / "A.pth", g), write(tmp_path / "B.pth", f, write_legacy)
    run, data = tmp_path / "run", tmp_path / "data"
    flags = ["--image_size", "32", "--dataset", "stripes", "--epochs", "1", "--precision", "float32"]
    import_torch.main([*paths, "--output_dir", str(run), *flags])
    gan, config, seen, progress = restored(run)
    assert (config.variant, config.generator, config.filters, config.image_size) == ("paper", "resnet_1blocks", 2, 32)
    assert seen == {} and (progress.epoch, progress.step) == (0, 0)
    for network, state in ((gan.G, g), (gan.F, f)):
        np.testing.assert_array_equal(network(picture()).numpy(), filled(state)(picture()).numpy())
    for number, domain in enumerate(("trainA", "trainB", "testA", "testB")):
        (data / domain).mkdir(parents=True)
        colours = np.random.default_rng(number).integers(0, 256, (2, 40, 40, 3)).astype(np.uint8)
        for name, colour in zip("12", colours):
            Image.fromarray(colour).save(data / domain / f"{name}.png")
    said = capsys.readouterr().out
    assert "random weights" not in said
    assert f"python train.py --config {run}/config.json --output_dir {run}" in said
    command = ["--config", f"{run}/config.json", "--output_dir", str(run), "--no_peak", "--devices", "1"]
    command += [
        "--dataset",
        str(data),
        "--load_size",
        "36",
        "--max_dataset_size",
        "9",
    ]  # which no picture has been seen with
    train.main(command)
    said = capsys.readouterr()
    assert "Resumed from" in said.out and "epoch_0000" in said.out and "Warning" not in said.err
    trained, _, seen, progress = restored(run)
    assert progress.epoch == 1 and seen
    change = np.abs(trained.G(picture()).numpy() - gan.G(picture()).numpy()).max()
    assert 1e-5 < change < 0.5
    (data / "trainA" / "3.png").write_bytes((data / "trainA" / "2.png").read_bytes())
    with pytest.raises(UserError, match="holds a run that differs"):  # now that it has seen some
        train.main([*command, "--epochs", "2"])


def test_a_run_is_made_of_one_generator_between_different_channels_and_used_at_once(tmp_path, capsys):
    path = write(tmp_path / "A.pth", resnet_state(inputs=1, outputs=3))
    flags = ["--image_size", "32", "--lr", "1e-5", "--precision", "float32"]
    run = import_torch.main([path, "--output_dir", str(tmp_path / "run"), *flags])
    gan, config, _, _ = restored(run)
    assert (config.channels_x, config.channels_y, config.lr) == (1, 3, 1e-5)
    assert gan.F.input_shape[-1] == gan.D_Y.input_shape[-1] == 3 and gan.F.output_shape[-1] == 1
    assert gan.F.count_params() == gan.G.count_params() - 2  # biases of the pictures' channels
    assert "No G_B was given: F, the generator from Y to X, begins with random weights" in capsys.readouterr().out
    gray = picture(1)[0]
    expected = filled(resnet_state(inputs=1, outputs=3))(gray[None]).numpy()[0]
    np.testing.assert_allclose(cyclegan.load(run).x2y(gray), expected, atol=1e-5)


def test_what_can_not_be_imported_is_said_and_leaves_nothing_behind(tmp_path):
    a, b = write(tmp_path / "A.pth", resnet_state()), write(tmp_path / "B.pth", resnet_state(filters=3))
    bad = write(tmp_path / "C.pth", {**resnet_state(), "model.4.bias": np.zeros(9, np.float32)})
    run = tmp_path / "run"
    for arguments, text in (
        ([a, b], r"B\.pth is resnet_1blocks from 3 to 3 channels with .*filters 3.*; expected one that goes back"),
        ([bad], r"C\.pth: its 'model.4.bias' has 9 numbers"),
        ([a, "--filters", "64"], r"--filters 64: .*A\.pth has 2; expected no such flag"),
        ([a, "--upsample", "resize"], r"--upsample resize: .*A\.pth has transpose; expected no such flag"),
        ([a, "--image_size", "30"], "expected a multiple of 4"),
        ([str(tmp_path / "D.pth")], r"D\.pth can't be read"),
    ):
        with pytest.raises(UserError, match=text):
            import_torch.main([*arguments, "--output_dir", str(run)])
        assert not run.exists()
    with pytest.raises(SystemExit):
        import_torch.main(["--output_dir", str(run)])
    import_torch.main([a, "--output_dir", str(run), "--image_size", "32"])
    with pytest.raises(UserError, match="holds a run; expected another folder"):
        import_torch.main([a, "--output_dir", str(run), "--image_size", "32"])
    other = write(tmp_path / "E.pth", resnet_state(filters=4))
    import_torch.main([other, "--output_dir", str(run), "--image_size", "32", "--clear_output_dir"])
    assert restored(run)[1].filters == 4


def test_an_import_whose_checkpoint_can_not_be_written_leaves_no_run(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "checkpoints").write_text("in the way")
    command = [write(tmp_path / "A.pth", resnet_state()), "--output_dir", str(run), "--image_size", "32"]
    with pytest.raises(UserError, match="epoch_0000 could not be written"):
        import_torch.main(command)
    assert not (run / "config.json").exists()
    (run / "checkpoints").unlink()
    assert restored(import_torch.main(command))[1].filters == 2


def test_a_saved_configuration_and_a_preset_are_taken_over_as_by_train_py(tmp_path):
    saved = Config.from_settings(epochs=7, lr=0.5, ema=0.9, image_size=32, residual_blocks=3, upsample="resize")
    serialization.save(tmp_path / "config.json", saved, {}, {})
    flags = ["--config", str(tmp_path / "config.json"), "--preset", "tutorial", "--output_dir", str(tmp_path / "run")]
    gan, config, _, _ = restored(import_torch.main([write(tmp_path / "A.pth", resnet_state(seed=1)), *flags]))
    assert (config.epochs, config.lr, config.lr_discriminator, config.beta_2) == (7, 0.5, 0.5, 0.999)
    assert (config.generator, config.variant, config.image_size) == ("resnet_1blocks", "paper", 32)
    assert config.upsample == "transpose"  # as the imported networks
    np.testing.assert_array_equal(gan.G_ema(picture()), gan.G(picture()))  # the means begin at what was imported


def test_pools_of_pictures_whose_size_is_not_known_yet_are_refused(tmp_path):
    path = write(tmp_path / "A.pth", resnet_state(seed=1))
    flags = ["--preprocess", "none", "--output_dir", str(tmp_path / "run")]
    with pytest.raises(UserError, match="--preprocess none: .* expected --pool_size 0"):
        import_torch.main([path, *flags])
    assert not (tmp_path / "run").exists()
    assert import_torch.main([path, *flags, "--pool_size", "0"]).is_dir()
