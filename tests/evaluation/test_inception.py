"""InceptionV3 with downloaded weights, and with weights from a file."""

import h5py
import numpy as np
import pytest
import tensorflow as tf

from cyclegan.errors import UserError
from cyclegan.evaluation import inception
from cyclegan.evaluation.features import make_extractor
from tests.evaluation.drawings import draw


def scaled(images):
    return (images / 127.5 - 1).astype(np.float32)


def test_missing_network_connection_is_explained(monkeypatch):
    def build(weights, **settings):
        assert weights == "imagenet"
        raise Exception("URL fetch failure on https://storage.googleapis.com/x.h5: None -- Name or service not known")

    monkeypatch.setattr(tf.keras.applications, "InceptionV3", build)
    with pytest.raises(UserError) as error:
        make_extractor("inception")
    text = str(error.value)
    assert "could not be downloaded (URL fetch failure" in text and inception.WEIGHTS_URL in text
    assert "--features FILE" in text and "--features random" in text and "\n" not in text


def test_refuses_a_missing_file(tmp_path):
    for name in ("imagenet", str(tmp_path)):
        with pytest.raises(UserError, match="no such file; expected random, inception, or a file with its weights"):
            make_extractor(name)


def write_published_layout(network, path):
    """Write weights in the layout of the published file: a group per layer, and the order of layers and weights as names."""
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
    resized = tf.image.resize(images, (299, 299), antialias=True)
    found = extractor(images)
    assert found.shape == (2, 2048)
    np.testing.assert_allclose(found, network(resized, training=False), rtol=1e-3, atol=1e-5)
    gray = images[..., :1]
    np.testing.assert_allclose(extractor(gray), extractor(np.repeat(gray, 3, axis=-1)), rtol=1e-5, atol=1e-6)
    other = tmp_path / "other.h5"
    write_published_layout(tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2)]), other)
    with h5py.File(tmp_path / "nothing.h5", "w"):
        pass
    for name in ("other.h5", "nothing.h5"):
        with pytest.raises(
            UserError, match=rf"{name}: not the weights of Keras's InceptionV3 .*; expected the file https"
        ):
            make_extractor(str(tmp_path / name))


@pytest.mark.parametrize("name, content", [("text.h5", b"no weights"), ("empty.h5", b""), ("good.bin", None)])
def test_refuses_a_file_of_another_format(tmp_path, name, content):
    if content is None:
        with h5py.File(tmp_path / name, "w"):
            pass
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(
        UserError, match=rf"{name}: not the weights .* \(not an HDF5 file with the suffix .h5\); expected the file"
    ):
        make_extractor(str(tmp_path / name))
