import pytest

from cyclegan.config import Config
from cyclegan.data import sources
from cyclegan.inspection import summary
from tests.inspection.datasets import planted_folder, save, sound_folder, texture


def lines(folder, **settings):
    config = Config.from_settings(dataset=str(folder), **{"image_size": 48, "load_size": 64, **settings})
    return summary.lines(config.data, config.networks.multiple, sources.load_domains(config.data, 4))


def test_sound_images_give_no_line(tmp_path):
    assert lines(sound_folder(tmp_path)) == []


@pytest.mark.slow
def test_the_embedded_dataset_gives_no_line(stripes_dir):
    assert lines("stripes", data_dir=stripes_dir, image_size=32, load_size=32) == []


def test_planted_defects_give_at_most_five_lines(tmp_path):
    planted_folder(tmp_path)
    (tmp_path / "trainA/cut.jpg").unlink()
    for name in ("trainB/both.bmp", "trainB/copy2.tif"):
        (tmp_path / name).unlink()
    for source, copy in (("trainA/both.png", "trainB/both.png"), ("trainB/copy1.png", "trainB/copy2.png")):
        (tmp_path / copy).write_bytes((tmp_path / source).read_bytes())
    found = lines(tmp_path, channels_x=1, value_range_x="-5:300", value_range_y="auto")
    flags = "--image_size 48 --load_size 64 --channels_x 1 --value_range_x -5:300 --value_range_y 0:255"
    assert found == [
        "Data: images in both domains: 2 images in 1 group, for example trainA/both.png and trainB/both.png",
        "Data: images in training and test: 2 images in 1 group, for example trainA/leak.png and testA/leak.png",
        "Data: duplicates: 2 images in 1 group, for example trainB/copy1.png and trainB/copy2.png",
        "Data: images that are enlarged more than 1.5 times: 1 image, for example testA/small.png",
        f"Data: python scripts/inspect_data.py {tmp_path} {flags} explains these findings and looks for more",
    ]


def test_uncompressed_files_with_equal_ends_are_no_copies(tmp_path):
    sound_folder(tmp_path)
    for i in range(2):
        image = texture(900 + i)
        image.paste((0, 0, 0), (0, 0, 64, 40))  # BMP begins with the last row
        save(image, tmp_path / "trainA" / f"{i}.bmp")
    assert lines(tmp_path) == []
