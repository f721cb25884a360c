import os
import pathlib
import subprocess
import sys

import imagecodecs
import numpy as np
import pytest
import tensorflow_datasets as tfds
import tifffile
from PIL import Image

from cyclegan.config import Config
from cyclegan.data import memory, sources, stripes
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import TrainingError, UserError
from cyclegan.images import reader
from tests.data.test_cache import resident

ROOT = pathlib.Path(__file__).resolve().parents[2]


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


def load(dataset, image_size=16, load_size=24, folder=None, **flags):
    """The data set as a configuration of these flags has it, in memory by default."""
    config = Config.from_settings(
        dataset=str(dataset), **{"image_size": image_size, "load_size": load_size, "cache": "ram", **flags}
    )
    return sources.load(config, folder)


def test_a_folder_without_test_pictures_holds_out_the_last_ones_and_says_so(folder):
    domains = load(folder)
    assert domains.train_x.images.shape == (19, 24, 24, 3) and domains.test_x.images.shape == (1, 16, 16, 3)
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


def test_test_pictures_alone_are_those_of_the_whole(folder, stripes_dir):
    save(folder / "testA" / "x.png", (77, 0, 0))
    config = Config.from_settings(dataset=str(folder), image_size=16, load_size=24, cache="ram")
    (folder / "trainA" / "03.png").write_bytes(b"no picture")
    domains = sources.load(config, splits=sources.TEST)
    assert domains.train_x is None and domains.train_y is None and domains.size == (16, 16)
    assert domains.test_x.names == ["testA/x.png"] and domains.test_y.names == ["trainB/2.jpg"]  # held out
    drawn = Config.from_settings(dataset="stripes", image_size=32, load_size=32, data_dir=stripes_dir, cache="ram")
    whole, alone = sources.load(drawn), sources.load(drawn, splits=sources.TEST)
    assert alone.train_y is None
    np.testing.assert_array_equal(alone.test_y.images, whole.test_y.images)
    (folder / "trainB").rename(folder / "B")
    with pytest.raises(UserError, match="trainB: no such folder, and no testB; expected pictures of one domain"):
        sources.load(config, splits=sources.TEST)


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
    assert text.startswith(
        "13 of 35 pictures can't be used; repair or remove them, or ask for what they are: "
    ) and text.endswith("and 3 more")
    assert [f"bad{i:02d}.png" in text for i in range(12)] == 10 * [True] + 2 * [False]


def test_a_truncated_picture_does_not_decode(folder):
    whole = (folder / "trainB" / "0.jpg").read_bytes()
    (folder / "trainB" / "0.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"1 of 23 pictures can't be used.*trainB/0\.jpg"):
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


def noise(path, seed, size=(20, 30), bands=3, dtype=np.uint16):
    """Writes noise: of three bands as a PNG, of any number as a TIFF. Returns it."""
    values = np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, (*size, bands)).astype(dtype)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        path.write_bytes(imagecodecs.png_encode(values.squeeze()))
    else:
        tifffile.imwrite(path, values, photometric="minisblack", planarconfig="contig")
    return values


@pytest.fixture
def bands(tmp_path):
    """A data set folder of gray pictures of 16 bits, and of five bands of 8 bits, of their own sizes."""
    for i in range(4):
        noise(tmp_path / "bands" / "trainA" / f"{i}.png", i, (24 + i, 30), 1)
        noise(tmp_path / "bands" / "trainB" / f"{i}.tif", 10 + i, (40, 32 + i), 5, np.uint8)
    return tmp_path / "bands"


BANDS = {"channels_x": 1, "channels_y": 5}


@pytest.mark.parametrize("mode", ["resize_and_crop", "crop", "scale_width", "scale_width_and_crop"])
def test_deep_pictures_of_any_channels_are_the_same_however_they_are_cached(bands, tmp_path, mode):
    (bands / "trainA" / "3.png").unlink()
    for i in range(1, 3):  # of one shape in the end
        noise(bands / "trainA" / f"{i}.png", i, (24, 30), 1)
    for i in range(4):
        noise(bands / "trainB" / f"{i}.tif", i, (48, 60), 5, np.uint8)
    flags = {**BANDS, "preprocess": mode}
    loaded = [load(bands, cache=cache, folder=tmp_path, **flags) for cache in CACHES]
    for ram, disk, none in zip(*map(split_images, loaded)):
        assert ram.dtype == np.uint16
        np.testing.assert_array_equal(ram, disk)
        np.testing.assert_array_equal(ram, none)
    assert loaded[0].size == loaded[1].size == loaded[2].size == ((20, 24) if mode == "scale_width" else (16, 16))
    assert loaded[0].fingerprint() == loaded[1].fingerprint() == loaded[2].fingerprint()


