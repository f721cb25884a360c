"""Caches: the same images with each --cache, and when images are decoded."""

import os

import numpy as np
import pytest
import tensorflow_datasets as tfds

from cyclegan.config import Config
from cyclegan.data import drawn_builder, memory, sources
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import TrainingError, UserError
from cyclegan.images import reader
from tests.data.image_folders import BANDS, CACHES, image_sets, load, load_config, noise, photograph, split_images
from tests.data.noise_source import resident_bytes


@pytest.mark.parametrize("mode", ["resize_and_crop", "crop", "scale_width", "scale_width_and_crop"])
def test_16_bit_images_of_any_channels_are_the_same_in_every_cache(bands, tmp_path, mode):
    (bands / "trainA" / "3.png").unlink()
    for i in range(1, 3):  # all images then have one shape
        noise(bands / "trainA" / f"{i}.png", i, (24, 30), 1)
    for i in range(4):
        noise(bands / "trainB" / f"{i}.tif", i, (48, 60), 5, np.uint8)
    flags = {**BANDS, "preprocess": mode}
    loaded = [load(bands, cache=cache, cache_dir=tmp_path, **flags) for cache in CACHES]
    for ram, disk, none in zip(*map(split_images, loaded)):
        assert ram.dtype == np.uint16
        np.testing.assert_array_equal(ram, disk)
        np.testing.assert_array_equal(ram, none)
    assert loaded[0].size == loaded[1].size == loaded[2].size == ((20, 24) if mode == "scale_width" else (16, 16))
    assert loaded[0].fingerprint() == loaded[1].fingerprint() == loaded[2].fingerprint()


def test_images_of_a_folder_are_the_same_in_every_cache(photos, tmp_path):
    loaded = [load(photos, cache=cache, cache_dir=tmp_path) for cache in CACHES]
    for ram, disk, none in zip(*map(split_images, loaded)):
        np.testing.assert_array_equal(ram, disk)
        np.testing.assert_array_equal(ram, none)
    assert loaded[0].fingerprint() == loaded[1].fingerprint() == loaded[2].fingerprint()
    assert [domains.train_x.names for domains in loaded] == 3 * [loaded[0].train_x.names]
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    assert "not kept (--cache none)" in loaded[2].notes[-1] and f"GB in {tmp_path})" in loaded[1].notes[-1]


@pytest.mark.slow
def test_stripes_equal_tfds_in_every_cache(stripes_dir, tmp_path):
    loaded = [load("stripes", 32, 32, tmp_path, data_dir=stripes_dir, cache=cache) for cache in CACHES]
    builder = drawn_builder.builder("stripes", 32, stripes_dir)
    for split, *cached in zip(sources.SPLITS, *map(split_images, loaded)):
        decoded = np.stack([example["image"] for example in tfds.as_numpy(builder.as_dataset(split))])
        for images in cached:
            np.testing.assert_array_equal(images, decoded)
    assert loaded[0].fingerprint() == loaded[1].fingerprint() == loaded[2].fingerprint()
    assert loaded[0].fingerprint()["trainB"].startswith("288 images (")
    assert loaded[0].fingerprint() != load("stripes", 32, 40, data_dir=stripes_dir).fingerprint()


@pytest.mark.parametrize("cache, decoded", [("ram", 13), ("disk", 13), ("none", 26)])
def test_number_of_decodings_by_cache(photos, tmp_path, monkeypatch, cache, decoded):
    decode, calls = reader.decode, []
    monkeypatch.setattr(reader, "decode", lambda source, *how: calls.append(source) or decode(source, *how))
    domains = load(photos, cache=cache, cache_dir=tmp_path)
    assert len(calls) == (13 if cache == "ram" else 0)
    list(split_images(domains))
    assert len(calls) == decoded


def test_auto_is_ram_up_to_cache_gb(photos, monkeypatch):
    needed = 3 * (24**2 * (5 + 5) + 16**2 * (1 + 2))
    for cache_gb, in_memory in ((needed / 1e9, True), ((needed - 1) / 1e9, False), (0, False)):
        assert isinstance(load(photos, cache="auto", cache_gb=cache_gb).train_x.images, np.ndarray) == in_memory
    for free, in_memory in ((4 * needed, True), (4 * needed - 4, False)):
        monkeypatch.setattr(memory, "free_bytes", lambda free=free: free)
        assert isinstance(load(photos, cache="auto").train_x.images, np.ndarray) == in_memory


