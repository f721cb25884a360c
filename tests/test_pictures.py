import os

import numpy as np
import pytest
from PIL import Image

from cyclegan import pictures


def save(path, colour=(200, 100, 50), size=(20, 10), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)
    return path


@pytest.mark.parametrize("ending", ["jpg", "jpeg", "png", "bmp", "webp", "gif", "JPG", "PNG"])
def test_formats(tmp_path, ending):
    image = pictures.decode(save(tmp_path / f"a.{ending}", (200, 100, 50)))
    assert image.mode == "RGB" and image.size == (20, 10)
    assert np.abs(np.asarray(image).astype(int) - [200, 100, 50]).max() <= 6
    assert pictures.find(tmp_path) == [f"a.{ending}"]


def test_a_gif_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert pictures.decode(tmp_path / "a.gif").getpixel((4, 4)) == (255, 0, 0)


def test_kinds_of_pixels(tmp_path):
    def middle(*args, **options):
        return pictures.decode(save(tmp_path / "a.png", *args, **options)).getpixel((5, 5))

    assert middle(90, mode="L") == (90, 90, 90)
    assert middle(1, mode="1") == (255, 255, 255)
    assert middle((0, 0, 0, 0), mode="RGBA") == (255, 255, 255)  # transparent: the white behind it
    assert middle((200, 0, 0, 255), mode="RGBA") == (200, 0, 0)
    assert middle((10, 128), mode="LA") == (132, 132, 132)
    assert middle(257 * 90, mode="I;16") == (90, 90, 90)
    palette = Image.new("P", (10, 10), 1)
    palette.putpalette([0, 0, 0, 9, 8, 7])
    palette.save(tmp_path / "p.png")
    assert pictures.decode(tmp_path / "p.png").getpixel((5, 5)) == (9, 8, 7)
    palette.save(tmp_path / "t.png", transparency=1)
    assert pictures.decode(tmp_path / "t.png").getpixel((5, 5)) == (255, 255, 255)
    save(tmp_path / "c.jpg", (0, 0, 0, 0), mode="CMYK")
    assert min(pictures.decode(tmp_path / "c.jpg").getpixel((5, 5))) > 250


def test_exif_orientation_is_applied(tmp_path):
    image = Image.new("RGB", (20, 10))
    image.paste("white", (0, 0, 10, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it rotated by 90 degrees
    image.save(tmp_path / "a.jpg", exif=exif)
    upright = pictures.decode(tmp_path / "a.jpg")
    assert upright.size == (10, 20)
    assert upright.getpixel((5, 3))[0] > 200 and upright.getpixel((5, 16))[0] < 50


def test_sub_folders_count_and_hidden_and_other_files_do_not(tmp_path):
    for name in ("b/c.png", "b/d/e.JPG", "a.png", ".hidden.png", ".git/f.png", "__MACOSX/g.png", "b/._c.png"):
        save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "Thumbs.db").write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")  # would never end
    assert pictures.find(tmp_path) == ["a.png", "b/c.png", "b/d/e.JPG"]


def test_linked_folders_are_followed_once(tmp_path):
    save(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "data").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "data" / "link")
    os.symlink(tmp_path / "data", tmp_path / "elsewhere" / "loop")
    assert pictures.find(tmp_path / "data") == ["link/a.png"]
