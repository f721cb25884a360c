import os
import socket
import time

import numpy as np
import pytest
import requests
import tensorflow_datasets as tfds
from PIL import Image

from cyclegan import pictures
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
    return pictures.load(str(folder), image_size, load_size, **options)


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


@pytest.mark.parametrize("ending", ["jpg", "jpeg", "png", "bmp", "webp", "gif", "JPG", "PNG"])
def test_formats(tmp_path, ending):
    image = pictures.decode(save(tmp_path / f"a.{ending}", (200, 100, 50)))
    assert image.mode == "RGB" and image.size == (20, 10)
    assert np.abs(np.asarray(image).astype(int) - [200, 100, 50]).max() <= 6
    assert pictures.find(tmp_path) == [f"a.{ending}"]


def test_a_gif_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert pictures.decode(tmp_path / "a.gif").getpixel((4, 4)) == (255, 0, 0)


def test_kinds_of_pixels(tmp_path):
    def middle(*args, **options):
        return pictures.decode(save(tmp_path / "a.png", *args, **options)).getpixel((5, 5))

    assert middle(90, mode="L") == (90, 90, 90)
    assert middle(1, mode="1") == (255, 255, 255)
    assert middle((0, 0, 0, 0), mode="RGBA") == (255, 255, 255)  # transparent: the white behind it
    assert middle((200, 0, 0, 255), mode="RGBA") == (200, 0, 0)
    assert middle((10, 128), mode="LA") == (132, 132, 132)
    assert middle(257 * 90, mode="I;16") == (90, 90, 90)
    palette = Image.new("P", (10, 10), 1)
    palette.putpalette([0, 0, 0, 9, 8, 7])
    palette.save(tmp_path / "p.png")
    assert pictures.decode(tmp_path / "p.png").getpixel((5, 5)) == (9, 8, 7)
    palette.save(tmp_path / "t.png", transparency=1)
    assert pictures.decode(tmp_path / "t.png").getpixel((5, 5)) == (255, 255, 255)
    save(tmp_path / "c.jpg", (0, 0, 0, 0), mode="CMYK")
    assert min(pictures.decode(tmp_path / "c.jpg").getpixel((5, 5))) > 250


def test_exif_orientation_is_applied(tmp_path):
    image = Image.new("RGB", (20, 10))
    image.paste("white", (0, 0, 10, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it rotated by 90 degrees
    image.save(tmp_path / "a.jpg", exif=exif)
    upright = pictures.decode(tmp_path / "a.jpg")
    assert upright.size == (10, 20)
    assert upright.getpixel((5, 3))[0] > 200 and upright.getpixel((5, 16))[0] < 50


def test_sub_folders_count_and_hidden_and_other_files_do_not(tmp_path):
    for name in ("b/c.png", "b/d/e.JPG", "a.png", ".hidden.png", ".git/f.png", "__MACOSX/g.png", "b/._c.png"):
        save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "Thumbs.db").write_bytes(b"")
    assert pictures.find(tmp_path) == ["a.png", "b/c.png", "b/d/e.JPG"]


def test_linked_folders_are_followed_once(tmp_path):
    save(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "data").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "data" / "link")
    os.symlink(tmp_path / "data", tmp_path / "elsewhere" / "loop")
    assert pictures.find(tmp_path / "data") == ["link/a.png"]


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
    domains = pictures.load("stripes", image_size, load_size, stripes_dir)
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
    monkeypatch.setattr(pictures, "ANSWER_SECONDS", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.perf_counter()
        assert not pictures._answers(f"http://127.0.0.1:{silent.getsockname()[1]}/a.zip")
    assert time.perf_counter() - start < 5


def test_an_archive_that_is_not_there_is_one_error(tmp_path, monkeypatch):
    module = __import__(tfds.builder_cls("cycle_gan").__module__, fromlist=["_DL_URLS"])
    monkeypatch.setitem(module._DL_URLS, "horse2zebra", str(tmp_path / "missing.zip"))
    with pytest.raises(UserError, match="TensorFlow Datasets could not prepare cycle_gan/horse2zebra/3.0.0 in "):
        load("cycle_gan/horse2zebra", data_dir=str(tmp_path / "tfds"))
