"""The generators of a run, found by its folder alone, and what they accept and return."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import cyclegan
from cyclegan.config import Config, serialization
from cyclegan.errors import UserError
from cyclegan.images import formats, geometry, reader
from cyclegan.images.image import DecodedImage
from cyclegan.inference import model as model_module
from cyclegan.inference.model import Model, load_on_devices
from cyclegan.networks import compat
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.train_state import TrainState
from tests.inference.arrays import images
from tests.inference.runs import TINY, UNET, make_run

CUT = {"objective": "cut", "channels_y": 3}


@pytest.mark.sampled
@pytest.mark.parametrize("changes", [{}, {"ema": 0.9}, {"norm": "batch"}, UNET, CUT], ids=str)
def test_three_replicas_restore_without_a_strategy(tmp_path, strategies, changes):
    gan, config = make_run(tmp_path / "run", strategies[3], **changes)
    model = Model(tmp_path / "run")
    assert (model.train_state.epoch, model.train_state.step) == (2, 7)
    y = config.data.channels_y
    assert model.config == config and (model.channels("x2y"), model.channels("y2x")) == ((3, y), (y, 3))
    x = np.random.default_rng(0).uniform(-1, 1, (1, *config.data.image_shape, 3)).astype(np.float32)
    for direction, name in zip(model.generators, "GF"):
        images = x[..., : model.channels(direction)[0]]
        expected = gan.networks.in_use.generators[name](images)
        np.testing.assert_array_equal(model.generator(direction)(images), expected)
        np.testing.assert_allclose(model.translate(direction, images), expected, atol=1e-5)
    if changes is CUT:
        with pytest.raises(UserError, match="--objective cut has no generator Y -> X; expected --direction x2y"):
            model.y2x(images[0])


@pytest.mark.sampled
def test_checkpoint_and_precision_can_be_chosen(tmp_path, strategies):
    make_run(tmp_path / "run", strategies[1])
    newest, first = (Model(tmp_path / "run", *given) for given in ((), ("epoch_0001", "bfloat16")))
    assert first.checkpoint.name.startswith("epoch_0001") and first.train_state.epoch == 1
    weights = [model.generator("x2y").variables[0].numpy() for model in (newest, first)]
    assert abs(weights[0] - weights[1]).min() > 0.009
    layer = [model.generator("x2y").layers[2].compute_dtype for model in (newest, first)]
    assert layer == ["float32", "bfloat16"]
    first.restore("epoch_0002")
    np.testing.assert_array_equal(first.generator("x2y").variables[0], weights[0])
    assert Model(first.path / "checkpoints" / "epoch_0001-1").checkpoint.name == "epoch_0001-1"


def test_random_networks_cause_a_warning(tmp_path, strategies, caplog):
    gan, config = make_run(tmp_path / "run", strategies[1])
    CheckpointManager(tmp_path / "run" / "checkpoints", gan.state()).save(TrainState(step=3))
    caplog.clear()  # TensorFlow remarks on the functions of all runs so far
    Model(tmp_path / "run", "epoch_0001")
    assert not caplog.messages  # without data, a run counts as imported
    serialization.save(tmp_path / "run" / "config.json", config, compat.stack(), {"trainA": "2 images"})
    for name in ("epoch_0001", "epoch_0000", "epoch_0002"):
        Model(tmp_path / "run", name)
    assert len(caplog.messages) == 2
    for text, name, steps in zip(caplog.messages, ("epoch_0001", "epoch_0000"), (0, 3)):
        assert name in text and f" is from the first epoch, after {steps} steps of training" in text


def test_a_damaged_checkpoint_is_skipped_or_refused_by_name(tmp_path, strategies, caplog):
    make_run(tmp_path / "run", strategies[1])
    caplog.clear()
    (Model(tmp_path / "run").checkpoint / "state.index").write_bytes(b"")
    assert Model(tmp_path / "run").train_state.epoch == 1
    assert len(caplog.messages) == 1 and re.search("epoch_0002.* can't be read", caplog.messages[0])
    with pytest.raises(UserError, match="epoch_0002.* can't be read .*: expected a checkpoint"):
        Model(tmp_path / "run", "epoch_0002")


def test_folders_that_hold_no_usable_run_are_refused(tmp_path, strategies):
    with pytest.raises(UserError, match="no such folder.*; expected the folder of a run"):
        Model(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"config.json: no such file; expected the config.json of a run"):
        Model(tmp_path / "empty")
    config = Config.from_settings(output_dir=str(tmp_path), **TINY)
    serialization.save(tmp_path / "empty" / "config.json", config, compat.stack(), {})
    with pytest.raises(UserError, match="no checkpoint yet; expected a run that has begun to train"):
        Model(tmp_path / "empty")
    with pytest.raises(UserError, match="best-x2y: no such checkpoint; expected a run that has saved checkpoints"):
        Model(tmp_path / "empty", "best-x2y")
    make_run(tmp_path / "run", strategies[1])
    with pytest.raises(UserError, match="best-x2y: no such checkpoint; expected one of epoch_0001.*, epoch_0002"):
        Model(tmp_path / "run", "best-x2y")
    with pytest.raises(UserError, match="--tile 100: expected a whole number of at least 512 pixels"):
        Model(tmp_path / "run", tile=100)
    serialization.save(tmp_path / "run" / "config.json", config.replace(filters=8), compat.stack(), {})
    with pytest.raises(UserError, match="be read"):  # of other networks
        Model(tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    saved = json.loads(path.read_text())
    saved["stack"]["keras"] = 5 - saved["stack"]["keras"]
    path.write_text(json.dumps(saved))
    with pytest.raises(UserError, match="was trained with TensorFlow .* its checkpoints fit no other"):
        Model(tmp_path / "run")


def test_devices_load_the_same_checkpoint_and_translate_alike(models, monkeypatch):
    model, folder = models
    monkeypatch.setattr(model_module, "device_names", lambda devices: [f"/device:CPU:{i}" for i in range(devices)])
    loaded, restore = [], Model.restore
    monkeypatch.setattr(Model, "restore", lambda self, name: (loaded.append(name), restore(self, name)))
    on_devices = load_on_devices(folder, devices=3)
    assert loaded == ["", model.checkpoint.name, model.checkpoint.name]
    variables = on_devices[2].generator("x2y").variables
    assert {tf.convert_to_tensor(variable).device.split("device:")[-1] for variable in variables} == {"CPU:2"}
    image = images(20, 24, 3)
    for other in on_devices:
        np.testing.assert_array_equal(other.x2y(image), model.x2y(image))


def test_files_pillow_images_and_arrays_agree(models, tmp_path):
    model, folder = models
    image = images(21, 30, 3)
    expected = model.x2y(image)
    Image.fromarray(image).save(tmp_path / "a.png")
    for given in (tmp_path / "a.png", str(tmp_path / "a.png"), Image.fromarray(image)):
        made = model.x2y(given)
        assert made.mode == "L" and made.size == (30, 21)
        np.testing.assert_array_equal(np.asarray(made), expected[..., 0])
    np.testing.assert_array_equal(model.x2y(np.stack([image, image])), np.stack([expected] * 2))
    gray = expected[..., 0]
    assert model.y2x(gray).shape == (21, 30, 3) and gray.shape == (21, 30)
    np.testing.assert_array_equal(np.asarray(model.y2x(Image.fromarray(gray))), model.y2x(expected))
    small = model.x2y(tmp_path / "a.png", size=(16, 20))
    assert small.size == (16, 20)
    np.testing.assert_array_equal(np.asarray(small)[..., None], model.x2y(geometry.resize(image, (20, 16))))
    np.testing.assert_array_equal(model.x2y(image, size=(16, 20)), np.asarray(small)[..., None])
    np.testing.assert_array_equal(cyclegan.load(folder).x2y(image), expected)


def test_arrays_of_16_bits_and_of_floats(models):
    model, _ = models
    deep = images(20, 24, 3, dtype=np.uint16)
    expected = model.x2y(deep.astype(np.float32) / np.float32(32767.5) - 1)
    got = model.x2y(deep)
    assert expected.dtype == np.float32 and got.dtype == np.uint16 and (got % 257 > 0).any()
    assert np.abs(got - (expected + 1.0) * 32767.5).max() <= 1


def test_opacity_and_depth_of_files(models, tmp_path, caplog):
    model, _ = models
    pixels, opacity = images(20, 24, 3), images(20, 24, 1, seed=1)
    formats.write(tmp_path / "clear.png", DecodedImage(pixels, opacity))
    image = model.x2y(tmp_path / "clear.png")
    assert image.mode == "LA"
    np.testing.assert_array_equal(np.asarray(image)[..., 1:], opacity)
    over_white = reader.decode(tmp_path / "clear.png")
    np.testing.assert_array_equal(np.asarray(image)[..., :1], model.x2y(over_white))
    with Image.open(tmp_path / "clear.png") as opened:
        np.testing.assert_array_equal(np.asarray(model.x2y(opened)), np.asarray(image))
    half = np.asarray(model.x2y(tmp_path / "clear.png", size=(12, 10)))
    np.testing.assert_array_equal(half[..., 1:], geometry.resize(opacity, (10, 12)))

    deep = images(20, 24, 3, dtype=np.uint16)
    formats.write(tmp_path / "deep.png", DecodedImage(deep))
    image = model.x2y(tmp_path / "deep.png")
    assert image.mode == "I;16"
    np.testing.assert_array_equal(np.asarray(image)[..., None], model.x2y(deep))
    formats.write(tmp_path / "gray.png", DecodedImage(deep[..., :1]))
    np.testing.assert_array_equal(model.y2x(tmp_path / "gray.png"), model.y2x(deep[..., :1]))
    text = "gray.png: its translation is an array, because Pillow has no images of 3 channels of uint16"
    assert caplog.messages[-1].endswith(text)


def test_a_folder_is_translated_without_its_bad_files_and_a_stack_to_its_first_image(models, tmp_path, caplog):
    model, _ = models
    image = images(20, 24, 3)
    for name in ("0.png", "2.png"):
        (tmp_path / name).write_bytes(b"no image")
    Image.fromarray(image).save(tmp_path / "1.tif", save_all=True, append_images=[Image.fromarray(image[::-1])])
    (made,) = model.x2y(tmp_path).items()
    assert made[0] == "1.tif"
    np.testing.assert_array_equal(np.asarray(made[1])[..., None], model.x2y(image))
    texts = ["0.png can't be read: a text, not an image", "1.tif: the first of 2 images", "2.png can't be read"]
    assert len(caplog.messages) == 3 and all(text in got for text, got in zip(texts, caplog.messages))


def test_images_that_do_not_fit_are_refused(models, tmp_path):
    model, folder = models
    (tmp_path / "a.png").write_bytes(b"no image")
    (tmp_path / "empty").mkdir()
    image, floats = images(20, 24, 3), np.zeros((8, 8, 3), np.float32)
    for given, text in (
        ((tmp_path / "a.png",), r"a\.png can't be read: a text, not an image"),
        ((tmp_path,), r"a\.png can't be read: a text, not an image"),
        ((tmp_path / "b.png",), r"b\.png: no such file; expected an image$"),
        ((tmp_path / "empty",), "empty: no images; expected at least one of .png"),
        (([1, 2],), "int: expected a path, a Pillow image or a NumPy array"),
        ((None,), "NoneType: expected a path, a Pillow image or a NumPy array"),
        ((images(20, 24, 4),), r"shape \(20, 24, 4\): expected \[h, w, 3\] or \[N, h, w, 3\]"),
        ((image / 255,), "an array of float64: expected uint8"),
        ((floats + 255,), r"values from 255\.0 to 255\.0: expected float32 in \[-1, 1\]"),
        ((floats, (4, 4)), "size with a float32 array"),
        ((image, "7"), r"size '7': expected \(width, height\) in pixels, or a number for both"),
        ((image, True), "size True: expected"),
        ((Image.fromarray(image), (7.0, 7)), r"size \(7\.0, 7\): expected"),
        ((Image.fromarray(floats[..., 0]),), "a Pillow image of mode F: expected 8 or 16 bits"),
    ):
        with pytest.raises(UserError, match=text):
            model.x2y(*given)
    for options, text in (
        ({"device": "cuda"}, "device 'cuda': expected one of .*CPU:0"),
        ({"precision": "fp16"}, "precision 'fp16': expected one of float32, bfloat16, float16"),
        ({"checkpoint": 0}, "0: no such checkpoint; expected one of epoch_"),
        ({"tile": "512"}, "--tile '512': expected a whole number of at least 512 pixels"),
        ({"run": None}, "^None: expected a path"),
    ):
        with pytest.raises(UserError, match=text):
            cyclegan.load(**{"run": folder, **options})
    with pytest.raises(UserError, match="1: no such checkpoint; expected one of epoch_"):
        model.restore(1)
    assert cyclegan.load(folder, device="/device:CPU:0").x2y(image).shape == (20, 24, 1)
    np.testing.assert_array_equal(model.x2y(image, 16), model.x2y(image, (16, 16)))


def test_pillow_images_of_other_channels_are_refused(tmp_path, strategies):
    make_run(tmp_path / "run", strategies[1], channels_x=5)
    model = Model(tmp_path / "run")
    with pytest.raises(UserError, match="a Pillow image of mode RGB: expected 5 bands, or an array"):
        model.x2y(Image.new("RGB", (7, 5)))
    assert model.x2y(images(20, 24, 5)).shape == (20, 24, 2)


def test_the_public_names_are_listed_before_their_first_use():
    assert {"load", "translate"} <= set(dir(cyclegan))
