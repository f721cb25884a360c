"""The fixed networks that pictures are compared by."""

import h5py
import numpy as np
import pytest
import tensorflow as tf

from cyclegan.data import stripes
from cyclegan.errors import UserError
from cyclegan.evaluation import features, metrics

FIRST = (0.10465028, 0.16129495, -0.411885)  # weights of the random network


def drawn(animal, count, seed, size=32):
    """uint8 [count, size, size, 3]."""
    scenes = (stripes.scene(np.random.default_rng([seed, i])) for i in range(count))
    return np.stack([stripes.draw(scene, animal, size) for scene in scenes])


def scaled(pictures):
    return (pictures / (np.iinfo(pictures.dtype).max / 2) - 1).astype(np.float32)


@pytest.fixture(scope="module")
def random():
    return features.random()


def test_the_weights_of_the_random_network_never_change(random):
    kernel, bias = features._random_kernels(3)[0]
    np.testing.assert_allclose(kernel[0, 0, :, 0], FIRST, rtol=1e-6)
    assert kernel.shape == (4, 4, 3, 48) and bias.shape == (48,)
    assert kernel.std() == pytest.approx(np.sqrt(2 / 48), rel=0.05)
    flat = random(np.zeros((2, 16, 16, 3), np.float32))
    again = features.random()(np.zeros((2, 16, 16, 3), np.float32))
    np.testing.assert_array_equal(flat, again)
    np.testing.assert_allclose(flat[:, :48], np.maximum([bias, bias], 0), atol=1e-6)  # the means of the first layer
    assert flat.shape == (2, 672) and flat.dtype == np.float32


def test_the_random_network_is_what_it_says(random):
    """The first convolution, window by window."""
    picture = scaled(drawn("zebra", 1, 0, 16))
    kernel, bias = features._random_kernels(3)[0]
    padded = np.pad(picture[0], [(1, 1), (1, 1), (0, 0)])
    windows = [padded[i : i + 4, j : j + 4] for i in range(0, 16, 2) for j in range(0, 16, 2)]
    values = np.maximum([np.tensordot(window, kernel, 3) + bias for window in windows], 0)
    found = random(picture)[0]
    np.testing.assert_allclose(found[:48], values.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[48:96], np.sqrt(values.var(axis=0) + 1e-6), rtol=1e-3, atol=1e-4)


def test_random_features_rank_pictures_as_a_person_would(random):
    """Real zebras against other zebras < those with noise, or half turned into horses < horses < noise, by FID and by KID."""
    real, other, horses = drawn("zebra", 24, 1), drawn("zebra", 24, 2), drawn("horse", 24, 2)
    rng = np.random.default_rng(0)
    noisy = np.clip(other + rng.normal(0, 20, other.shape), 0, 255).astype(np.uint8)
    half = ((other.astype(int) + horses) // 2).astype(np.uint8)
    noise = rng.integers(0, 256, other.shape).astype(np.uint8)
    found = random(scaled(real))
    for score in (metrics.fid, lambda x, y: metrics.kid(x, y)[0]):
        for spoilt in (noisy, half):
            ranks = [score(random(scaled(pictures)), found) for pictures in (other, spoilt, horses, noise)]
            assert ranks == sorted(ranks) and ranks[3] > 2 * ranks[2]
    assert abs(metrics.kid(random(scaled(other)), found)[0]) < 0.1 * metrics.kid(random(scaled(half)), found)[0]


@pytest.mark.parametrize("channels, size", [(1, (16, 20)), (5, (32, 16))])
def test_the_random_network_takes_any_channels_and_sizes(channels, size):
    found = features.extractor("random", (channels, 7))(np.zeros((3, *size, channels), np.float32))
    assert found.shape == (3, 672) and np.isfinite(found).all()


def test_nothing_is_traced_twice(random):
    extractor = features.random()
    for _ in range(3):
        extractor(np.zeros((4, 16, 16, 3), np.float32))
    assert extractor._compute.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("kind", ["inception", "weights.h5"])
def test_inception_takes_gray_and_rgb_only(kind):
    with pytest.raises(UserError, match="pictures of 2 channels: Inception takes RGB.*use the features of the random"):
        features.extractor(kind, (3, 2))


def test_without_a_network_it_is_said_what_to_do(monkeypatch):
    def build(weights, **settings):
        assert weights == "imagenet"
        raise Exception("URL fetch failure on https://storage.googleapis.com/x.h5: None -- Name or service not known")

    monkeypatch.setattr(tf.keras.applications, "InceptionV3", build)
    with pytest.raises(UserError) as error:
        features.extractor("inception")
    text = str(error.value)
    assert "could not be fetched (URL fetch failure" in text and features.INCEPTION_URL in text
    assert "name the file" in text and "(random)" in text and "\n" not in text


def test_a_file_that_is_not_there_is_refused(tmp_path):
    for name in ("imagenet", str(tmp_path)):
        with pytest.raises(UserError, match="no such file; expected random, inception, or a file of its weights"):
            features.extractor(name)


def write_published_layout(network, path):
    """Writes weights as the published file has them: a group per layer, and the order of layers and weights as names."""
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
def test_inception_from_a_file(tmp_path):
    """Its features are those of the network that was written; a file of another network, or of none, is refused."""
    tf.keras.utils.set_random_seed(1)
    network = tf.keras.applications.InceptionV3(include_top=False, pooling="avg", weights=None)
    path = tmp_path / "inception.h5"
    write_published_layout(network, path)
    extractor = features.extractor(str(path), (1, 3))
    assert extractor.name.startswith("keras-inception-v3 ") and "inception.h5" in extractor.protocol
    pictures = scaled(drawn("zebra", 2, 0, 64))
    resized = tf.image.resize(pictures, (299, 299), antialias=True)
    found = extractor(pictures)
    assert found.shape == (2, 2048)
    np.testing.assert_allclose(found, network(resized, training=False), rtol=1e-3, atol=1e-5)
    gray = pictures[..., :1]
    np.testing.assert_allclose(extractor(gray), extractor(np.repeat(gray, 3, axis=-1)), rtol=1e-5, atol=1e-6)
    other = tmp_path / "other.h5"
    write_published_layout(tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2)]), other)
    with h5py.File(tmp_path / "nothing.h5", "w"):
        pass
    for name in ("other.h5", "nothing.h5"):
        with pytest.raises(
            UserError, match=rf"{name}: not the weights of Keras's InceptionV3 .*; expected the file from"
        ):
            features.extractor(str(tmp_path / name))


@pytest.mark.parametrize("name, content", [("text.h5", b"no weights"), ("empty.h5", b""), ("good.bin", None)])
def test_a_file_that_is_no_file_of_weights_is_refused_at_once(tmp_path, name, content):
    if content is None:
        with h5py.File(tmp_path / name, "w"):
            pass
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(
        UserError, match=rf"{name}: not the weights .* \(no HDF5 file whose name ends in .h5\); expected the file"
    ):
        features.extractor(str(tmp_path / name))
