"""Films in the folders of a dataset."""

import numpy as np
import pytest
import tifffile

from cyclegan.errors import UserError
from tests.data.image_folders import load, save, stack
from tests.images.film_samples import number_of, write_film
from tests.inspection.datasets import inspect

pytest.importorskip("av")


def test_one_in_some_frames_is_an_image(tmp_path):
    for name in ("a.mp4", "b.mkv", "c.mp4"):
        write_film(tmp_path / "trainA" / name, sound=False)
    write_film(tmp_path / "trainB" / "a.mp4", 30)
    save(tmp_path / "testB" / "flat.png", size=(32, 32))
    pages = np.zeros((2, 32, 32), np.uint8)
    tifffile.imwrite(tmp_path / "trainB" / "pages.tif", pages, photometric="minisblack")
    domains = load(tmp_path, image_size=32, load_size=32, film_every=4)
    assert domains.train_x.names == [f"trainA/{name}[{number}]" for name in ("a.mp4", "b.mkv") for number in (0, 4, 8)]
    assert domains.test_x.names == [f"trainA/c.mp4[{number}]" for number in (0, 4, 8)]  # a whole film
    assert [number_of(image) for image in stack(domains.train_x)] == [0, 4, 8, 0, 4, 8]
    assert len(domains.train_y) == 9 and domains.test_y.names == ["testB/flat.png"]
    assert {"trainA: 6 images in 2 files", "trainB: 9 images in 2 files"} <= {*domains.notes}
    assert any(note.startswith("trainB: 1 file with several pages") for note in domains.notes)
    later = load(tmp_path, image_size=32, load_size=32, film_every=4, cache="none")
    for index in np.random.default_rng(0).permutation(9):
        np.testing.assert_array_equal(later.train_y[index], domains.train_y[index])


def test_a_single_film_beside_images_is_divided_with_a_remark(tmp_path):
    for domain in "AB":
        write_film(tmp_path / f"train{domain}" / "walk.mp4", 20)
        for i in range(4):
            save(tmp_path / f"train{domain}" / f"{i}.png", size=(32, 32))
    domains = load(tmp_path, film_every=5)
    assert "trainA/walk.mp4[15]" in domains.test_x.names and len(domains.test_x) == 2
    assert "trainA/walk.mp4[10]" in domains.train_x.names and len(domains.train_x) == 6
    text = "1 of 4 images of trainA and the last 1 of 4 images of trainA/walk.mp4 (like those before them) are held out"
    assert text in domains.notes[0]


def test_the_end_of_a_single_film_is_held_out(tmp_path):
    for domain in "AB":
        write_film(tmp_path / f"train{domain}" / "a.mp4", 20)
    domains = load(tmp_path, film_every=5)
    assert domains.train_x.names == [f"trainA/a.mp4[{number}]" for number in (0, 5, 10)]
    assert domains.test_x.names == ["trainA/a.mp4[15]"]
    found = inspect(tmp_path, film_every=5, image_size=32, load_size=32)
    assert len(found.names) == 8 and "trainB: 3 images in 1 file" in found.notes
    assert not [finding.kind.title for finding in found.findings if finding.kind.title == "wrong file name extensions"]
    (tmp_path / "trainB" / "a.mp4").write_bytes(b"<html>")
    (tmp_path / "trainA" / "b.png").write_bytes(b"<html>")  # all are named at once
    named = r"2 of \d+ images cannot be used.*trainA/b.png, .*trainB/a.mp4\[0\] .HTML, not an image"
    with pytest.raises(UserError, match=named):
        load(tmp_path)


def test_an_image_or_a_film_is_the_mask_of_a_film(tmp_path):
    for domain in "AB":
        for name in ("a.mp4", "b.mp4"):
            write_film(tmp_path / f"train{domain}" / name, sound=False)
    save(tmp_path / "maskA" / "a.png", (0, 0, 0), (32, 32))
    write_film(tmp_path / "maskA" / "b.mp4", sound=False)
    domains = load(tmp_path, image_size=32, load_size=32, film_every=4)
    inside = {}
    for images in (domains.train_x, domains.test_x):
        inside.update(zip(images.names, (images.masks[i].any() for i in range(len(images)))))
    assert inside == {f"trainA/{name}.mp4[{i}]": name == "b" for name in "ab" for i in (0, 4, 8)}
