"""The fixed random network, and InceptionV3 with downloaded weights or with weights from a file."""

import h5py
import numpy as np
import pytest
import tensorflow as tf

from cyclegan.errors import UserError
from cyclegan.evaluation.features import KERAS, make_extractor, random_kernels
from cyclegan.evaluation.metrics import fid, kid
from tests.evaluation.drawings import draw

FIRST = (0.10465028, 0.16129495, -0.411885)  # weights of the random network


def scaled(images):
    return (images / 127.5 - 1).astype(np.float32)


def test_weights_of_the_random_network_never_change(extractor):
    kernel, _ = random_kernels(3)[0]
    np.testing.assert_allclose(kernel[0, 0, :, 0], FIRST, rtol=1e-6)
    assert kernel.shape == (4, 4, 3, 48) and kernel.std() == pytest.approx(np.sqrt(2 / 48), rel=0.05)
    gray = np.zeros((2, 16, 16, 3), np.float32)
    np.testing.assert_array_equal(extractor(gray), make_extractor("random")(gray))


def test_first_random_convolution_by_hand(extractor):
    image = scaled(draw("zebra", 1, 16, seed=0))
    kernel, bias = random_kernels(3)[0]
    padded = np.pad(image[0], [(1, 1), (1, 1), (0, 0)])
    windows = [padded[i : i + 4, j : j + 4] for i in range(0, 16, 2) for j in range(0, 16, 2)]
    values = np.maximum([np.tensordot(window, kernel, 3) + bias for window in windows], 0)
    found = extractor(image)[0]
    np.testing.assert_allclose(found[:48], values.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[48:96], np.sqrt(values.var(axis=0) + 1e-6), rtol=1e-3, atol=1e-4)


def test_random_features_rank_images_as_a_person_would(extractor):
    """Rank by FID and KID: other zebras < zebras with noise, or half turned into horses < horses < noise."""
    real, other, horses = (draw(animal, 24, 32, seed) for animal, seed in (("zebra", 1), ("zebra", 2), ("horse", 2)))
    rng = np.random.default_rng(0)
    noisy = np.clip(other + rng.normal(0, 20, other.shape), 0, 255).astype(np.uint8)
    half = ((other.astype(int) + horses) // 2).astype(np.uint8)
    noise = rng.integers(0, 256, other.shape).astype(np.uint8)
    found = extractor(scaled(real))
    for score in (fid, lambda x, y: kid(x, y)[0]):
        for spoilt in (noisy, half):
            ranks = [score(extractor(scaled(images)), found) for images in (other, spoilt, horses, noise)]
            assert ranks == sorted(ranks) and ranks[3] > 2 * ranks[2]


@pytest.mark.parametrize("channels, size", [(1, (16, 20)), (5, (32, 16))])
def test_random_features_of_any_channels_and_sizes(channels, size):
    extractor = make_extractor("random", (channels, 7))
    for _ in range(2):
        found = extractor(np.zeros((3, *size, channels), np.float32))
    assert found.shape == (3, 672) and found.dtype == np.float32 and np.isfinite(found).all()
    assert extractor._compute.experimental_get_tracing_count() == 1


def test_inception_takes_gray_and_rgb_only():
    for channels in ((3, 2), (2, 3)):
        with pytest.raises(
            UserError, match="images of 2 channels: Inception takes RGB.*use the features of the random"
        ):
            make_extractor("inception", channels)


def test_missing_network_connection_is_explained(monkeypatch):
    def get_file(name, url, file_hash, **settings):
        assert (url, file_hash) == (KERAS[0], KERAS[2])
        raise Exception(f"URL fetch failure on {url}: None -- Name or service not known")

    monkeypatch.setattr(tf.keras.utils, "get_file", get_file)
    with pytest.raises(UserError, match="could not be downloaded .URL fetch failure.*inception:FILE.*random") as error:
        make_extractor("inception")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name, content", [("text.h5", b"no weights"), ("good.bin", b"\x89HDF\r\n\x1a\n"), ("no.h5", None)]
)
def test_other_files_are_refused(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    text = "not the weights of Keras's InceptionV3 .*; expected the file" if content else "no such file"
    with pytest.raises(UserError, match=rf"{name}: {text}"):
        make_extractor(f"inception:{tmp_path / name}")


def write_published_layout(network, path):
    """Write weights like the published file: a group per layer, and the names of layers and weights in order."""
    layers = [layer for layer in network.layers if layer.weights]
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [layer.name.encode() for layer in layers]
        for layer in layers:
            group = file.create_group(layer.name)
            names = [f"weight_{i}".encode() for i in range(len(layer.weights))]
            group.attrs["weight_names"] = names
            for name, value in zip(names, layer.get_weights()):
                group[name.decode()] = value


@pytest.mark.slow
def test_weights_from_a_file_are_used_or_refused(tmp_path):
    """Use the network in the file for the features; refuse files of another network or of none."""
    tf.keras.utils.set_random_seed(1)
    network = tf.keras.applications.InceptionV3(include_top=False, pooling="avg", weights=None)
    path = tmp_path / "inception.h5"
    write_published_layout(network, path)
    extractor = make_extractor(str(path), (1, 3))
    assert extractor.name.startswith("keras-inception-v3 ") and "inception.h5" in extractor.protocol
    images = scaled(draw("zebra", 2, 64, seed=0))
    found = extractor(images)
    assert found.shape == (2, 2048)
    resized = tf.image.resize(images, (299, 299), antialias=True)
    np.testing.assert_allclose(found, network(resized, training=False), rtol=1e-3, atol=1e-5)
    gray = images[..., :1]
    np.testing.assert_allclose(extractor(gray), extractor(np.repeat(gray, 3, axis=-1)), rtol=1e-5, atol=1e-6)
    write_published_layout(tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2)]), tmp_path / "other.h5")
    with h5py.File(tmp_path / "nothing.h5", "w"):
        pass
    for name in ("other.h5", "nothing.h5"):
        with pytest.raises(UserError, match=rf"{name}: not the weights of Keras's InceptionV3 .*; expected the file"):
            make_extractor(str(tmp_path / name))
