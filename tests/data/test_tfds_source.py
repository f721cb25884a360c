"""Images of TensorFlow Datasets, and the errors of datasets that cannot be read."""

import socket
import time
import types

import numpy as np
import pytest
import requests
import tensorflow_datasets as tfds

from cyclegan.config import Config
from cyclegan.data import drawn_builder, sources, tfds_source
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import UserError
from cyclegan.images import reader
from tests.data.image_folders import CACHES, load_config


def load(dataset, image_size=16, load_size=16, **flags):
    return load_config(Config.from_settings(dataset=dataset, image_size=image_size, load_size=load_size, **flags))


def test_a_missing_network_is_an_error_within_ten_seconds(tmp_path, monkeypatch):
    def no_network(*args, **kwargs):
        raise requests.exceptions.ConnectionError("no network")

    monkeypatch.setattr(requests, "head", no_network)
    tfds_source.cycle_gan_names()  # imports TFDS's modules before the time counts
    start = time.perf_counter()
    with pytest.raises(UserError) as error:
        load("cycle_gan/horse2zebra", data_dir=str(tmp_path))
    assert time.perf_counter() - start < 10
    for part in (str(tmp_path), "efrosgans.eecs.berkeley.edu", "--data_dir", "--dataset FOLDER", "--dataset stripes"):
        assert part in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_silent_host_is_given_up(monkeypatch):
    monkeypatch.setattr(tfds_source, "ANSWER_SECONDS", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.perf_counter()
        assert not tfds_source._host_answers(f"http://127.0.0.1:{silent.getsockname()[1]}/a.zip")
    assert time.perf_counter() - start < 5


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Return a data_dir with a damaged dataset."""
    folder = tmp_path_factory.mktemp("damaged")
    load("stripes", 16, 16, data_dir=str(folder))
    record = next(folder.glob("stripes/16/*/stripes-trainB.tfrecord*"))
    record.write_bytes(record.read_bytes()[:-100])
    return str(folder)


@pytest.mark.parametrize("cache", CACHES)
def test_a_damaged_dataset_is_named(damaged, cache):
    with pytest.raises(
        UserError, match=r"stripes.16.*: trainB is damaged \(truncated record .*\); expected .*: remove that folder"
    ):
        load("stripes", 16, 16, data_dir=damaged, cache=cache)


def shards(folder, count):
    """Prepare the embedded dataset with several files per split; return its builder."""
    builder = drawn_builder.builder("stripes", 16, str(folder))
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=count))
    return builder


def test_several_files_are_read_in_their_order(tmp_path):
    whole, split = drawn_builder.builder("stripes", 16, str(tmp_path / "1")), shards(tmp_path / "3", 3)
    assert len(split.info.splits["trainA"].filepaths) == 3
    (first, names), (second, _) = (tfds_source.read(dict.fromkeys(sources.SPLITS, each)) for each in (whole, split))
    assert names["testB"][31] == "stripes/16/1.0.0/testB[31]"
    for part in sources.SPLITS:
        assert len(first[part]) == len(second[part]) == drawn_builder.SPLIT_SIZES[part]
        assert all((reader.decode(a) == reader.decode(b)).all() for a, b in zip(first[part], second[part]))
    few, _ = tfds_source.read(dict.fromkeys(sources.SPLITS, split), max_images=100)
    assert [len(few[part]) for part in sources.SPLITS] == [100, 100, 32, 32]


@pytest.mark.parametrize("left", [None, 1])
def test_a_missing_or_foreign_file_is_damage(tmp_path, left):
    paths = shards(tmp_path, 3).info.splits["testA"].filepaths
    if left is None:
        paths[1].unlink()
    else:  # another number of images: 32 are 11, 10 and 11
        paths[1].write_bytes(paths[0].read_bytes())
    with pytest.raises(UserError, match="testA is damaged .*: remove that folder and start again"):
        load("stripes", 16, 16, data_dir=str(tmp_path))


def test_a_changed_byte_is_damage(tmp_path):
    (path,) = shards(tmp_path, 1).info.splits["testB"].filepaths
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="testB is damaged .*: remove that folder and start again"):
        load("stripes", 16, 16, data_dir=str(tmp_path))


def test_a_dataset_in_a_bucket_is_refused():
    builder = types.SimpleNamespace(data_path="gs://bucket/stripes/16/1.0.0")
    with pytest.raises(UserError, match="gs://bucket/stripes/16/1.0.0: expected a folder of this machine"):
        tfds_source.read({"trainA": builder})


def test_another_file_format_is_refused(tmp_path, monkeypatch):
    builder = shards(tmp_path, 1)
    info = next(tmp_path.glob("stripes/16/*/dataset_info.json"))
    info.write_text(info.read_text().replace('"tfrecord"', '"riegeli"'))
    with pytest.raises(UserError, match="of the format riegeli; expected tfrecord: remove that folder"):
        tfds_source.read({"trainA": tfds.builder_from_directory(builder.data_path)})


@pytest.mark.sampled
@pytest.mark.parametrize("cache", CACHES)
def test_a_worker_decodes_only_its_share(stripes_dir, tmp_path, monkeypatch, cache):
    config = Config.from_settings(dataset="stripes", image_size=16, load_size=16, data_dir=stripes_dir, cache=cache)
    decoded, decode = [], reader.decode
    monkeypatch.setattr(reader, "decode", lambda source, *how: decoded.append(source) or decode(source, *how))
    domains = load_config(config, cache_dir=tmp_path, local_workers=1)
    assert not decoded
    parts = (domains.train_x.images, domains.train_y.images)
    dataset = UnpairedDataset(*parts, 6, (16, 16), seed=0, steps_per_call=2)
    x, *_ = dataset.batches(0, 0, steps=2, replica=1, replicas=3)
    builder = drawn_builder.builder("stripes", 16, stripes_dir)
    encoded, _ = tfds_source.read(dict.fromkeys(("trainA", "trainB"), builder))
    share = [pair for pair in range(12) if pair % 6 in (2, 3)]
    index = dataset.sampler.image_index
    assert decoded == [encoded[f"train{'AB'[d]}"][index(d, 0, pair)] for pair in share for d in (0, 1)]
    monkeypatch.undo()
    alone = load_config(config, cache_dir=tmp_path)
    whole, *_ = UnpairedDataset(alone.train_x.images, parts[1], 6, (16, 16), seed=0, steps_per_call=2).batches(0, 0, 2)
    np.testing.assert_array_equal(x, whole[:, 2:4])


def test_a_missing_archive_is_one_error(tmp_path, monkeypatch):
    module = __import__(tfds.builder_cls("cycle_gan").__module__, fromlist=["_DL_URLS"])
    monkeypatch.setitem(module._DL_URLS, "horse2zebra", str(tmp_path / "missing.zip"))
    monkeypatch.setattr(tfds_source, "_host_answers", lambda url: True)
    with pytest.raises(UserError, match="TensorFlow Datasets could not prepare cycle_gan/horse2zebra/3.0.0 in "):
        load("cycle_gan/horse2zebra", data_dir=str(tmp_path / "tfds"))