def test_workers_of_one_machine_share_its_memory(photos, monkeypatch):
    needed = 3 * (24**2 * (5 + 5) + 16**2 * (1 + 2))
    config = Config.from_settings(dataset=str(photos), load_size=24, image_size=16, cache="auto")
    for free, kept in ((12 * needed, "in memory"), (12 * needed - 12, "on disk")):
        monkeypatch.setattr(memory, "free_bytes", lambda free=free: free)
        assert f"kept {kept} from then on" in load_config(config, local_workers=3).notes[-1]
    monkeypatch.setattr(memory, "free_bytes", lambda: 3 * needed - 1)
    with pytest.raises(UserError, match="need 0.0 GB of memory for each of 3 workers"):
        load_config(config.replace(cache="ram"), local_workers=3)


def test_a_worker_decodes_only_the_images_that_it_uses(photos, monkeypatch):
    decoded = []
    real = reader.decode
    monkeypatch.setattr(reader, "decode", lambda *args, **kwargs: decoded.append(1) or real(*args, **kwargs))
    config = Config.from_settings(dataset=str(photos), load_size=24, image_size=16, cache="ram")
    domains = load_config(config, local_workers=1)
    assert not decoded
    for _ in range(2):
        domains.train_x.images[3], domains.test_y.images[0]
        assert len(decoded) == 2  # the second pass decodes nothing


def test_only_ram_must_hold_all_images(photos, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 1000)
    with pytest.raises(UserError, match="need .* GB of memory.*--cache disk"):
        load(photos)
    for cache in ("auto", "disk", "none"):
        load(photos, cache=cache)


def test_broken_headers_and_ends_are_found_at_the_start(photos, tmp_path):
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
            load(photos, cache=cache, cache_dir=tmp_path)
        texts.append(str(error.value))
    assert texts[0].startswith("5 of 13 images cannot be used; expected readable ones: repair or remove them")
    assert texts[0] == texts[1] == texts[2] and "1.png (not an image)" in texts[0] and "0.jpg (" in texts[0]


@pytest.mark.parametrize("cache", ["disk", "none"])
def test_an_image_whose_size_changes_is_named(photos, tmp_path, cache):
    images = load(photos, cache=cache, cache_dir=tmp_path).train_x.images
    photograph(photos / "trainA" / "s0" / "0.jpg", 0, 50)
    with pytest.raises(
        TrainingError, match=r"0\.jpg \(it has 45 x 50 pixels, but had another size when training started"
    ):
        images[0]


@pytest.mark.parametrize("cache", ["disk", "none"])
def test_an_image_that_disappears_is_named(photos, tmp_path, cache):
    images = load(photos, cache=cache, cache_dir=tmp_path).train_x.images
    (photos / "trainA" / "s0" / "2.webp").unlink()
    content = photos / "trainA" / "s0" / "4.gif"
    content.write_bytes(b"overwritten")
    images[0]
    with pytest.raises(TrainingError, match=r"an image cannot be decoded: .*photos/trainA/s0/2\.webp \(.*No such file"):
        images[1]
    with pytest.raises(TrainingError, match=r"trainA/s0/4\.gif \(not an image\); repair it or put it back"):
        images[2]
    assert "2.webp" in images.failure
    photograph(photos / "trainA" / "s0" / "2.webp", 2, 26)
    assert images[1].shape == (24, 24, 3)


@pytest.mark.slow
def test_100_000_images_take_little_memory_and_resume_exactly(tmp_path):
    folder, counts = tmp_path / "many", (50_000, 49_000, 500, 500)
    for split, count in zip(sources.SPLITS, counts):
        for i in range(count):
            path = folder / split / f"{i:06d}.jpg"
            if i < 20:
                photograph(path, i, 64)
            else:
                os.link(folder / split / f"{i % 20:06d}.jpg", path)
    started = resident_bytes()
    domains = load(folder, cache="none")
    assert tuple(map(len, image_sets(domains))) == counts
    ready = resident_bytes()
    assert ready - started < 100e6  # decoded they take 173 MB

    def pairs(domains):
        parts = domains.train_x, domains.train_y
        return UnpairedDataset(*(part.images for part in parts), 4, (16, 16), 0, [part.names for part in parts])

    used = pairs(domains)
    used.batches(0, 0, 1)
    before = resident_bytes()
    for pair in range(0, 4000, 4):
        used.batches(0, pair, 1)
    assert resident_bytes() - before < 15e6
    again = load(folder, cache="none")
    assert again.fingerprint() == domains.fingerprint()
    for part, other in zip(used.batches(1, 48_000, 1), pairs(again).batches(1, 48_000, 1)):
        np.testing.assert_array_equal(part, other)