@pytest.mark.parametrize("cache", ["ram", "disk", "none"])
def test_crops_are_cut_from_pictures_of_their_own_sizes_at_full_depth(bands, tmp_path, cache):
    domains = load(bands, cache=cache, folder=tmp_path, preprocess="crop", **BANDS)
    assert domains.train_x.images.shape == (3, None, None, 1) and domains.train_y.images.shape == (3, None, None, 5)
    for i in range(3):
        x = np.random.default_rng(i).integers(0, 65535, (24 + i, 30, 1)).astype(np.uint16)
        np.testing.assert_array_equal(domains.train_x.images[i], x)
        y = np.random.default_rng(10 + i).integers(0, 255, (40, 32 + i, 5)).astype(np.uint8)
        np.testing.assert_array_equal(domains.train_y.images[i], 257 * y.astype(np.uint16))  # one depth for all
    assert domains.test_y.images.shape == (1, 40, 35, 5)


@pytest.mark.parametrize("cache", ["ram", "disk"])
def test_one_deep_picture_makes_all_deep(folder, cache):
    assert load(folder, cache=cache).test_y.images[0].dtype == np.uint8
    noise(folder / "trainA" / "05.png", 0)
    domains = load(folder, cache=cache)
    for part in (domains.train_x, domains.train_y, domains.test_x, domains.test_y):
        assert part.images.dtype == part.images[0].dtype == np.uint16
    np.testing.assert_array_equal(domains.train_x.images[3][0, 0], [257 * 3, 0, 0])


def test_bands_that_are_not_those_asked_for_are_named(bands, folder):
    for flags, text in (
        (
            {},
            "4 of 8 pictures can.t be used; .*trainB/0.tif .bands: 5; expected gray or RGB pixels, or another --channels",
        ),
        ({"channels_x": 1, "channels_y": 4}, "4 of 8 .*trainB/0.tif .bands: 5; expected 4 .--channels_x, --channels_y"),
        ({"channels_x": 2, "channels_y": 5}, "4 of 8 .*trainA/0.png .bands: 1; expected 2"),
    ):
        with pytest.raises(UserError, match=text):
            load(bands, **flags)
    with pytest.raises(UserError, match="20 of 23 .*trainA/00.png .bands: 3; expected 4"):
        load(folder, channels_x=4)
    assert load(folder, channels_x=1, channels_y=1).train_x.images.shape == (19, 24, 24, 1)


@pytest.mark.parametrize("cache", ["ram", "disk", "none"])
def test_without_a_crop_the_headers_decide(photos, tmp_path, cache):
    text = (
        r"none: trainA/s0/0.jpg \(19 x 24 pixels, resized to 20 x 24 pixels\) and trainA/s0/4.gif \(23 x 28 pixels, resized to"
        r" 24 x 28 pixels\) come out at different sizes.*--preprocess crop or resize_and_crop"
    )
    with pytest.raises(UserError, match=text):
        load(photos, cache=cache, preprocess="none")
    with pytest.raises(UserError, match="crop: 3 images are smaller than the crop, for example trainA/s0/0.jpg"):
        load(photos, 20, cache=cache, preprocess="crop")
    for split in sources.SPLITS:
        for path in (photos / split).glob("s*/*"):
            path.unlink()
        for i in range(2):
            photograph(photos / split / "s0" / f"{i}.png", i, 43 + i)
    domains = load(photos, cache=cache, preprocess="none")  # 43 x 38 and 44 x 39
    assert domains.size == (44, 40)


def test_pictures_that_are_not_square(folder):
    domains = load(folder, image_width=32)
    assert domains.size == (16, 32)
    assert domains.train_x.images.shape == (19, 24, 48, 3) and domains.test_y.images.shape == (1, 16, 32, 3)


