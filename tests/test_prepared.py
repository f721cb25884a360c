"""What comes from TensorFlow Datasets, and what is said when it does not."""

import socket
import time

import pytest
import requests
import tensorflow_datasets as tfds

from cyclegan import prepared, sources
from cyclegan.config import Config
from cyclegan.errors import UserError

CACHES = ("ram", "disk", "none")


def load(dataset, image_size=16, load_size=16, **flags):
    return sources.load(Config(dataset=dataset, image_size=image_size, load_size=load_size, **flags))


def test_without_a_network_cycle_gan_says_so_within_ten_seconds(tmp_path, monkeypatch):
    def no_network(*args, **kwargs):
        raise requests.exceptions.ConnectionError("no network")

    monkeypatch.setattr(requests, "head", no_network)
    start = time.perf_counter()
    with pytest.raises(UserError) as error:
        load("cycle_gan/horse2zebra", data_dir=str(tmp_path))
    assert time.perf_counter() - start < 10
    for part in (str(tmp_path), "efrosgans.eecs.berkeley.edu", "--data_dir", "--dataset FOLDER", "--dataset stripes"):
        assert part in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_host_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(prepared, "ANSWER_SECONDS", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.perf_counter()
        assert not prepared._answers(f"http://127.0.0.1:{silent.getsockname()[1]}/a.zip")
    assert time.perf_counter() - start < 5


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A data_dir with a damaged data set."""
    folder = tmp_path_factory.mktemp("damaged")
    load("stripes", 16, 16, data_dir=str(folder))
    record = next(folder.glob("stripes/16/*/stripes-trainB.tfrecord*"))
    record.write_bytes(record.read_bytes()[:-100])
    return str(folder)


@pytest.mark.parametrize("cache", CACHES)
def test_a_prepared_data_set_that_is_damaged_is_named(damaged, cache):
    with pytest.raises(UserError, match=r"stripes.16.*: trainB is damaged .*: remove that folder and start again"):
        load("stripes", 16, 16, data_dir=damaged, cache=cache)


def test_an_archive_that_is_not_there_is_one_error(tmp_path, monkeypatch):
    module = __import__(tfds.builder_cls("cycle_gan").__module__, fromlist=["_DL_URLS"])
    monkeypatch.setitem(module._DL_URLS, "horse2zebra", str(tmp_path / "missing.zip"))
    with pytest.raises(UserError, match="TensorFlow Datasets could not prepare cycle_gan/horse2zebra/3.0.0 in "):
        load("cycle_gan/horse2zebra", data_dir=str(tmp_path / "tfds"))
