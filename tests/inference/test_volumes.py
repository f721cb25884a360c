"""Translation of volumes and stacks into files of the same kind."""

import re

import numpy as np
import pytest
import tensorflow as tf
import tifffile
from PIL import Image

from cyclegan.errors import UserError
from cyclegan.images import reader
from cyclegan.inference.translate_files import translate
from tests.inference.arrays import files
from tests.inference.test_value_ranges import SameImage, both

nibabel = pytest.importorskip("nibabel")

CT = np.random.default_rng(0).integers(-1000, 2000, (20, 24, 18)).astype(np.int16)
AFFINE = np.array([[0.0, 0, -2, 30], [1.5, 0, 0, -40], [0, -1.5, 0, 50], [0, 0, 0, 1]])


def nifti(path, values=CT, **header):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(values, AFFINE)
    image.set_sform(AFFINE, "scanner")
    for name, value in header.items():
        image.header[name] = value
    nibabel.save(image, path)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_a_nifti_volume_keeps_affine_header_and_type(tmp_path, ending, axis):
    nifti(tmp_path / "in" / f"a.{ending}", descrip=b"of a scanner", cal_max=400)
    model = SameImage(**both("-1000:2000"))
    report = translate(model, tmp_path / "in", tmp_path / "out", batch_size=4, slice_axis=axis)
    assert (report.done, report.failed, report.images) == (1, [], {None: 24, 0: 18, 1: 20}[axis])
    assert not reader._opened_files  # nor the memory of an unpacked volume
    before, after = (nibabel.load(tmp_path / folder / f"a.{ending}") for folder in ("in", "out"))
    np.testing.assert_array_equal(np.asanyarray(after.dataobj), CT)
    np.testing.assert_array_equal(after.affine, AFFINE)
    differing = [name for name in before.header if before.header[name].tobytes() != after.header[name].tobytes()]
    assert differing == ["cal_max"] and files(tmp_path / "out") == [f"a.{ending}"]  # nothing temporary is left


def test_types_hold_the_values(tmp_path):
    small = np.random.default_rng(0).integers(0, 255, (6, 7, 8)).astype(np.uint8)
    masked = CT.astype(np.float32)
    masked[:5, 3:] = np.nan  # outside of the brain
    for name, values in (("a", small), ("b", CT), ("c", masked), ("d", small.astype(np.float64))):
        nifti(tmp_path / "in" / f"{name}.nii", values)
    model = SameImage(value_range_x="-1000:2000", value_range_y="0:1")
    assert translate(model, tmp_path / "in", tmp_path / "out").done == 4
    for name, expected in (("a", np.float32), ("b", np.int16), ("c", np.float32), ("d", np.float64)):
        before, after = (nibabel.load(tmp_path / folder / f"{name}.nii") for folder in ("in", "out"))
        assert after.get_data_dtype() == expected
        scaled = (before.get_fdata() + 1000) / 3000
        np.testing.assert_allclose(after.get_fdata(), np.clip(scaled, 0, 1), atol=3e-5)


def test_a_resized_volume_fills_the_same_space(tmp_path):
    nifti(tmp_path / "a.nii.gz")
    translate(SameImage(**both("-1000:2000")), tmp_path / "a.nii.gz", tmp_path / "b.nii", size=(9, 12), stacks="all")
    after = nibabel.load(tmp_path / "b.nii")
    assert after.shape == (12, 24, 9)
    for corner, old in (((-0.5, -0.5, -0.5), (-0.5, -0.5, -0.5)), ((11.5, 23.5, 8.5), (19.5, 23.5, 17.5))):
        np.testing.assert_allclose(after.affine @ [*corner, 1], AFFINE @ [*old, 1])
    assert after.header["sform_code"] == 1


@pytest.mark.parametrize("axis, shape", [(None, (50, 33)), (0, (20, 50, 33)), (1, (50, 24, 33))])
def test_a_flat_volume_may_be_resized_along_any_axis(tmp_path, axis, shape):
    nibabel.save(nibabel.Nifti1Image(CT[:, :, 0], np.eye(4)), tmp_path / "a.nii")
    model = SameImage(**both("-1000:2000"))
    assert translate(model, tmp_path / "a.nii", tmp_path / "b.nii", size=(50, 33), slice_axis=axis).failed == []
    assert nibabel.load(tmp_path / "b.nii").shape == shape


