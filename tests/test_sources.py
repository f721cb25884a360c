import socket
import time

import numpy as np
import pytest
import requests
import tensorflow_datasets as tfds
from PIL import Image

from cyclegan import pictures, sources, stripes
from cyclegan.errors import TrainingError, UserError


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


def load(dataset, image_size=8, load_size=12, **options):
    return sources.load(str(dataset), image_size, load_size, **options)


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


CACHES = ("ram", "disk", "none")


def split_images(domains):
    """The pictures of the four splits as arrays, each read twice."""
    for part in (domains.train_x, domains.train_y, domains.test_x, domains.test_y):
        first, again = (np.stack([part.images[i] for i in range(len(part.images))]) for _ in range(2))
        np.testing.assert_array_equal(first, again)
        assert part.images.shape == first.shape and len(part) == len(first)
        yield first


def photograph(path, seed, side):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (side, side - 5, 3)).astype(np.uint8)
    Image.fromarray(noise).save(path)
    return path


@pytest.fixture
def photos(tmp_path):
    """A data set folder of several formats and sizes, with sub-folders."""
    for split, count in {"trainA": 6, "trainB": 5, "testB": 2}.items():
        for i in range(count):
            ending = ("jpg", "png", "webp", "bmp", "gif")[i % 5]
            photograph(tmp_path / "photos" / split / f"s{i % 2}" / f"{i}.{ending}", i, 24 + i)
    return tmp_path / "photos"


def test_the_pictures_of_a_folder_are_the_same_however_they_are_cached(photos, tmp_path):
    loaded = [load(photos, 16, 20, cache=cache, folder=tmp_path) for cache in CACHES]
    for ram, disk, none in zip(*map(split_images, loaded)):
        np.testing.assert_array_equal(ram, disk)
        np.testing.assert_array_equal(ram, none)
    assert loaded[0].fingerprint() == loaded[1].fingerprint() == loaded[2].fingerprint()
    assert [domains.train_x.names for domains in loaded] == 3 * [loaded[0].train_x.names]
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    assert "not kept (--cache none)" in loaded[2].notes[-1] and f"GB in {tmp_path})" in loaded[1].notes[-1]


def test_drawn_pictures_are_those_of_tfds_however_they_are_cached(stripes_dir, tmp_path):
    loaded = [sources.load("stripes", 32, 32, stripes_dir, cache=cache, folder=tmp_path) for cache in CACHES]
    builder = stripes.builder(32, stripes_dir)
    for split, *cached in zip(sources.SPLITS, *map(split_images, loaded)):
        decoded = np.stack([example["image"] for example in tfds.as_numpy(builder.as_dataset(split))])
        for images in cached:
            np.testing.assert_array_equal(images, decoded)
    assert loaded[0].fingerprint() == loaded[1].fingerprint() == loaded[2].fingerprint()
    assert loaded[0].fingerprint()["trainB"].startswith("288 pictures (")
    assert loaded[0].fingerprint() != sources.load("stripes", 32, 40, stripes_dir).fingerprint()


@pytest.mark.parametrize("cache, decoded", [("ram", 13), ("disk", 13), ("none", 26)])
def test_how_often_a_picture_is_decoded(photos, tmp_path, monkeypatch, cache, decoded):
    decode, calls = pictures.decode, []
    monkeypatch.setattr(pictures, "decode", lambda source: calls.append(source) or decode(source))
    domains = load(photos, cache=cache, folder=tmp_path)
    assert len(calls) == (13 if cache == "ram" else 0)
    list(split_images(domains))
    assert len(calls) == decoded


def test_auto_is_memory_for_so_many_gigabytes_and_disk_above(photos, monkeypatch):
    needed = 3 * (12**2 * (5 + 5) + 8**2 * (1 + 2))
    for cache_gb, in_memory in ((needed / 1e9, True), ((needed - 1) / 1e9, False), (0, False)):
        assert isinstance(load(photos, cache="auto", cache_gb=cache_gb).train_x.images, np.ndarray) == in_memory
    for free, in_memory in ((4 * needed, True), (4 * needed - 4, False)):
        monkeypatch.setattr(pictures, "free_memory", lambda free=free: free)
        assert isinstance(load(photos, cache="auto").train_x.images, np.ndarray) == in_memory


def test_only_memory_has_to_hold_all_pictures(photos, monkeypatch):
    monkeypatch.setattr(pictures, "free_memory", lambda: 1000)
    with pytest.raises(UserError, match="need .* GB of memory.*--cache disk"):
        load(photos)
    for cache in ("auto", "disk", "none"):
        load(photos, cache=cache)


def test_what_its_header_or_end_tells_is_found_at_the_start_however_pictures_are_cached(photos, tmp_path):
    for name, damage in {
        "trainA/s0/0.jpg": lambda whole: whole[: len(whole) // 2],
        "trainA/s1/1.png": lambda whole: whole[:-30],
        "trainB/s0/2.webp": lambda whole: b"RIFF" + bytes(20),
        "trainB/s1/3.bmp": lambda whole: b"",
        "testB/s1/1.png": lambda whole: b"<svg/>",
    }.items():
        (photos / name).write_bytes(damage((photos / name).read_bytes()))
    texts = []
    for cache in CACHES:
        with pytest.raises(UserError) as error:
            load(photos, cache=cache, folder=tmp_path)
        texts.append(str(error.value))
    assert texts[0].startswith("5 of 13 pictures do not decode; repair or remove them: ")
    assert texts[0] == texts[1] == texts[2] and "1.png (not a picture)" in texts[0] and "0.jpg (" in texts[0]


@pytest.mark.parametrize("cache", ["disk", "none"])
def test_a_picture_that_goes_later_is_named(photos, tmp_path, cache):
    images = load(photos, cache=cache, folder=tmp_path).train_x.images
    (photos / "trainA" / "s0" / "2.webp").unlink()
    content = photos / "trainA" / "s0" / "4.gif"
    content.write_bytes(b"overwritten")
    images[0]
    with pytest.raises(TrainingError, match=r"does not decode any more: .*photos/trainA/s0/2\.webp \(.*No such file"):
        images[1]
    with pytest.raises(TrainingError, match=r"trainA/s0/4\.gif \(not a picture\); repair it or put it back"):
        images[2]
    assert "2.webp" in images.failure
    photograph(photos / "trainA" / "s0" / "2.webp", 2, 26)
    assert images[1].shape == (12, 12, 3)


def test_the_fingerprint_tells_names_and_sizes_apart_however_pictures_are_cached(folder):
    before = load(folder).fingerprint()
    assert before["trainA"].startswith("19 pictures (")
    photograph(folder / "trainA" / "00.png", 0, 30)
    for cache in CACHES:
        after = load(folder, cache=cache).fingerprint()
        assert [part for part in after if after[part] != before[part]] == ["trainA bytes"]
    (folder / "trainA" / "00.png").rename(folder / "trainA" / "000.png")
    renamed = load(folder).fingerprint()
    assert [part for part in renamed if renamed[part] != after[part]] == ["trainA"]


def test_the_fingerprint_tells_data_sets_apart_not_places(folder, tmp_path):
    before = load(folder).fingerprint()
    folder.rename(tmp_path / "moved")
    assert load(tmp_path / "moved").fingerprint() == before
    save(tmp_path / "moved" / "trainA" / "99.png")
    after = load(tmp_path / "moved").fingerprint()
    differ = [split for split in sources.SPLITS if after[split] != before[split]]
    assert differ == ["trainA", "testA"]


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
