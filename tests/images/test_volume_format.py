"""Slices of NIfTI files and NumPy arrays."""

import gzip
import io
import sys

import numpy as np
import pytest
import tifffile

from cyclegan.errors import UserError
from cyclegan.images import formats, reader, volume_format
from cyclegan.images.image import ImageError
from cyclegan.images.reader import Slice

nibabel = pytest.importorskip("nibabel")

# Orders and directions in which scanners store volumes: of an axial, a coronal and a sagittal acquisition.
AFFINES = {
    "RAS": np.diag([1.0, 1, 2, 1]),
    "LPS": np.diag([-1.0, -1, 2, 1]),
    "LSA": np.array([[-1.0, 0, 0, 3], [0, 0, 2, 4], [0, 1, 0, 5], [0, 0, 0, 1]]),
    "AIR": np.array([[0.0, 0, 2, 3], [1, 0, 0, 4], [0, -1, 0, 5], [0, 0, 0, 1]]),
}


def stack(path, channels=1, axis=None):
    """Return the values of all images of a file."""
    count = reader.count(path, channels, axis)
    slices = [Slice(str(path), number, axis) for number in range(count)]
    values = np.stack([reader.decode_values(each, channels).pixels for each in slices])
    assert {reader.check(each, channels, True)[1:3] for each in slices} == {values.shape[1:3]}
    return values


@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
@pytest.mark.parametrize("orientation", AFFINES)
def test_views_do_not_depend_on_how_a_volume_is_stored(tmp_path, orientation, ending):
    values = np.random.default_rng(0).integers(-1000, 2000, (4, 5, 6)).astype(np.int16)
    path = tmp_path / f"a.{ending}"
    nibabel.save(nibabel.Nifti1Image(values, AFFINES[orientation]), path)
    right = nibabel.as_closest_canonical(nibabel.load(path)).get_fdata()  # to the right, the front, up
    views = {
        2: np.moveaxis(right[::-1, ::-1], 2, 0).swapaxes(1, 2),  # rows to the back, columns to the left
        1: np.moveaxis(right[::-1, ::-1, ::-1], 1, 0).swapaxes(1, 2),  # rows down, columns to the left
        0: np.moveaxis(right[::-1, ::-1, ::-1], 0, 0).swapaxes(1, 2),  # rows down, columns to the back
    }
    for axis, view in views.items():
        np.testing.assert_array_equal(stack(path, axis=axis)[..., 0], view)
    np.testing.assert_array_equal(stack(path)[..., 0], views[2])
    np.testing.assert_array_equal(reader.decode_values(path, 1).pixels[..., 0], views[2][0])


def test_values_are_scaled_and_the_fourth_axis_is_time_or_channels(tmp_path):
    values = np.random.default_rng(0).integers(0, 250, (4, 5, 3, 2)).astype(np.uint8)
    path = tmp_path / "a.nii"
    nibabel.save(nibabel.Nifti1Image(values, AFFINES["LPS"]), path)
    assert reader.decode(path, 1).dtype == np.uint8  # needs no range
    np.testing.assert_array_equal(stack(path, 2), values.transpose(2, 1, 0, 3))
    np.testing.assert_array_equal(stack(path)[..., 0], values.transpose(3, 2, 1, 0).reshape(6, 5, 4))
    header = nibabel.load(path).header.copy()
    content = bytearray(path.read_bytes())
    content[112:120] = np.array([0.5, -20], "<f4").tobytes()  # slope and intercept
    path.write_bytes(content)
    image = reader.decode_values(path, 2)
    np.testing.assert_array_equal(image.pixels, values[:, :, 0].swapaxes(0, 1) * 0.5 - 20)
    assert image.fractional and header["dim"][0] == 4
    with pytest.raises(ImageError, match="uint8: expected .* --value_range_x"):
        reader.decode(path, 2)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_arrays(tmp_path, name, order):
    def save(*shape, dtype=np.uint8):
        values = np.random.default_rng(0).integers(0, 2, shape).astype(dtype, order=order)
        (np.save if name == "a.npy" else np.savez_compressed)(tmp_path / name, values)
        return values

    path = tmp_path / name
    values = save(6, 7)
    np.testing.assert_array_equal(reader.decode(path, 1)[..., 0], values)
    values = save(6, 7, 5)
    np.testing.assert_array_equal(reader.decode(path, 5), values)
    np.testing.assert_array_equal(stack(path, axis=1)[..., 0], values.swapaxes(0, 1))
    with pytest.raises(ImageError, match="bands: 5; expected gray or RGB .* or --slice_axis for a volume"):
        reader.decode(path)
    values = save(3, 6, 7, 3, dtype=">u2")
    np.testing.assert_array_equal(stack(path, 3), values)
    assert stack(path, 3).dtype == np.uint16
    values = save(6, 7, dtype=bool)
    np.testing.assert_array_equal(reader.decode(path, 1)[..., 0], 255 * values)
    values = save(6, 7, dtype=np.float16)
    np.testing.assert_array_equal(reader.decode(path, 1, np.uint16, (0, 1))[..., 0], 65535 * values.astype(int))