MICRONS = {"PhysicalSizeX": 0.25, "PhysicalSizeY": 0.25, "PhysicalSizeZ": 1.5}
TIFFS = {
    "a.ome.tif": ("TZYX", {"ome": True, "metadata": {**MICRONS, "PhysicalSizeZUnit": "µm"}}),
    "channels.ome.tif": ("CZYX", {"ome": True, "metadata": {**MICRONS, "Channel": {"Name": ["DAPI", "a < b"]}}}),
    "b.tif": ("TZYX", {"imagej": True, "resolution": (4, 4), "metadata": {"unit": "um", "spacing": 1.5}}),
    "channels.tif": ("ZCYX", {"imagej": True, "metadata": {}}),
    "cyx.ome.tif": ("CYX", {"ome": True, "metadata": {**MICRONS, "Channel": {"Name": ["DAPI", "a < b"]}}}),
    "cyx.tif": ("CYX", {"imagej": True, "resolution": (4, 4), "metadata": {"unit": "um"}}),
    "c.tif": ("ZYX", {"metadata": {}}),
    "d.tif": ("QYX", {"metadata": None, "compression": "zlib", "resolution": (300, 300)}),
    "rgb.ome.tif": ("ZYXS", {"ome": True, "metadata": MICRONS}),
}


@pytest.mark.parametrize("name", TIFFS)
def test_a_tiff_stack_keeps_axes_and_sizes(tmp_path, name):
    axes, options = TIFFS[name]
    lengths = {"T": 2, "Z": 3, "C": 2, "Q": 4, "Y": 16, "X": 20, "S": 3}
    values = np.random.default_rng(0).integers(0, 255, [lengths[axis] for axis in axes]).astype(np.uint8)
    if options["metadata"] is not None:
        options = {**options, "metadata": {**options["metadata"], "axes": axes}}
    tifffile.imwrite(tmp_path / name, values, photometric="rgb" if "S" in axes else "minisblack", **options)
    model = SameImage(channels=lengths.get(axes[-1] if "S" in axes else "C" if "C" in axes else "", 1))
    stacks = "first" if name.startswith("cyx") else "all"
    report = translate(model, tmp_path, tmp_path / "out", stacks=stacks)
    assert (report.done, report.cut, report.failed) == (1, 0, [])
    with tifffile.TiffFile(tmp_path / name) as before, tifffile.TiffFile(tmp_path / "out" / name) as after:
        assert (after.is_ome, after.is_imagej) == (before.is_ome, before.is_imagej)
        assert after.series[0].axes.replace("I", "Q") == before.series[0].axes.replace("I", "Q")
        np.testing.assert_array_equal(after.series[0].asarray(), values)
        for size in ("PhysicalSizeX", "PhysicalSizeZ"):
            assert (after.ome_metadata or "").count(f'{size}="') == (before.ome_metadata or "").count(f'{size}="')
        names = [re.findall('<Channel[^>]* Name="([^"]*)"', each.ome_metadata or "") for each in (before, after)]
        assert names[0] == names[1] and len(names[0]) == 2 * (axes[0] == "C" and "ome" in options)
        if before.is_imagej:
            shown = {"unit", "spacing", "channels", "slices", "frames"}
            found = [{key: meta.get(key) for key in shown} for meta in (before.imagej_metadata, after.imagej_metadata)]
            assert found[0] == found[1]
        assert after.pages[0].resolution == before.pages[0].resolution


