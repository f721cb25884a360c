"""The network of published FIDs, compared with PyTorch's, and its files."""

import hashlib
import importlib.util
import io
import tarfile

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cyclegan.errors import UserError
from cyclegan.evaluation import fid_network
from cyclegan.evaluation.features import make_extractor
from tests.evaluation.drawings import draw
from tests.evaluation.torch_inception import graph_of, make_inception

SIDE = 299


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def network(torch):
    """Return a network with random weights in PyTorch."""
    return make_inception(torch)


@pytest.fixture(scope="module")
def file(torch, network, tmp_path_factory):
    """Return the file of its state dict, which also has the classifier that FIDs do not use."""
    path = tmp_path_factory.mktemp("weights") / "inception.pth"
    torch.save({**network.state_dict(), "fc.weight": torch.zeros(1008, 4)}, path)
    return path


def levels(height, width, channels=3):
    """Return images with edges and noise, uint8 [2, height, width, channels]."""
    images = draw("zebra", 2, max(height, width))[:, :height, :width, :channels].astype(int)
    return (images + np.random.default_rng(0).integers(-40, 40, images.shape)).clip(0, 255).astype(np.uint8)


def scaled(images):
    return (images / 127.5 - 1).astype(np.float32)


def by_pytorch(torch, images):
    x = torch.from_numpy(images.transpose(0, 3, 1, 2) / 255).float()
    return 2 * torch.nn.functional.interpolate(x, (SIDE, SIDE), mode="bilinear", align_corners=False) - 1


def by_tensorflow_1(torch, images):
    """Interpolate between the pixels around i * size / 299, where the last pixel is repeated."""

    def interpolate(values, axis):
        size = values.shape[axis]
        positions = np.arange(SIDE) * size / SIDE
        low = positions.astype(int)
        high, share = np.minimum(low + 1, size - 1), positions - low
        shape = [-1 if each == axis else 1 for each in range(4)]
        return np.take(values, low, axis) * (1 - share).reshape(shape) + np.take(values, high, axis) * share.reshape(
            shape
        )

    resized = interpolate(interpolate(images.astype(float), 1), 2)
    return torch.from_numpy((resized.transpose(0, 3, 1, 2) - 128) / 128).float()


def by_pillow(torch, images):
    def resize(band):
        return np.asarray(Image.fromarray(band.astype(np.float32)).resize((SIDE, SIDE), Image.Resampling.BICUBIC))

    resized = np.stack([[resize(band) for band in image.transpose(2, 0, 1)] for image in images])
    return torch.from_numpy((resized - 128) / 128)


TOLERANCE = {"fid": 0.01, "fid-tf1": 0.01, "fid-clean": 0.001}  # gray levels; PyTorch interpolates in float32, too
RESIZE = {"fid": by_pytorch, "fid-tf1": by_tensorflow_1, "fid-clean": by_pillow}


@pytest.mark.parametrize("name", RESIZE)
@pytest.mark.parametrize("size", [(64, 48), (256, 256), (299, 299), (360, 310)])
def test_images_are_resized_as_by_the_published_programs(torch, name, size):
    images = levels(*size)
    found = fid_network.RESIZES[name][1](tf.constant(images, tf.float32)).numpy().transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, RESIZE[name](torch, images).numpy(), atol=TOLERANCE[name] / 128)


@pytest.mark.parametrize("name", RESIZE)
def test_features_equal_those_of_pytorch(torch, network, file, name):
    extractor, images = make_extractor(f"{name}:{file}", (3, 1)), levels(64, 80)
    with torch.no_grad():
        expected = network(RESIZE[name](torch, images)).numpy()
    assert np.ptp(expected, axis=0).mean() > 0.02  # the images differ
    np.testing.assert_allclose(extractor(scaled(images)), expected, rtol=1e-4, atol=1e-4)
    gray = images[..., :1]
    np.testing.assert_allclose(extractor(scaled(gray)), extractor(scaled(np.repeat(gray, 3, -1))), rtol=1e-5)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert extractor.name == f"{name} {digest}" and f"inception.pth, SHA-256 {digest}, not" in extractor.protocol


def test_the_graph_of_tensorflow_has_the_same_features(network, file, tmp_path):
    content, images = graph_of(network.state_dict()), scaled(levels(64, 64))
    graph, archive = tmp_path / fid_network.GRAPH, tmp_path / "inception.tgz"
    graph.write_bytes(content)
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo(fid_network.GRAPH)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    expected = make_extractor(f"fid:{file}")(images)
    for path in (graph, archive):
        np.testing.assert_array_equal(make_extractor(f"fid:{path}")(images), expected)


def test_the_published_file_is_downloaded_once_and_verified(torch, file, tmp_path, monkeypatch):
    get_file = tf.keras.utils.get_file
    monkeypatch.setattr(tf.keras.utils, "get_file", lambda *a, **k: get_file(*a, cache_dir=str(tmp_path), **k))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(fid_network, "PUBLISHED", (file.as_uri(), "sha256", digest))
    extractor = make_extractor("fid-clean")
    assert extractor.name == "fid-clean" and "weights of pytorch-fid)" in extractor.protocol
    assert (tmp_path / "models" / "inception.pth").read_bytes() == file.read_bytes()
    monkeypatch.setattr(fid_network, "PUBLISHED", ("file:///gone/inception.pth", "sha256", digest))
    assert make_extractor("fid").name == "fid"  # from the cache
    monkeypatch.setattr(fid_network, "PUBLISHED", (file.as_uri(), "sha256", "0" * 64))
    with pytest.raises(UserError, match=r"weights of the features fid could not be downloaded .*fid:FILE"):
        make_extractor("fid")


def test_without_pytorch_the_file_of_tensorflow_is_named(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "torch" else find_spec(name, *a))
    with pytest.raises(UserError, match=r"fid-tf1: PyTorch.* is not installed: .*2015-12-05\.tgz .*fid-tf1:FILE"):
        make_extractor("fid-tf1")


@pytest.mark.parametrize("name", ["no.pb", "text.pb", "empty.tgz", "text.pth", "other.pth", "missing.pb"])
def test_other_files_are_refused(torch, network, tmp_path, name):
    path, text = tmp_path / name, "expected the Inception network of 2015"
    if name.startswith("text"):
        path.write_bytes(b"neither a graph nor a state dict")
    if name == "empty.tgz":
        tarfile.open(path, "w:gz").close()
    if name == "missing.pb":
        graph = tf.compat.v1.GraphDef.FromString(graph_of(network.state_dict()))
        del graph.node[1]
        path.write_bytes(graph.SerializeToString())
    if name == "other.pth":
        torch.save({"conv.weight": torch.zeros(1, 1, 1, 1)}, path)
    expected = {"no.pb": "no such file", "text.pth": "no file of PyTorch", "missing.pb": "conv/conv2d_params"}
    with pytest.raises(UserError, match=expected.get(name, text)):
        make_extractor(f"fid:{path}")
