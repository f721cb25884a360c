import socket
import time

import pytest
import requests
import tensorflow_datasets as tfds
from PIL import Image

from cyclegan import sources
from cyclegan.errors import UserError


def save(path, colour=(200, 100, 50), size=(20, 10), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)
    return path


@pytest.fixture
def folder(tmp_path):
    """A data set of 20 + 3 pictures, without test folders."""
    for i in range(20):
        save(tmp_path / "data" / "trainA" / f"{i:02d}.png", (i, 0, 0))
    for i in range(3):
        save(tmp_path / "data" / "trainB" / f"{i}.jpg", (0, 0, 250))
    return tmp_path / "data"


def load(folder, image_size=8, load_size=12, **options):
    return sources.load(str(folder), image_size, load_size, **options)


def test_a_folder_without_test_pictures_holds_out_the_last_ones_and_says_so(folder):
    domains = load(folder)
    assert domains.train_x.images.shape == (19, 12, 12, 3) and domains.test_x.images.shape == (1, 8, 8, 3)
    assert (len(domains.train_y), len(domains.test_y)) == (2, 1)
    assert domains.test_x.images[0, 0, 0].tolist() == [19, 0, 0]
    assert domains.test_x.names == ["trainA/19.png"]
    assert "No testA" in domains.notes[0] and "last 1 of 20 pictures of trainA are held out" in domains.notes[0]
    assert len(domains.notes) == 2


def test_test_folders_are_used_where_they_are(folder):
    save(folder / "testA" / "x.png", (77, 0, 0))
    domains = load(folder)
    assert len(domains.train_x) == 20 and domains.test_x.images[0, 0, 0].tolist() == [77, 0, 0]
    assert len(domains.notes) == 1 and "testB" in domains.notes[0]


@pytest.mark.parametrize("count, held_out", [(2, 1), (29, 1), (30, 2), (40, 2), (100, 5)])
def test_five_percent_are_held_out(tmp_path, count, held_out):
    for domain in "AB":
        for i in range(count):
            save(tmp_path / f"train{domain}" / f"{i}.png", size=(2, 2))
    assert len(load(tmp_path).test_x) == held_out


def test_odd_names_are_read(folder):
    for name in ("new\nline.png", "qu'ot\"e.png", "ünï 写真.png"):
        save(folder / "trainB" / name)
    assert len(load(folder).train_y) == 5


def test_pictures_that_do_not_decode_are_named_ten_at_most(folder):
    for i in range(12):
        (folder / "trainA" / f"bad{i:02d}.png").write_bytes(b"no picture")
    whole = (folder / "trainB" / "0.jpg").read_bytes()
    (folder / "trainB" / "0.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError) as error:
        load(folder)
    text = str(error.value)
    assert text.startswith("13 of 35 pictures do not decode; repair or remove them: ") and text.endswith("and 3 more")
    assert [f"bad{i:02d}.png" in text for i in range(12)] == 10 * [True] + 2 * [False]


def test_a_truncated_picture_does_not_decode(folder):
    whole = (folder / "trainB" / "0.jpg").read_bytes()
    (folder / "trainB" / "0.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"1 of 23 pictures do not decode.*trainB/0\.jpg"):
        load(folder)


def test_what_is_missing_or_empty_is_named(folder, tmp_path):
    with pytest.raises(
        UserError,
        match="--dataset nowhere: no such folder; expected .*trainA.* stripes, or cycle_gan/NAME.*horse2zebra",
    ):
        load("nowhere")
    with pytest.raises(UserError, match="0.jpg: a file; expected a folder with trainA and trainB"):
        load(folder / "trainB" / "0.jpg")
    with pytest.raises(UserError, match="trainA: no such folder; expected pictures of one domain in trainA"):
        load(tmp_path)
    (folder / "testB").mkdir()
    with pytest.raises(UserError, match="testB: no pictures; expected at least one of .jpg"):
        load(folder)
    (tmp_path / "one" / "trainA").mkdir(parents=True)
    save(tmp_path / "one" / "trainA" / "a.png")
    with pytest.raises(UserError, match="trainA: 1 picture and no testA; expected 2"):
        load(tmp_path / "one")
    with pytest.raises(UserError, match="cycle_gan/horse: expected cycle_gan/NAME with NAME one of apple2orange"):
        load("cycle_gan/horse")


def test_too_many_pictures_for_the_memory_are_refused_before_they_are_decoded(folder):
    with pytest.raises(UserError, match="need .* GB of memory, .* GB are free.*smaller --load_size"):
        load(folder, load_size=1_000_000)


def test_the_fingerprint_is_of_the_pictures_not_of_their_names(folder):
    before = load(folder).fingerprint()
    save(folder / "trainA" / "00.png", (0, 99, 0))
    after = load(folder).fingerprint()
    assert [split for split in after if after[split] != before[split]] == ["trainA"]


def test_the_fingerprint_tells_data_sets_apart_not_places(folder, tmp_path):
    before = load(folder).fingerprint()
    assert before["trainA"].startswith("19 pictures (")
    folder.rename(tmp_path / "moved")
    assert load(tmp_path / "moved").fingerprint() == before
    save(tmp_path / "moved" / "trainA" / "99.png")
    after = load(tmp_path / "moved").fingerprint()
    assert [split for split in after if after[split] != before[split]] == ["trainA", "testA"]


@pytest.mark.parametrize("image_size, load_size", [(32, 32), (32, 40)])
def test_stripes_are_drawn_at_the_size_that_is_needed(stripes_dir, image_size, load_size):
    domains = sources.load("stripes", image_size, load_size, stripes_dir)
    assert domains.train_x.images.shape == (256, load_size, load_size, 3)
    assert domains.test_y.images.shape == (32, image_size, image_size, 3)
    coats = (domains.test_x.images != domains.test_y.images).any(axis=-1).mean(axis=(1, 2))
    assert 0.05 < coats.min() and coats.max() < 0.4  # pairs of one scene


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
    monkeypatch.setattr(sources, "ANSWER_SECONDS", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.perf_counter()
        assert not sources._answers(f"http://127.0.0.1:{silent.getsockname()[1]}/a.zip")
    assert time.perf_counter() - start < 5


def test_a_prepared_data_set_that_is_damaged_is_named(tmp_path):
    load("stripes", 16, 16, data_dir=str(tmp_path))
    record = next(tmp_path.glob("stripes/16/*/stripes-trainB.tfrecord*"))
    record.write_bytes(record.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"stripes.16.*: trainB is damaged .*: remove that folder and start again"):
        load("stripes", 16, 16, data_dir=str(tmp_path))


def test_an_archive_that_is_not_there_is_one_error(tmp_path, monkeypatch):
    module = __import__(tfds.builder_cls("cycle_gan").__module__, fromlist=["_DL_URLS"])
    monkeypatch.setitem(module._DL_URLS, "horse2zebra", str(tmp_path / "missing.zip"))
    with pytest.raises(UserError, match="TensorFlow Datasets could not prepare cycle_gan/horse2zebra/3.0.0 in "):
        load("cycle_gan/horse2zebra", data_dir=str(tmp_path / "tfds"))