def test_arrays_keep_their_axes_and_other_stacks_become_arrays(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    values = np.random.default_rng(0).integers(0, 255, (4, 16, 20, 3)).astype(np.uint8)
    np.save(folder / "a.npy", values)
    np.savez(folder / "b.npz", image=values)
    np.save(folder / "c.npy", values[0])
    np.savez(folder / "flat.npz", x=values[0])
    Image.fromarray(values[0]).save(folder / "d.gif", save_all=True, append_images=[Image.fromarray(values[1])])
    report = translate(SameImage(channels=3), folder, tmp_path / "out", stacks="all")
    assert report.done == 4 and "d.gif (2 images don't fit into a file of gif: expected --form" in report.failed[0]
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "a.npy"), values)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "b.npz")["image"], values)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "c.npy"), values[0])
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "flat.npz")["x"], values[0])
    assert translate(SameImage(channels=3), folder / "d.gif", tmp_path / "all", format="npy", stacks="all").done == 1
    assert np.load(tmp_path / "all" / "d.npy").shape == (2, 16, 20, 3)
    volume = values[..., 0]
    np.save(folder / "c.npy", volume)
    translate(SameImage(), folder / "c.npy", tmp_path / "slices", stacks="all", slice_axis=2)
    np.testing.assert_array_equal(np.load(tmp_path / "slices" / "c.npy"), volume)


def test_the_setting_of_the_run_decides_and_pages_must_be_alike(tmp_path):
    (tmp_path / "in").mkdir()
    with tifffile.TiffWriter(tmp_path / "in" / "a.tif") as writer:
        for side in (16, 20):
            writer.write(np.full((side, side), side, np.uint8), photometric="minisblack")
    report = translate(SameImage(), tmp_path / "in", tmp_path / "first")
    assert (report.done, report.cut) == (1, 1) and reader.count(tmp_path / "first" / "a.tif") == 1
    report = translate(SameImage(stacks="all"), tmp_path / "in", tmp_path / "all")
    assert report.done == 0 and "images differ in size or depth: expected equal ones, or --stacks" in report.failed[0]
    assert translate(SameImage(stacks="all"), tmp_path / "in", tmp_path / "all", size=(8, 8), html=True).images == 2
    with pytest.raises(UserError, match="--slice_axis 1: expected --stacks all, too"):
        translate(SameImage(), tmp_path / "in", tmp_path / "axis", slice_axis=1)
    with pytest.raises(UserError, match="expected a NIFTI file as original, or --format tiff"):
        translate(SameImage(), tmp_path / "in" / "a.tif", tmp_path / "c.nii")


def test_a_stack_has_a_stack_of_masks(tmp_path):
    values = np.random.default_rng(0).integers(1, 255, (4, 16, 20)).astype(np.uint8)
    masks = (values > 99).astype(np.uint8)
    for folder, stack in (("in", values), ("masks", masks), ("short", masks[:3])):
        (tmp_path / folder).mkdir()
        tifffile.imwrite(tmp_path / folder / "a.tif", stack, photometric="minisblack")
    model = SameImage(stacks="all")
    inverted = tf.keras.Input((None, None, 1))
    model.generators["x2y"] = tf.keras.Model(inverted, -inverted)
    translate(model, tmp_path / "in", tmp_path / "out", masks=tmp_path / "masks", batch_size=3)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "out" / "a.tif"), np.where(masks, 255 - values, values))
    for name, volume, settings in (("b.nii.gz", CT[..., :3].astype(np.uint8), {}), ("c.nii", CT * 3, both("-99:99"))):
        inside = np.arange(volume.size).reshape(volume.shape) % 3 == 0
        nifti(tmp_path / "nifti" / name, volume)
        nifti(tmp_path / "masks" / name, inside.astype(np.uint8))
        model.config = SameImage(**settings).config
        report = translate(model, tmp_path / "nifti" / name, tmp_path / name, masks=tmp_path / "masks")
        found = np.asanyarray(nibabel.load(tmp_path / name).dataobj)
        assert report.done == 1 and found.dtype == volume.dtype
        np.testing.assert_array_equal(found[~inside], volume[~inside])
        assert (found != volume)[inside].mean() > 0.9
    report = translate(model, tmp_path / "in", tmp_path / "none", masks=tmp_path / "short", stacks="all")
    assert "4 images, but its mask has 3: expected equal numbers" in report.failed[0]
