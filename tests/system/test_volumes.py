"""Train on volumes and stacks, and translate them into volumes and stacks."""

import numpy as np
import pytest
import tifffile

import cyclegan
from cyclegan.cli import inspect_data, train
from tests.system.runs import TINY

nibabel = pytest.importorskip("nibabel")

AFFINE = np.array([[-1.5, 0, 0, 30], [0, 1.5, 0, -40], [0, 0, 3, 10], [0, 0, 0, 1]])
RANGES = ["--channels_x", 1, "--channels_y", 2, "--value_range_x", "-1000:1000", "--value_range_y", "0:4000"]


def write_data(folder):
    """Write NIfTI volumes as domain X, and OME-TIFF stacks of two channels as domain Y."""
    rng = np.random.default_rng(0)
    for split, count in (("trainA", 2), ("trainB", 2), ("testA", 1), ("testB", 1)):
        (folder / split).mkdir(parents=True)
        for number in range(count):
            if split.endswith("A"):
                values = rng.integers(-1000, 1000, (36, 32, 3)).astype(np.int16)
                nibabel.save(nibabel.Nifti1Image(values, AFFINE), folder / split / f"{number}.nii.gz")
            else:
                values = rng.integers(0, 4000, (3, 2, 32, 36)).astype(np.uint16)
                metadata = {"axes": "ZCYX", "PhysicalSizeZ": 1.5}
                tifffile.imwrite(folder / split / f"{number}.ome.tif", values, metadata=metadata)


def test_volumes_are_trained_on_and_translated(tmp_path, capsys):
    data, run = tmp_path / "data", tmp_path / "run"
    write_data(data)
    flags = list(map(str, [*RANGES, "--image_size", 32]))
    assert inspect_data.main([str(data), *flags]) == 0
    assert "2 files with several pages, slices or frames, for example trainA/0.nii.gz (3)" in capsys.readouterr().out
    assert inspect_data.main([str(data), *flags, "--stacks", "all"]) == 0
    assert "trainB: 6 images in 2 files" in capsys.readouterr().out
    more = ["--dataset", data, "--output_dir", run, "--epochs", 1, "--stacks", "all"]
    train.main([*TINY, *flags, *map(str, more)])
    report = cyclegan.translate(run, data / "testA", tmp_path / "out")
    assert (report.done, report.images, report.failed) == (1, 3, [])
    assert cyclegan.translate(run, data / "testB", tmp_path / "out", "y2x").images == 3
    volume = nibabel.load(tmp_path / "out" / "0.nii.gz")
    assert (volume.shape, volume.get_data_dtype()) == ((36, 32, 3, 2), np.int16)
    np.testing.assert_array_equal(volume.affine, AFFINE)
    with tifffile.TiffFile(tmp_path / "out" / "0.ome.tif") as file:
        assert (file.series[0].axes, file.series[0].shape) == ("ZYX", (3, 32, 36))
        assert 'PhysicalSizeZ="1.5"' in file.ome_metadata
