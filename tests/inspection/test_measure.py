import imagecodecs
import numpy as np
import pytest
from PIL import Image

from cyclegan.inspection.measure import MEASURES, measure
from tests.images.samples import deep_values, tiff_of
from tests.inspection.datasets import save, texture


def measured(source, channels=3):
    return np.array(measure(source, channels), MEASURES)


def test_colors_are_means_and_deviations_in_levels(tmp_path):
    pixels = np.zeros((2, 4, 3), np.uint8)
    pixels[0, :, 0], pixels[..., 1] = 200, 30
    image = measured(save(Image.fromarray(pixels), tmp_path / "a.png"))
    np.testing.assert_allclose(image["mean"], [100, 30, 0], rtol=1e-6)
    np.testing.assert_allclose(image["deviation"], [100, 0, 0], rtol=1e-6)
    assert image["colored"] and (image["height"], image["width"], image["format"]) == (2, 4, "PNG")
    deep = measured(imagecodecs.png_encode(pixels.astype(np.uint16) * 257))
    np.testing.assert_allclose(deep["mean"], image["mean"], rtol=1e-6)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1", "CMYK"])
def test_kinds_are_named(tmp_path, mode):
    path = save(texture(0).convert(mode), tmp_path / "a.tif")
    assert measured(path)["kind"] == mode


def test_kinds_of_deep_files_are_named():
    assert measured(tiff_of(deep_values(3)))["kind"] == "RGB 16 bit"
    assert measured(tiff_of(deep_values(5)), 5)["kind"] == "5 bands 16 bit"
    assert measured(imagecodecs.png_encode(deep_values(1).squeeze()))["kind"] == "L 16 bit"


def test_values_become_levels_with_a_range():
    values = np.array([[0, 1000], [4000, 5000]], np.float32)[..., None]
    image = np.array(measure(tiff_of(values), 3, (0.0, 4000.0)), MEASURES)
    np.testing.assert_allclose(image["mean"], 255 * (0 + 0.25 + 1 + 1) / 4, rtol=1e-4)
    with pytest.raises(ValueError, match="others need --value_range_x"):
        measure(tiff_of(values), 3)


def test_gray_jpeg_is_not_colored(tmp_path):
    gray = texture(0).convert("L").convert("RGB")
    assert not measured(save(gray, tmp_path / "a.jpg", quality=50))["colored"]


def test_hashes_tell_pixels_and_look(tmp_path):
    image = measured(save(texture(0), tmp_path / "a.png"))
    same = measured(save(texture(0), tmp_path / "b.bmp"))
    turned = measured(save(texture(0).transpose(Image.Transpose.ROTATE_90), tmp_path / "c.png"))
    assert image["pixels"] == same["pixels"] != turned["pixels"]
    assert image["look"] == same["look"] != turned["look"]
    halves = [np.zeros(shape, np.uint8) for shape in ((2, 8), (4, 4))]
    first, second = (measured(save(Image.fromarray(half), tmp_path / "d.png")) for half in halves)
    assert first["pixels"] != second["pixels"]