def test_a_compressed_volume_is_unpacked_once_and_kept_in_bounds(tmp_path, monkeypatch):
    unpacked, original = [], nibabel.arrayproxy.ArrayProxy.get_unscaled
    monkeypatch.setattr(
        nibabel.arrayproxy.ArrayProxy, "get_unscaled", lambda proxy: unpacked.append(1) or original(proxy)
    )
    for number in range(3):
        image = nibabel.Nifti1Image(np.full((8, 8, 8), number, np.uint8), np.eye(4))
        nibabel.save(image, tmp_path / f"{number}.nii.gz")
    for number in (0, 1, 0, 1):
        assert (stack(tmp_path / f"{number}.nii.gz") == number).all()
    assert len(unpacked) == 2
    monkeypatch.setattr(reader, "MAX_KEPT_BYTES", 2 * 512)
    for number in (2, 1, 0):  # the oldest one makes room
        stack(tmp_path / f"{number}.nii.gz")
    assert len(unpacked) == 4
    reader.close_files()
    stack(tmp_path / "0.nii.gz")
    assert len(unpacked) == 5
    monkeypatch.setattr(volume_format, "MAX_BYTES", 500)
    with pytest.raises(ImageError, match="a compressed array of 5.12e-07 GB: expected at most .* or an unpacked file"):
        reader.count(tmp_path / "0.nii.gz")


def test_the_values_of_a_volume_to_write_leave_no_file(tmp_path):
    with formats.scratch(tmp_path / "a.nii", (2, 3), np.int16) as array:
        array[:] = 7
        assert not list(tmp_path.iterdir()) and (array == 7).all()  # even if the process is killed now


def refused(content, channels=1):
    with pytest.raises(ValueError) as error:
        reader.decode(content, channels)
    return str(error.value)


def test_other_contents_are_refused():
    def npy(array):
        file = io.BytesIO()
        np.save(file, array)
        return file.getvalue()

    def npz(**arrays):
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    image = np.zeros((8, 8), np.uint8)
    assert reader.decode(npz(image=image, mask=image[:2]), 1).shape == (8, 8, 1)
    assert refused(npz(a=image, b=image)) == "an NPZ file of the arrays a, b: expected one array, or one named image"
    assert refused(npy(np.array([[{}]]))) == "a NPY file of a kind that cannot be decoded"
    assert "complex64" in refused(npy(image.astype(np.complex64)))
    assert "shape (8,)" in refused(npy(image[0])) and "shape (0, 8, 8, 1)" in refused(npy(np.zeros((0, 8, 8, 1))))
    assert refused(npy(image)[:-1]) == "a damaged NPY file: truncated"
    assert refused(npy(np.zeros((1, 1)))[:128].replace(b"(1, 1)", b"(9**9)")).startswith("a damaged NPY file")
    volume = nibabel.Nifti1Image(np.zeros((8, 8, 8), np.uint8), np.eye(4)).to_bytes()
    assert refused(volume[:-1]) == "a damaged NIFTI file: truncated"
    assert refused(gzip.compress(volume[:-1])) == "a damaged NIFTI file: truncated"
    packed = bytearray(gzip.compress(volume))
    packed[-6] ^= 1  # the checksum
    assert refused(bytes(packed)) == "a damaged NIFTI file: its pixels cannot be decoded"
    assert refused(gzip.compress(b"text")) == "a gzip file, not an image"


def test_nibabel_is_named_where_it_is_missing(tmp_path, monkeypatch):
    nibabel.save(nibabel.Nifti1Image(np.zeros((8, 8, 8), np.uint8), np.eye(4)), tmp_path / "a.nii.gz")
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(UserError, match="NIfTI files need the package nibabel: pip install nibabel"):
        reader.decode(tmp_path / "a.nii.gz", 1)


def test_pages_that_the_file_does_not_list_or_does_not_have(tmp_path):
    values = np.random.default_rng(0).integers(0, 255, (4, 6, 7)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack", truncate=True)  # as ImageJ above 4 GB
    np.testing.assert_array_equal(stack(tmp_path / "a.tif")[..., 0], values)
    tifffile.imwrite(tmp_path / "b.ome.tif", values, photometric="minisblack", metadata={"axes": "ZYX"})
    content = (tmp_path / "b.ome.tif").read_bytes()
    sizes = b'SizeX="7" SizeY="6" SizeC="1" SizeZ="4" SizeT="1"'
    promise = content.replace(sizes, b'SizeC="1" SizeZ="9999999999"'.ljust(len(sizes)))
    (tmp_path / "b.ome.tif").write_bytes(promise)
    assert promise != content and reader.count(tmp_path / "b.ome.tif") == 4