def test_at_most_so_many_pictures_of_each_split(folder, stripes_dir):
    whole, domains = load(folder), load(folder, max_dataset_size=2)
    assert domains.train_x.names == ["trainA/00.png", "trainA/01.png"] == whole.train_x.names[:2]
    assert domains.test_x.names == whole.test_x.names == ["trainA/19.png"]
    assert len(domains.train_y) == 2 and len(load(folder, max_dataset_size=1).train_y) == 1
    assert len(load(folder, max_dataset_size=1000).train_x) == 19
    whole, domains = (load("stripes", 32, data_dir=stripes_dir, load_size=32, max_dataset_size=n) for n in (None, 3))
    assert [len(part) for part in (domains.train_x, domains.train_y, domains.test_x, domains.test_y)] == [3, 3, 3, 3]
    np.testing.assert_array_equal(domains.train_y.images, whole.train_y.images[:3])
    assert domains.train_y.names == whole.train_y.names[:3]
    assert len(load("stripes", 32, data_dir=stripes_dir, load_size=32, max_dataset_size=40).test_x) == 32


@pytest.mark.parametrize("cache", ["disk", "none"])
def test_a_picture_that_has_got_another_size_is_named(photos, tmp_path, cache):
    images = load(photos, cache=cache, folder=tmp_path).train_x.images
    photograph(photos / "trainA" / "s0" / "0.jpg", 0, 50)
    with pytest.raises(
        TrainingError, match=r"0\.jpg \(it has 45 x 50 pixels, and had others when training was started"
    ):
        images[0]


FOLDER_ALONE = """
import sys
from cyclegan.data import sources
from cyclegan.config import Config
domains = sources.load(Config.from_settings(dataset=sys.argv[1], image_size=16, load_size=24))
slow = {"tensorflow", "tensorflow_datasets", "requests", "matplotlib"}
print(len(domains.train_x), slow & set(sys.modules))
import tensorflow as tf
tf.keras.layers.Layer  # Keras 3 imports matplotlib itself
brought = set(sys.modules)
from cyclegan.data import unpaired
from cyclegan.training import trainer
from cyclegan.reporting import summaries
print({"tensorflow_datasets", "matplotlib"} & set(sys.modules) - brought)
sources.load(Config.from_settings(dataset="stripes", image_size=16, load_size=16, data_dir=sys.argv[2]))
print("tensorflow_datasets" in sys.modules)
"""


