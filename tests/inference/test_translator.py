"""Pictures of any size through a generator, whole and in tiles, and whatever they come as."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import cyclegan
from cyclegan.errors import UserError
from cyclegan.images import geometry, reader, writer
from cyclegan.images.image import DecodedImage
from cyclegan.inference.translator import OVERLAP, Model, Translator, _spans
from tests.inference.test_restore import UNET, make_run


@pytest.fixture(scope="module")
def models(tmp_path_factory, strategies):
    """The model of a run of RGB and gray, and its folder."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    make_run(folder, strategies[1], channels_y=1)
    return Model(folder), folder


def pictures(*shape, seed=0, dtype=np.uint8):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max + 1, shape).astype(dtype)


def by_hand(network, picture):
    """float32 [h, w, C] -> float32 [h, w, outputs], of a size that the network takes."""
    return network(picture[None], training=False).numpy()[0]


@pytest.mark.parametrize("size", [(32, 48), (17, 23), (1, 1), (5, 64), (33, 2)], ids=str)
def test_any_size_is_mirrored_to_what_the_network_takes_and_cropped_back(models, size):
    model, _ = models
    picture = pictures(*size, 3)
    top, left = ((max(16, -(-side // 4) * 4) - side) for side in size)
    padded = np.pad(picture, ((top // 2, top - top // 2), (left // 2, left - left // 2), (0, 0)), "reflect")
    expected = by_hand(model._trained.G, padded.astype(np.float32) / 127.5 - 1)
    expected = expected[top // 2 : top // 2 + size[0], left // 2 : left // 2 + size[1]]
    got = model.x2y(picture)
    assert got.shape == (*size, 1) and got.dtype == np.uint8
    assert np.abs(got - (expected + 1) * 127.5).max() <= 0.5 + 1e-3
    as_float = model.x2y(picture.astype(np.float32) / np.float32(127.5) - 1)
    np.testing.assert_allclose(as_float, expected, atol=1e-5)


def test_a_unet_gets_its_multiples(tmp_path, strategies):
    make_run(tmp_path / "run", strategies[1], **UNET)
    model = Model(tmp_path / "run")
    picture = pictures(130, 20, 3)
    padded = np.pad(picture, ((63, 63), (54, 54), (0, 0)), "reflect")
    expected = by_hand(model._trained.G, padded.astype(np.float32) / 127.5 - 1)[63:-63, 54:-54]
    assert np.abs(model.x2y(picture) - (expected + 1) * 127.5).max() <= 0.5 + 1e-3


def test_16_bits_in_and_out(models):
    model, _ = models
    deep = pictures(20, 24, 3, dtype=np.uint16)
    expected = model.x2y(deep.astype(np.float32) / np.float32(32767.5) - 1)
    got = model.x2y(deep)
    assert got.dtype == np.uint16 and (got % 257 > 0).any()
    assert np.abs(got - (expected + 1.0) * 32767.5).max() <= 1


class Pointwise(tf.keras.Model):
    """What a pixel becomes does not depend on the others, so that tiles must not be seen."""

    input_shape, output_shape = (None, None, None, 3), (None, None, None, 2)

    def __init__(self):
        super().__init__()
        self.sizes = []

    def call(self, x, training=False):
        tf.py_function(lambda shape: self.sizes.append(tuple(shape.numpy())), [tf.shape(x)], [])
        return tf.stack([x[..., 0] * 0.5, -x[..., 2]], axis=-1)


@pytest.mark.parametrize("size", [(600, 700), (513, 2500), (40, 20000), (1700, 511)], ids=str)
def test_tiles_fade_into_each_other_and_are_of_bounded_size(size):
    network = Pointwise()
    translator = Translator(network, 4, tile=512)
    picture = pictures(*size, 3)
    got = translator(picture[None])[0]
    assert got.shape == (*size, 2)
    expected = np.stack([(picture[..., 0] / 127.5 - 1) * 0.5, 1 - picture[..., 2] / 127.5], axis=-1)
    assert np.abs(got - (expected + 1) * 127.5).max() <= 0.5 + 1e-2
    network.sizes = [shape for shape in network.sizes if shape[0] == 1]
    assert len(network.sizes) > 1 and all(max(shape[1:3]) <= 512 for shape in network.sizes)


def test_weights_of_tiles_add_up_to_one_everywhere():
    for length in (1, 511, 512, 513, 896, 897, 1000, 1024, 1025, 4999):
        total, spans = np.zeros(length), _spans(length, 512)
        for start, stop, weights in spans:
            assert stop - start <= 512 and len(weights) == stop - start and 0 <= weights.min() and weights.max() <= 1
            total[start:stop] += weights
        np.testing.assert_allclose(total, 1, atol=1e-6)
        assert len(spans) == 1 or all(a[1] - b[0] == OVERLAP for a, b in zip(spans, spans[1:]))


def test_small_pictures_are_not_cut_into_tiles():
    network = Pointwise()
    translator = Translator(network, 4, tile=512)
    translator(pictures(2, 400, 600, 3))  # fewer pixels than a tile, though longer
    assert network.sizes[-1] == (2, 400, 600, 3)
    with pytest.raises(UserError, match="--tile 100: expected at least 512 pixels"):
        Translator(network, 4, tile=100)


def test_nothing_is_traced_for_another_size(models):
    model, _ = models
    translator = Translator(model._trained.G, 4)
    for side in (16, 20, 24, 33):
        translator(pictures(1, side, 16, 3))
    assert len(translator._compiled) == 1


def test_files_pillow_images_and_arrays_give_the_same(models, tmp_path):
    model, folder = models
    picture = pictures(21, 30, 3)
    expected = model.x2y(picture)
    Image.fromarray(picture).save(tmp_path / "a.png")
    for given in (tmp_path / "a.png", str(tmp_path / "a.png"), Image.fromarray(picture)):
        image = model.x2y(given)
        assert image.mode == "L" and image.size == (30, 21)
        np.testing.assert_array_equal(np.asarray(image), expected[..., 0])
    np.testing.assert_array_equal(model.x2y(np.stack([picture, picture])), np.stack([expected] * 2))
    gray = expected[..., 0]
    assert np.asarray(model.y2x(gray)).shape == (21, 30, 3)
    np.testing.assert_array_equal(np.asarray(model.y2x(Image.fromarray(gray))), model.y2x(expected))
    small = model.x2y(tmp_path / "a.png", size=(16, 20))
    assert small.size == (16, 20)
    np.testing.assert_array_equal(np.asarray(small)[..., None], model.x2y(geometry.resize(picture, (20, 16))))
    np.testing.assert_array_equal(model.x2y(picture, size=(16, 20)), np.asarray(small)[..., None])
    np.testing.assert_array_equal(cyclegan.load(folder).x2y(picture), expected)


def test_opacity_orientation_and_depth_of_files(models, tmp_path):
    model, _ = models
    pixels, opacity = pictures(20, 24, 3), pictures(20, 24, 1, seed=1)
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

    deep = pictures(20, 24, 3, dtype=np.uint16)
    writer.write(tmp_path / "deep.png", DecodedImage(deep))
    image = model.x2y(tmp_path / "deep.png")
    assert image.mode == "I;16"
    np.testing.assert_array_equal(np.asarray(image)[..., None], model.x2y(deep))
    writer.write(tmp_path / "gray.png", DecodedImage(deep[..., :1]))
    with pytest.raises(UserError, match="Pillow has no images of 3 channels of 16 bits: expected an array"):
        model.y2x(tmp_path / "gray.png")


def test_what_is_no_picture_is_refused(models, tmp_path):
    model, _ = models
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"a\.png can't be read .*: expected a picture of 3 channels"):
        model.x2y(tmp_path / "a.png")
    with pytest.raises(TypeError, match="list: expected a path, a Pillow image or a NumPy array"):
        model.x2y([1, 2])
    with pytest.raises(ValueError, match=r"shape \(20, 24, 4\): expected \[h, w, 3\] or \[N, h, w, 3\]"):
        model.x2y(pictures(20, 24, 4))
    with pytest.raises(ValueError, match=r"shape \(0, 24, 3\)"):
        model.x2y(pictures(0, 24, 3))
    with pytest.raises(ValueError, match="an array of float64: expected uint8"):
        model.x2y(np.zeros((8, 8, 3)))
    with pytest.raises(ValueError, match=r"values from 0\.0 to 255\.0: expected float32 in \[-1, 1\]"):
        model.x2y(np.float32([[[0, 255, 3]]]))
    with pytest.raises(ValueError, match="size with a float32 array"):
        model.x2y(np.zeros((8, 8, 3), np.float32), size=(4, 4))


def test_a_model_on_another_device_gives_the_same(models):
    model, folder = models
    other = Model(folder, device="/device:CPU:2")
    placed = {tf.convert_to_tensor(variable).device.split("device:")[-1] for variable in other._trained.G.variables}
    assert placed == {"CPU:2"}
    picture = pictures(20, 24, 3)
    np.testing.assert_array_equal(other.x2y(picture), model.x2y(picture))
