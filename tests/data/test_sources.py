"""Loading of datasets: splits, sizes, depths, channels, caches, fingerprints."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from cyclegan.config import Config
from cyclegan.data import loading, sources
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import TrainingError, UserError
from cyclegan.images import reader
from tests.data.image_folders import BANDS, CACHES, image_sets, load, load_config, noise, photograph, save, stack

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def few_drawings(monkeypatch):
    """Draw few images of the embedded datasets."""
    monkeypatch.setattr(sources, "SPLIT_SIZES", {"trainA": 5, "trainB": 6, "testA": 4, "testB": 4})


def test_test_splits_can_be_loaded_alone(folder):
    save(folder / "testA" / "x.png", (77, 0, 0))
    config = Config.from_settings(dataset=str(folder), image_size=16, load_size=24, cache="ram")
    (folder / "trainA" / "03.png").write_bytes(b"no image")
    domains = load_config(config, splits=sources.TEST_SPLITS)
    assert domains.train_x is None and domains.train_y is None and domains.size == (16, 16)
    assert domains.test_x.names == ["testA/x.png"] and domains.test_y.names == ["trainB/0.jpg"]  # held out
    drawn = Config.from_settings(dataset="stripes", image_size=32, load_size=32)
    whole, alone = load_config(drawn), load_config(drawn, splits=sources.TEST_SPLITS)
    assert alone.train_y is None
    np.testing.assert_array_equal(stack(alone.test_y), stack(whole.test_y))
    (folder / "trainB").rename(folder / "B")
    with pytest.raises(UserError, match="trainB: no such folder, and no testB; expected images of one domain"):
        load_config(config, splits=sources.TEST_SPLITS)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("preprocess, before", [("resize_and_crop", (24, 24)), ("scale_width_and_crop", (30, 24))])
def test_nothing_is_cropped_while_the_rates_decay(photos, cache, preprocess, before):
    """The decaying half resizes the files themselves, not the larger images."""
    plain, whole = (load(photos, cache=cache, preprocess=preprocess, load_size=size) for size in (24, 16))
    domains = load(photos, cache=cache, preprocess=preprocess, load_size=24, crop_until_decay=True)
    assert not plain.in_decay and domains.train_x[0].shape[:2] == before and domains.size == (16, 16)
    for large, small, other, expected in (
        (domains.train_x, domains.in_decay[0], plain.train_x, whole.train_x),
        (domains.train_y, domains.in_decay[1], plain.train_y, whole.train_y),
    ):
        for i in range(len(expected)):
            np.testing.assert_array_equal(large[i], other[i])
            np.testing.assert_array_equal(small[i], expected[i])


@pytest.mark.parametrize("cache", CACHES)
def test_one_16_bit_image_makes_all_16_bit(folder, cache):
    assert load(folder, cache=cache).test_y[0].dtype == np.uint8
    noise(folder / "trainA" / "05.png", 0)
    domains = load(folder, cache=cache)
    for part in image_sets(domains):
        assert part.dtype == part[0].dtype == np.uint16
    np.testing.assert_array_equal(domains.train_x[3][0, 0], [257 * 4, 0, 0])


@pytest.mark.parametrize("cache", CACHES)
def test_crop_keeps_sizes_and_depth(bands, cache):
    domains = load(bands, cache=cache, preprocess="crop", **BANDS)
    assert domains.train_x.shape == (3, None, None, 1) and domains.train_y.shape == (3, None, None, 5)
    for i in range(3):
        x = np.random.default_rng(i).integers(0, 65535, (24 + i, 30, 1)).astype(np.uint16)
        np.testing.assert_array_equal(domains.train_x[i], x)
        y = np.random.default_rng(10 + i).integers(0, 255, (40, 32 + i, 5)).astype(np.uint8)
        np.testing.assert_array_equal(domains.train_y[i], 257 * y.astype(np.uint16))  # all images have the same depth
    assert domains.test_y.shape == (1, 40, 35, 5)


@pytest.mark.parametrize("cache", CACHES)
def test_training_images_of_equal_names_are_pairs(photos, cache):
    settings = {"cache": cache, "paired_names": True, "paired_share": 0.25}
    domains = load(photos, **settings)
    assert [(domains.train_x.names[i], domains.train_y.names[j]) for i, j in domains.pairs] == [
        (f"trainA/{name}", f"trainB/{name}") for name in ("s0/0.jpg", "s0/2.webp", "s1/1.png", "s1/3.bmp")
    ]
    expected = (
        "Pairs: 4 names are in trainA and in trainB (1 more image in trainA, 1 more image in trainB); they are used"
        " together with probability 0.25"
    )
    assert expected in domains.notes
    assert load(photos).pairs is None
    config = Config.from_settings(dataset=str(photos), image_size=16, load_size=24, **settings)
    assert load_config(config, splits=sources.TEST_SPLITS).pairs is None
    photograph(photos / "trainB" / "s0" / "0.jpg", 0, 40)
    with pytest.raises(UserError, match="trainA/s0/0.jpg .19 x 24 pixels. and trainB/s0/0.jpg .35 x 40 pixels. differ"):
        load(photos, preprocess="crop", **settings)


def test_images_of_scenes_are_pairs():
    assert load("scenes", load_size=16, paired_names=True).pairs.tolist() == [[i, i] for i in range(5)]
    assert load("stripes", load_size=16, paired_names=True).pairs is None
    assert not Config.from_settings(dataset="stripes").data.is_tfds  # so no worker waits for the chief to prepare it


def test_files_with_other_bands_are_named(bands, folder):
    for flags, text in (
        (
            {},
            "4 of 8 .*ones that fit the flags: .*B/0.tif, .* bands: 5; expected gray or RGB .*r --channels_y in",
        ),
        ({"channels_x": 1, "channels_y": 4}, r"4 of 8 .*B/0.tif, .* bands: 5; expected 4 .--channels_y in training..$"),
        ({"channels_x": 4, "channels_y": 5}, r"4 of 8 .*A/0.\w+, .* expected 4 \(--channels_x in training\)\)$"),
    ):
        with pytest.raises(UserError, match=text):
            load(bands, **flags)
    assert load(folder, channels_x=1, channels_y=1).train_x.shape == (16, 24, 24, 1)


@pytest.mark.parametrize("cache", CACHES)
def test_without_a_crop_all_sizes_must_agree(photos, cache):
    text = (
        r"none: trainA/s0/0.jpg \(19 x 24 pixels, resized to 20 x 24 pixels\) and trainA/s1/3.bmp \(22 x 27 pixels,"
        r" resized to 24 x 28 pixels\) differ in size.* for one size, .*batch_size 1: use --preprocess crop or"
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


@pytest.mark.parametrize("dataset", ["folder", "stripes"])
def test_max_dataset_size_uses_the_first_images(folder, dataset):
    dataset = folder if dataset == "folder" else dataset
    whole, few = load(dataset), load(dataset, max_dataset_size=2)
    for part, first in zip(image_sets(whole), image_sets(few)):
        assert len(first) == min(2, len(part)) and first.names == part.names[:2]
        np.testing.assert_array_equal(stack(first), stack(part)[:2])
    assert len(load(dataset, max_dataset_size=1000).train_x) == len(whole.train_x)


FOLDER_ALONE = """
import sys
from cyclegan.data import sources
from cyclegan.config import Config
config = Config.from_settings(dataset=sys.argv[1], image_size=16, load_size=24)
domains = sources.load_domains(config.data, config.networks.multiple)
slow = {"tensorflow", "tensorflow_datasets", "requests", "matplotlib"}
print(len(domains.train_x), slow & set(sys.modules))
config = Config.from_settings(dataset="stripes", image_size=16, load_size=16)
sources.load_domains(config.data, config.networks.multiple)
print(slow & set(sys.modules))
"""


@pytest.mark.slow
def test_folders_and_drawings_need_neither_tensorflow_nor_tfds(folder):
    command = [sys.executable, "-c", FOLDER_ALONE, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["16 set()", "set()"], done.stderr


def test_the_fingerprint_tells_names_and_lengths_but_not_the_folder(folder, tmp_path):
    before = load(folder).fingerprint()
    assert before["trainA"].startswith("16 images (")
    folder = folder.rename(tmp_path / "moved")
    assert load(folder).fingerprint() == before
    photograph(folder / "trainA" / "00.png", 0, 30)
    after = load(folder, cache="none").fingerprint()
    assert [part for part in after if after[part] != before[part]] == ["trainA bytes"]
    (folder / "trainA" / "00.png").rename(folder / "trainA" / "0.png")
    renamed = load(folder).fingerprint()
    assert [part for part in renamed if renamed[part] != after[part]] == ["trainA"]


@pytest.mark.parametrize("ending", ["bmp", "tif", "png"])
def test_workers_notice_other_pixels_in_files_of_the_same_length(folder, ending):
    """A run that is resumed accepts them: an image may have been repaired."""
    values = np.random.default_rng(0).integers(0, 256, (150, 150, 3)).astype(np.uint8)
    other = values.copy()
    other[20, 0] ^= 1  # neither in the middle nor near an end
    found = []
    for pixels in (values, other, values):
        Image.fromarray(pixels).save(folder / "trainA" / f"repaired.{ending}", compress_level=0)
        domains = load(folder)
        found.append((domains.fingerprint(), domains.checksums()))
    assert found[0][0] == found[1][0] and found[0] == found[2]
    assert [name for name in found[0][1] if found[0][1][name] != found[1][1][name]] == [
        f"trainA: trainA/repaired.{ending}"
    ]


@pytest.mark.parametrize("image_size, load_size", [(32, 32), (32, 40)])
def test_stripes_are_drawn_at_the_size_of_the_networks(image_size, load_size):
    domains = load("stripes", image_size, load_size)
    assert domains.test_x.names[3] == f"stripes/{image_size}/testA[3]"
    for split, part in zip(sources.SPLITS, image_sets(domains)):
        side = load_size if split.startswith("train") else image_size
        expected = [sources.draw("stripes", split, i, side) for i in range(len(part))]
        np.testing.assert_array_equal(stack(part), expected)


def is_kept(domains):
    return domains.train_x[0] is domains.train_x[0]


def test_auto_is_ram_up_to_cache_gb(photos, monkeypatch):
    needed = 3 * (24**2 * (5 + 5) + 16**2 * (1 + 2))
    for cache_gb, in_memory in ((needed / 1e9, True), ((needed - 1) / 1e9, False), (0, False)):
        assert is_kept(load(photos, cache="auto", cache_gb=cache_gb)) == in_memory
    for free, in_memory in ((4 * needed, True), (4 * needed - 4, False)):
        monkeypatch.setattr(loading, "free_bytes", lambda free=free: free)
        assert is_kept(load(photos, cache="auto")) == in_memory


def test_workers_of_one_machine_share_its_memory(photos, monkeypatch):
    needed = 3 * (24**2 * (5 + 5) + 16**2 * (1 + 2))
    config = Config.from_settings(dataset=str(photos), load_size=24, image_size=16, cache="auto")
    for free, kept in ((12 * needed, "kept in memory"), (12 * needed - 12, "not kept")):
        monkeypatch.setattr(loading, "free_bytes", lambda free=free: free)
        assert kept in load_config(config, local_workers=3).notes[-1]
    monkeypatch.setattr(loading, "free_bytes", lambda: 3 * needed - 1)
    with pytest.raises(UserError, match="need 0.0 GB of memory for each of 3 workers"):
        load_config(config.replace(cache="ram"), local_workers=3)


def test_images_that_do_not_fit_into_memory_are_decoded_at_each_use(photos, monkeypatch):
    monkeypatch.setattr(loading, "free_bytes", lambda: 100)
    with pytest.raises(UserError, match="the decoded images need 0.0 GB of memory.*--cache none"):
        load(photos)
    for cache in ("auto", "none"):
        assert not is_kept(load(photos, cache=cache))


def test_an_image_that_changes_or_disappears_is_named(photos):
    images = load(photos, cache="none").train_x
    photograph(photos / "trainA" / "s0" / "0.jpg", 0, 50)
    (photos / "trainA" / "s0" / "2.webp").unlink()
    (photos / "trainA" / "s1" / "1.png").write_bytes(b"overwritten")
    for i, text in enumerate(
        (
            r"0\.jpg \(it has 45 x 50 pixels, but had another size when training started",
            r"an image cannot be decoded: .*photos/trainA/s0/2\.webp \(.*No such file",
            r"trainA/s1/1\.png \(a text, not an image\); repair it or put it back",
        )
    ):
        with pytest.raises(TrainingError, match=text):
            images[i]
    assert "0.jpg" in images.failure
    photograph(photos / "trainA" / "s0" / "2.webp", 2, 26)
    assert images[1].shape == (24, 24, 3)


@pytest.mark.parametrize("cache", CACHES)
def test_a_worker_decodes_only_its_share(monkeypatch, cache):
    config = Config.from_settings(dataset="scenes", image_size=16, load_size=16, cache=cache)
    decoded, decode = [], reader.decode
    monkeypatch.setattr(reader, "decode", lambda source, *how: decoded.append(source) or decode(source, *how))
    domains = load_config(config, local_workers=1)
    dataset = UnpairedDataset(domains.train_x, domains.train_y, 3, (16, 16), seed=0)
    x, *_ = dataset.batches(0, 0, steps=1, replica=1, replicas=3)
    assert len(decoded) == 2  # of X and of Y
    whole, *_ = dataset.batches(0, 0, 1)
    np.testing.assert_array_equal(x, whole[:, 1:2])