def test_a_folder_needs_neither_tfds_nor_matplotlib(folder, tmp_path):
    """TensorFlow itself imports requests."""
    command = [sys.executable, "-c", FOLDER_ALONE, str(folder), str(tmp_path / "tfds")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["19 set()", "set()", "True"], done.stderr


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
    loaded = [load(photos, cache=cache, folder=tmp_path) for cache in CACHES]
    for ram, disk, none in zip(*map(split_images, loaded)):
        np.testing.assert_array_equal(ram, disk)
        np.testing.assert_array_equal(ram, none)
    assert loaded[0].fingerprint() == loaded[1].fingerprint() == loaded[2].fingerprint()
    assert [domains.train_x.names for domains in loaded] == 3 * [loaded[0].train_x.names]
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    assert "not kept (--cache none)" in loaded[2].notes[-1] and f"GB in {tmp_path})" in loaded[1].notes[-1]


def test_drawn_pictures_are_those_of_tfds_however_they_are_cached(stripes_dir, tmp_path):
    loaded = [load("stripes", 32, 32, tmp_path, data_dir=stripes_dir, cache=cache) for cache in CACHES]
    builder = stripes.builder(32, stripes_dir)
    for split, *cached in zip(sources.SPLITS, *map(split_images, loaded)):
        decoded = np.stack([example["image"] for example in tfds.as_numpy(builder.as_dataset(split))])
        for images in cached:
            np.testing.assert_array_equal(images, decoded)
    assert loaded[0].fingerprint() == loaded[1].fingerprint() == loaded[2].fingerprint()
    assert loaded[0].fingerprint()["trainB"].startswith("288 pictures (")
    assert loaded[0].fingerprint() != load("stripes", 32, 40, data_dir=stripes_dir).fingerprint()


@pytest.mark.parametrize("cache, decoded", [("ram", 13), ("disk", 13), ("none", 26)])
def test_how_often_a_picture_is_decoded(photos, tmp_path, monkeypatch, cache, decoded):
    decode, calls = reader.decode, []
    monkeypatch.setattr(reader, "decode", lambda source, *how: calls.append(source) or decode(source, *how))
    domains = load(photos, cache=cache, folder=tmp_path)
    assert len(calls) == (13 if cache == "ram" else 0)
    list(split_images(domains))
    assert len(calls) == decoded


def test_auto_is_memory_for_so_many_gigabytes_and_disk_above(photos, monkeypatch):
    needed = 3 * (24**2 * (5 + 5) + 16**2 * (1 + 2))
    for cache_gb, in_memory in ((needed / 1e9, True), ((needed - 1) / 1e9, False), (0, False)):
        assert isinstance(load(photos, cache="auto", cache_gb=cache_gb).train_x.images, np.ndarray) == in_memory
    for free, in_memory in ((4 * needed, True), (4 * needed - 4, False)):
        monkeypatch.setattr(memory, "free", lambda free=free: free)
        assert isinstance(load(photos, cache="auto").train_x.images, np.ndarray) == in_memory


def test_processes_of_one_machine_share_its_memory(photos, monkeypatch):
    needed = 3 * (24**2 * (5 + 5) + 16**2 * (1 + 2))
    config = Config.from_settings(dataset=str(photos), load_size=24, image_size=16, cache="auto")
    for free, kept in ((12 * needed, "in memory"), (12 * needed - 12, "on disk")):
        monkeypatch.setattr(memory, "free", lambda free=free: free)
        assert f"kept {kept} from then on" in sources.load(config, share=3).notes[-1]
    monkeypatch.setattr(memory, "free", lambda: 3 * needed - 1)
    with pytest.raises(UserError, match="need 0.0 GB of memory for each of 3 workers"):
        sources.load(config.replace(cache="ram"), share=3)


def test_a_process_with_a_share_decodes_only_what_it_is_asked_for(photos, monkeypatch):
    decoded = []
    real = reader.decode
    monkeypatch.setattr(reader, "decode", lambda *args, **kwargs: decoded.append(1) or real(*args, **kwargs))
    config = Config.from_settings(dataset=str(photos), load_size=24, image_size=16, cache="ram")
    domains = sources.load(config, share=1)
    assert not decoded
    for _ in range(2):
        domains.train_x.images[3], domains.test_y.images[0]
        assert len(decoded) == 2  # and kept


def test_only_memory_has_to_hold_all_pictures(photos, monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: 1000)
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
    assert texts[0].startswith("5 of 13 pictures can't be used; repair or remove them, or ask for what they are: ")
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
    assert images[1].shape == (24, 24, 3)


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
    domains = load("stripes", image_size, load_size, data_dir=stripes_dir)
    assert domains.train_x.images.shape == (256, load_size, load_size, 3)
    assert domains.test_y.images.shape == (32, image_size, image_size, 3)
    coats = (domains.test_x.images != domains.test_y.images).any(axis=-1).mean(axis=(1, 2))
    assert 0.05 < coats.min() and coats.max() < 0.4  # pairs of one scene


@pytest.mark.slow
def test_a_folder_of_100_000_pictures_takes_little_memory_and_goes_on_exactly(tmp_path):
    folder, counts = tmp_path / "many", (50_000, 49_000, 500, 500)
    for split, count in zip(sources.SPLITS, counts):
        for i in range(count):
            path = folder / split / f"{i:06d}.jpg"
            if i < 20:
                photograph(path, i, 64)
            else:
                os.link(folder / split / f"{i % 20:06d}.jpg", path)
    started = resident()
    domains = load(folder, cache="none")
    assert tuple(map(len, (domains.train_x, domains.train_y, domains.test_x, domains.test_y))) == counts
    ready = resident()
    assert ready - started < 100e6  # decoded they take 173 MB

    def pairs(domains):
        parts = domains.train_x, domains.train_y
        return UnpairedDataset(*(part.images for part in parts), 4, (16, 16), 0, [part.names for part in parts])

    used = pairs(domains)
    used.batches(0, 0, 1)
    before = resident()
    for pair in range(0, 4000, 4):
        used.batches(0, pair, 1)
    assert resident() - before < 15e6
    again = load(folder, cache="none")
    assert again.fingerprint() == domains.fingerprint()
    for part, other in zip(used.batches(1, 48_000, 1), pairs(again).batches(1, 48_000, 1)):
        np.testing.assert_array_equal(part, other)
