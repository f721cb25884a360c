import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import cyclegan
from cyclegan.errors import UserError
from cyclegan.images import geometry, reader, writer
from cyclegan.images.image import DecodedImage
from cyclegan.inference.model import Model, load_on_devices
from tests.inference.arrays import images


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
    assert np.asarray(model.y2x(gray)).shape == (21, 30, 3)
    np.testing.assert_array_equal(np.asarray(model.y2x(Image.fromarray(gray))), model.y2x(expected))
    small = model.x2y(tmp_path / "a.png", size=(16, 20))
    assert small.size == (16, 20)
    np.testing.assert_array_equal(np.asarray(small)[..., None], model.x2y(geometry.resize(image, (20, 16))))
    np.testing.assert_array_equal(model.x2y(image, size=(16, 20)), np.asarray(small)[..., None])
    np.testing.assert_array_equal(cyclegan.load(folder).x2y(image), expected)


def test_opacity_orientation_and_depth_of_files(models, tmp_path):
    model, _ = models
    pixels, opacity = images(20, 24, 3), images(20, 24, 1, seed=1)
    writer.write(tmp_path / "clear.png", DecodedImage(pixels, opacity))
    image = model.x2y(tmp_path / "clear.png")
    assert image.mode == "LA"
    np.testing.assert_array_equal(np.asarray(image)[..., 1:], opacity)
    over_white = reader.decode(tmp_path / "clear.png")
    np.testing.assert_array_equal(np.asarray(image)[..., :1], model.x2y(over_white))
    with Image.open(tmp_path / "clear.png") as opened:
        np.testing.assert_array_equal(np.asarray(model.x2y(opened)), np.asarray(image))

    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(
        np.asarray(model.x2y(tmp_path / "turned.png"))[..., None], model.x2y(np.rot90(pixels, -1))
    )

    deep = images(20, 24, 3, dtype=np.uint16)
    writer.write(tmp_path / "deep.png", DecodedImage(deep))
    image = model.x2y(tmp_path / "deep.png")
    assert image.mode == "I;16"
    np.testing.assert_array_equal(np.asarray(image)[..., None], model.x2y(deep))
    writer.write(tmp_path / "gray.png", DecodedImage(deep[..., :1]))
    with pytest.raises(UserError, match="Pillow has no images of 3 channels of 16 bits: expected an array"):
        model.y2x(tmp_path / "gray.png")


def test_another_device(models):
    model, folder = models
    other = Model(folder, device="/device:CPU:2")
    placed = {tf.convert_to_tensor(variable).device.split("device:")[-1] for variable in other._restored.G.variables}
    assert placed == {"CPU:2"}
    image = images(20, 24, 3)
    np.testing.assert_array_equal(other.x2y(image), model.x2y(image))


def test_all_devices_load_the_same_checkpoint(models, monkeypatch):
    _, folder = models
    on_two = [f"/device:CPU:{i}" for i in (0, 1)]
    monkeypatch.setattr("cyclegan.inference.model.device_names", lambda devices: on_two)
    loaded = []
    monkeypatch.setattr(
        "cyclegan.inference.model.restore",
        lambda run, checkpoint, *options, original=load_on_devices.__globals__["restore"]: loaded.append(checkpoint)
        or original(run, checkpoint, *options),
    )
    assert len(load_on_devices(folder)) == 2 and loaded == [None, "epoch_0002-2"]
