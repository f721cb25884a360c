"""Loading of datasets: splits, sizes, depths, channels, fingerprints."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from cyclegan.config import Config
from cyclegan.data import drawn_builder, sources
from cyclegan.errors import UserError
from tests.data.image_folders import BANDS, CACHES, image_sets, load, load_config, noise, photograph, save

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_test_splits_can_be_loaded_alone(folder, stripes_dir):
    save(folder / "testA" / "x.png", (77, 0, 0))
    config = Config.from_settings(dataset=str(folder), image_size=16, load_size=24, cache="ram")
    (folder / "trainA" / "03.png").write_bytes(b"no image")
    domains = load_config(config, splits=sources.TEST_SPLITS)
    assert domains.train_x is None and domains.train_y is None and domains.size == (16, 16)
    assert domains.test_x.names == ["testA/x.png"] and domains.test_y.names == ["trainB/2.jpg"]  # held out
    drawn = Config.from_settings(dataset="stripes", image_size=32, load_size=32, data_dir=stripes_dir, cache="ram")
    whole, alone = load_config(drawn), load_config(drawn, splits=sources.TEST_SPLITS)
    assert alone.train_y is None
    np.testing.assert_array_equal(alone.test_y.images, whole.test_y.images)
    (folder / "trainB").rename(folder / "B")
    with pytest.raises(UserError, match="trainB: no such folder, and no testB; expected images of one domain"):
        load_config(config, splits=sources.TEST_SPLITS)


@pytest.mark.parametrize("cache", ["ram", "disk"])
def test_one_16_bit_image_makes_all_16_bit(folder, cache):
    assert load(folder, cache=cache).test_y.images[0].dtype == np.uint8
    noise(folder / "trainA" / "05.png", 0)
    domains = load(folder, cache=cache)
    for part in image_sets(domains):
        assert part.images.dtype == part.images[0].dtype == np.uint16
    np.testing.assert_array_equal(domains.train_x.images[3][0, 0], [257 * 3, 0, 0])


@pytest.mark.parametrize("cache", ["ram", "disk", "none"])
def test_crop_keeps_sizes_and_depth(bands, tmp_path, cache):
    domains = load(bands, cache=cache, cache_dir=tmp_path, preprocess="crop", **BANDS)
    assert domains.train_x.images.shape == (3, None, None, 1) and domains.train_y.images.shape == (3, None, None, 5)
    for i in range(3):
        x = np.random.default_rng(i).integers(0, 65535, (24 + i, 30, 1)).astype(np.uint16)
        np.testing.assert_array_equal(domains.train_x.images[i], x)
        y = np.random.default_rng(10 + i).integers(0, 255, (40, 32 + i, 5)).astype(np.uint8)
        np.testing.assert_array_equal(
            domains.train_y.images[i], 257 * y.astype(np.uint16)
        )  # all images have the same depth
    assert domains.test_y.images.shape == (1, 40, 35, 5)


@pytest.mark.parametrize("cache", ["ram", "disk"])
def test_training_images_of_equal_names_are_pairs(photos, cache):
    settings = {"cache": cache, "paired_names": True, "paired_share": 0.25}
    domains = load(photos, **settings)
    assert [(domains.train_x.names[i], domains.train_y.names[j]) for i, j in domains.pairs] == [
        (f"trainA/{name}", f"trainB/{name}") for name in ("s0/0.jpg", "s0/2.webp", "s0/4.gif", "s1/1.png", "s1/3.bmp")
    ]
    expected = (
        "Pairs: 5 names are in trainA and in trainB (0 more images in trainA, 0 more images in trainB); they are used together"
        " with probability 0.25"
    )
    assert expected in domains.notes
    assert load(photos).pairs is None
    config = Config.from_settings(dataset=str(photos), image_size=16, load_size=24, **settings)
    assert load_config(config, splits=sources.TEST_SPLITS).pairs is None
    photograph(photos / "trainB" / "s0" / "0.jpg", 0, 40)
    with pytest.raises(UserError, match="trainA/s0/0.jpg .19 x 24 pixels. and trainB/s0/0.jpg .35 x 40 pixels. differ"):
        load(photos, preprocess="crop", **settings)


def test_images_of_scenes_are_pairs(monkeypatch, tmp_path):
    monkeypatch.setattr(drawn_builder, "SPLIT_SIZES", {"trainA": 2, "trainB": 3, "testA": 1, "testB": 1})
    domains = load("scenes", load_size=16, data_dir=str(tmp_path), paired_names=True)
    assert domains.pairs.tolist() == [[0, 0], [1, 1]]


def test_files_with_other_bands_are_named(bands, folder):
    for flags, text in (
        (
            {},
            "4 of 8 images cannot be used; .*trainB/0.tif .bands: 5; expected gray or RGB pixels, or another --channels",
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
def test_without_a_crop_all_sizes_must_agree(photos, tmp_path, cache):
    text = (
        r"none: trainA/s0/0.jpg \(19 x 24 pixels, resized to 20 x 24 pixels\) and trainA/s0/4.gif \(23 x 28 pixels, resized to"
        r" 24 x 28 pixels\) differ in size.*--preprocess crop or resize_and_crop"
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


def test_image_width_sets_another_width(folder):
    domains = load(folder, image_width=32)
    assert domains.size == (16, 32)
    assert domains.train_x.images.shape == (19, 24, 48, 3) and domains.test_y.images.shape == (1, 16, 32, 3)


def test_max_dataset_size_uses_the_first_images(folder, stripes_dir):
    whole, domains = load(folder), load(folder, max_dataset_size=2)
    assert domains.train_x.names == ["trainA/00.png", "trainA/01.png"] == whole.train_x.names[:2]
    assert domains.test_x.names == whole.test_x.names == ["trainA/19.png"]
    assert len(domains.train_y) == 2 and len(load(folder, max_dataset_size=1).train_y) == 1
    assert len(load(folder, max_dataset_size=1000).train_x) == 19
    whole, domains = (load("stripes", 32, data_dir=stripes_dir, load_size=32, max_dataset_size=n) for n in (None, 3))
    assert [len(part) for part in image_sets(domains)] == [3, 3, 3, 3]
    np.testing.assert_array_equal(domains.train_y.images, whole.train_y.images[:3])
    assert domains.train_y.names == whole.train_y.names[:3]
    assert len(load("stripes", 32, data_dir=stripes_dir, load_size=32, max_dataset_size=40).test_x) == 32


FOLDER_ALONE = """
import sys
from cyclegan.data import sources
from cyclegan.config import Config
config = Config.from_settings(dataset=sys.argv[1], image_size=16, load_size=24)
domains = sources.load_domains(config.data, config.networks.multiple)
slow = {"tensorflow", "tensorflow_datasets", "requests", "matplotlib"}
print(len(domains.train_x), slow & set(sys.modules))
import tensorflow as tf
tf.keras.layers.Layer  # Keras 3 imports matplotlib itself
brought = set(sys.modules)
from cyclegan.data import unpaired
from cyclegan.training import trainer
from cyclegan.run import summaries
print({"tensorflow_datasets", "matplotlib"} & set(sys.modules) - brought)
config = Config.from_settings(dataset="stripes", image_size=16, load_size=16, data_dir=sys.argv[2])
sources.load_domains(config.data, config.networks.multiple)
print("tensorflow_datasets" in sys.modules)
"""


@pytest.mark.slow
def test_a_folder_needs_neither_tfds_nor_matplotlib(folder, tmp_path):
    """Check the imported modules, except `requests`, which TensorFlow imports itself."""
    command = [sys.executable, "-c", FOLDER_ALONE, str(folder), str(tmp_path / "tfds")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["19 set()", "set()", "True"], done.stderr


def test_the_fingerprint_distinguishes_names_and_lengths(folder):
    before = load(folder).fingerprint()
    assert before["trainA"].startswith("19 images (")
    photograph(folder / "trainA" / "00.png", 0, 30)
    for cache in CACHES:
        after = load(folder, cache=cache).fingerprint()
        assert [part for part in after if after[part] != before[part]] == ["trainA bytes"]
    (folder / "trainA" / "00.png").rename(folder / "trainA" / "000.png")
    renamed = load(folder).fingerprint()
    assert [part for part in renamed if renamed[part] != after[part]] == ["trainA"]


def test_the_fingerprint_does_not_depend_on_the_folder(folder, tmp_path):
    before = load(folder).fingerprint()
    folder.rename(tmp_path / "moved")
    assert load(tmp_path / "moved").fingerprint() == before
    save(tmp_path / "moved" / "trainA" / "99.png")
    after = load(tmp_path / "moved").fingerprint()
    differ = [split for split in sources.SPLITS if after[split] != before[split]]
    assert differ == ["trainA", "testA"]


@pytest.mark.parametrize("image_size, load_size", [(32, 32), (32, 40)])
def test_stripes_are_drawn_at_the_size_of_the_networks(stripes_dir, image_size, load_size):
    domains = load("stripes", image_size, load_size, data_dir=stripes_dir)
    assert domains.train_x.images.shape == (256, load_size, load_size, 3)
    assert domains.test_y.images.shape == (32, image_size, image_size, 3)
    coats = (domains.test_x.images != domains.test_y.images).any(axis=-1).mean(axis=(1, 2))
    assert 0.05 < coats.min() and coats.max() < 0.4  # pairs of one scene
