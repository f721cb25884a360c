"""Masks of a folder: they are found by name, checked, and get the crop, size and flip of their images."""

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import UserError
from cyclegan.images import reader
from tests.data.image_folders import CACHES, load, save

SIDE = 24


def write(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def folder(tmp_path):
    """Write four images to each training folder: bright inside of a box, its mask, and dark elsewhere."""
    for domain in "AB":
        for i in range(4):
            mask = np.zeros((SIDE, SIDE), np.uint8)
            mask[2 + i : 12 + 2 * i, 1 + i : 9 + 3 * i] = 255
            write(tmp_path / f"train{domain}" / "sub" / f"{i}.png", np.stack([mask // 2 + 10 * i + 1] * 3, axis=-1))
            write(tmp_path / f"mask{domain}" / "sub" / f"{i}.tif", mask // 255)
    return tmp_path


def dataset(folder, batch=2, **settings):
    domains = load(folder, preprocess="crop", no_flip=False, **settings)
    images = domains.train_x, domains.train_y
    return UnpairedDataset(*images, batch, domains.size, seed=0), UnpairedDataset(
        domains.test_x, domains.test_y, 1, (16, 16)
    )


@pytest.mark.parametrize("cache", CACHES)
def test_masks_get_the_crop_and_flip_of_their_images(folder, cache):
    train, test = dataset(folder, cache=cache)
    changed = set()
    for epoch in range(4):
        x, y, weight, *masks = train.batches(epoch, 0, 1)
        assert weight.all() and [mask.dtype for mask in masks] == [np.uint8] * 2
        for images, mask in zip((x, y), masks):
            np.testing.assert_array_equal(images[..., :1] > 100, mask)
        changed.add(masks[0].tobytes())
    assert len(changed) > 1
    np.testing.assert_array_equal(test.image("X", 0, 0)[..., :1] > 100, test.mask("X", 0, 0))  # held out


def test_masks_are_the_same_on_any_number_of_replicas_and_after_a_resume(folder):
    train, _ = dataset(folder)
    *_, whole_x, whole_y = train.batches(1, 0, 1)
    parts = [train.batches(1, 0, 1, replica=replica, replicas=2)[-2:] for replica in range(2)]
    for whole, shares in zip((whole_x, whole_y), zip(*parts)):
        np.testing.assert_array_equal(whole, np.concatenate(shares, axis=1))
    again = next(train.tf_dataset(1).take(1).as_numpy_iterator())
    np.testing.assert_array_equal(again[-1], whole_y)


def test_a_domain_without_masks_is_inside(folder):
    (folder / "maskB").rename(folder / "other")
    train, _ = dataset(folder)
    *_, mask_x, mask_y = train.batches(0, 0, 1)
    assert mask_x.min() == 0 and mask_y.min() == 1


def test_resized_masks_keep_two_values(folder):
    domains = load(folder, image_size=16, load_size=40)
    for images in (domains.train_x, domains.test_x):
        assert images[0].shape[:2] == images.masks[0].shape[:2] and set(np.unique(images.masks[0])) == {0, 1}
        agreement = np.mean((images[0][..., :1] > 64) == images.masks[0])
        assert agreement > 0.96


def test_each_image_needs_one_mask_of_its_size(folder):
    moved = folder / "maskA/sub/3.tif"
    moved.rename(folder / "aside.tif")
    with pytest.raises(UserError, match=r"maskA: no mask for 1 of 4 images; .*trainA/sub/3.png"):
        load(folder)
    small = next(path for path in sorted(folder.glob("maskA/**/*.*")) if path.is_file())
    whole = small.read_bytes()
    save(small, 0, (24, 22))
    with pytest.raises(UserError, match=r"maskA: no mask for 1 of 4 .*sub/3.png; .* has 24 x 22 pixels; expected 24"):
        load(folder)
    small.write_bytes(whole)
    save(moved.with_suffix(".png"), 0, (24, 23))
    with pytest.raises(UserError, match="sub/3.png has 24 x 23 pixels; expected 24 x 24 pixels, as its image trainA"):
        load(folder)
    other = next(path for path in sorted(folder.glob("maskB/**/*.*")) if path.is_file())
    other.rename(folder / "other")
    with pytest.raises(UserError, match=r"sub/3.png has 24 x 23 .*; .*maskB: no mask for 1 of"):  # all at once
        load(folder)
    (folder / "other").rename(other)
    (folder / "aside.tif").rename(moved)
    with pytest.raises(UserError, match=r"sub/3\.(png|tif) and .*sub/3\.(png|tif) have the same name"):
        load(folder)
    moved.with_suffix(".png").unlink()
    moved.write_bytes(b"no image")
    with pytest.raises(UserError, match=r"3\.tif \(a text, not an image\)"):
        load(folder)


def test_images_of_one_name_need_masks_in_subfolders_of_their_splits(folder):
    for i in range(2):
        save(folder / f"testA/sub/{i}.png", (9, 9, 9), (SIDE, SIDE))
    with pytest.raises(UserError, match="0.tif is the mask of trainA/sub/0.png and testA/sub/0.png"):
        load(folder)
    for i in range(2):
        save(folder / f"maskA/testA/sub/{i}.png", (0, 0, 0), (SIDE, SIDE))
    domains = load(folder)
    assert domains.test_x.masks[0].max() == 0 and domains.train_x.masks[0].max() == 1


def test_masks_need_equal_channels(folder):
    with pytest.raises(UserError, match="expected --channels_x equal to --channels_y"):
        load(folder, channels_x=1)


def test_a_run_notices_other_masks_but_not_another_folder(folder, tmp_path):
    before = load(folder).fingerprint()
    moved = folder.rename(tmp_path.with_name("moved"))
    assert load(moved).fingerprint() == before
    write(moved / "maskA/sub/1.tif", np.full((SIDE, SIDE), 7, np.uint16))
    changed = load(moved).fingerprint()
    assert {name for name in before if before[name] != changed[name]} == {"masks of trainA bytes"}
    (moved / "maskB").rename(moved / "other")
    assert set(before) - set(load(moved).fingerprint()) == {
        f"masks of {split}{part}" for split in ("trainB", "testB") for part in ("", " bytes")
    }


def test_masks_follow_crop_until_decay(folder):
    domains = load(folder, image_size=16, load_size=20, crop_until_decay=True)
    for images, side in ((domains.train_x, 20), (domains.in_decay[0], 16)):
        assert images[0].shape[:2] == images.masks[0].shape[:2] == (side, side)


def test_all_but_black_and_transparent_pixels_are_inside(tmp_path):
    labels = np.array([[0, 1, 200]], np.uint8)
    palette = Image.fromarray(labels)
    palette.putpalette([0, 0, 0, 60, 0, 0] + [0, 90, 0] * 254)
    dark = palette.copy()
    dark.putpalette([0, 0, 0, 0, 0, 4] + [0, 0, 4] * 254)
    gray = np.stack([labels * 0 + 255, np.array([[0, 9, 255]], np.uint8)], axis=-1)
    half = np.stack([labels, np.array([[128, 128, 255]], np.uint8)], axis=-1)
    images = {
        "8.png": Image.fromarray(labels), "16.png": Image.fromarray(labels.astype(np.uint16)), "p.png": palette,
        "rgb.png": Image.fromarray(np.stack([labels] * 3, axis=-1)), "la.png": Image.fromarray(gray),
        "dark.png": dark, "dark-rgb.png": dark.convert("RGB"), "half.png": Image.fromarray(half),
    }  # fmt: skip
    for name, image in images.items():
        image.save(tmp_path / name)
        assert reader.decode_mask(tmp_path / name)[..., 0].tolist() == [[0, 1, 1]], name


LOSSY = {
    "jpg": {"quality": 30}, "webp": {"quality": 60}, "avif": {"quality": 20}, "tif": {"compression": "jpeg"},
    "jp2": {"irreversible": True, "quality_mode": "rates", "quality_layers": [8]},
}  # fmt: skip


@pytest.mark.parametrize("ending", [*LOSSY, "jxl", "12.jpg", "float.tif"])
def test_blurred_values_of_a_lossy_mask_stay_outside(tmp_path, ending):
    y, x = np.mgrid[:64, :96]
    circle, path = 255 * ((y - 30) ** 2 + (x - 45) ** 2 < 400).astype(np.uint8), tmp_path / f"circle.{ending}"
    if ending == "jxl":
        path.write_bytes(imagecodecs.jpegxl_encode(circle, level=80))
    elif ending == "float.tif":
        tifffile.imwrite(path, np.float32(circle / 999), compression="jpegxl", compressionargs={"lossless": True})
    elif ending == "12.jpg":
        deep = circle.astype(np.uint16) * 16
        path.write_bytes(imagecodecs.jpeg_encode(deep, level=30, bitspersample=12))
    else:
        Image.fromarray(circle).convert("RGB").save(path, **LOSSY[ending])
    np.testing.assert_array_equal(reader.decode_mask(path)[..., 0], circle // 255)


def test_a_damaged_mask_is_named_when_it_is_used(folder):
    train, _ = dataset(folder, cache="none")
    masks = train.domains[0].masks
    write(folder / "maskA/sub/1.tif", np.zeros((5, 5), np.uint8))
    with pytest.raises(Exception, match="maskA/sub/1.tif"):
        [masks[i] for i in range(len(masks))]
    assert "maskA/sub/1.tif" in train.failure


def test_stacks_of_images_have_stacks_of_masks(tmp_path):
    for domain in "AB":
        for folder, values in ((f"train{domain}", range(1, 7)), (f"mask{domain}", (0, 1, 0, 1, 1, 1))):
            first, *others = (Image.new("L", (SIDE, SIDE), value) for value in values)
            (tmp_path / folder).mkdir()
            first.save(tmp_path / folder / "scan.tif", save_all=True, append_images=others)
    domains = load(tmp_path, stacks="all", channels_x=1, channels_y=1)
    assert [mask[0, 0, 0] for mask in map(domains.train_x.masks.load, range(5))] == [0, 1, 0, 1, 1]
    assert domains.train_x.masks.names[1] == "scan.tif[1]"
