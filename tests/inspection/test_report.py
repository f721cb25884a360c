"""Inspection as text, as a page, and in short at the start of training."""

import html
import os
import pathlib
import re

import numpy as np
import pytest
from PIL import Image

from cyclegan.config import Config
from cyclegan.data import sources
from cyclegan.errors import UserError
from cyclegan.inspection import report
from cyclegan.inspection.findings import CONSTANT, DUPLICATES, Finding
from cyclegan.inspection.inspection import MEASURES, Inspection
from tests.inspection.datasets import inspect, planted_folder, save, sound_folder, texture
from tests.run.reports import MARKUP

IMAGES = """Promise.all([...document.querySelectorAll('.group img')].map(async image => {
    image.loading = 'eager'; await image.decode(); return image.alt; }))"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Return (path of the page, expected findings) of a folder with one defect of each kind."""
    folder = tmp_path_factory.mktemp("planted")
    expected = planted_folder(folder)
    report.check_folder(folder / "report", folder)
    return report.write(folder / "report", inspect(folder)), expected


def test_page_is_self_contained(planted):
    text = planted[0].read_text(encoding="utf-8")
    assert sorted(os.listdir(planted[0].parent)) == ["images", "index.html"] and "{{" not in text
    assert not re.search(r"https?:|//\w|@import|url\(|<script", text)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; img-src 'self' file:;") and "unsafe" not in policy
    assert text.count('<section id="finding') == len(planted[1]) and "cut.jpg (" in text


def test_browser_shows_the_images_concerned(browser, planted):
    path, expected = planted
    browser.open(path, width=700)
    names = [name.split(" (")[0] for name in browser.js(IMAGES)]
    shown = [group for title, group in expected.items() if title != "unreadable files"]
    assert names == [name for groups in shown for group in groups for name in group]
    assert browser.problems() == []
    titles = browser.js("[...document.querySelectorAll('[id] h2')].map(e => e.textContent.split(':')[0])")
    assert titles == list(expected)
    assert browser.js("getComputedStyle(document.querySelector('.group')).display") == "flex"  # the style is allowed
    assert browser.js("document.documentElement.scrollWidth") <= 700
    browser.js("document.querySelector('nav li:nth-child(4) a').click()")
    assert browser.js("document.querySelector(':target h2').textContent").startswith("duplicates: 2 images in 1 group")


def test_names_cannot_break_out_of_the_markup(browser, tmp_path):
    sound_folder(tmp_path)
    for name in (MARKUP, "two\nlines.png", "caf\udce9.png"):
        save(Image.new("RGB", (64, 64)), tmp_path / "trainA" / name, format="png")
    report.check_folder(tmp_path / "a&b", tmp_path)
    path = report.write(tmp_path / "a&b", inspect(tmp_path))
    text = path.read_bytes().decode("utf-8")
    assert "<img src=x" not in text and html.escape(MARKUP) in text and "two\\nlines" in text
    browser.open(path)
    assert sorted(browser.js(IMAGES)) == sorted([f"trainA/{MARKUP}", "trainA/two\\nlines.png", "trainA/caf\\udce9.png"])
    assert browser.problems() == []


def test_images_beyond_the_limit_are_listed(tmp_path, monkeypatch):
    sound_folder(tmp_path)
    for i in range(4):
        save(texture(900), tmp_path / "trainA" / f"copy{i}.png")
    monkeypatch.setattr(report, "MAX_IMAGES", 3)
    report.check_folder(tmp_path / "report", tmp_path)
    text = report.write(tmp_path / "report", inspect(tmp_path)).read_text(encoding="utf-8")
    assert len([*(tmp_path / "report/images").glob("[0-9]*")]) == text.count('src="images/') - 2 * report.CROPS == 3
    assert "<summary>1 not shown</summary><ul><li>trainA/copy3.png</li></ul>" in text


def test_the_contact_sheet_leaves_out_unreadable_files(tmp_path):
    sound_folder(tmp_path)
    (tmp_path / "trainA" / "broken.png").write_bytes(b"no image")
    report.check_folder(tmp_path / "report", tmp_path)
    text = report.write(tmp_path / "report", inspect(tmp_path)).read_text(encoding="utf-8")
    report.check_folder(tmp_path / "report", tmp_path)  # another inspection may replace it
    assert "<h2>What the networks will see</h2>" in text and text.count('src="images/train') == 2 * report.CROPS


def test_folders_of_pages_are_checked(tmp_path):
    sound_folder(tmp_path / "data")
    (tmp_path / "images").mkdir()
    for name, what in (
        ("index.html", "another index.html"),
        ("config.json", "a run"),
        ("images/a", "files in images/"),
    ):
        (tmp_path / name).write_text("mine")
        with pytest.raises(UserError, match=f"holds {what}; expected a new folder, or one of an earlier inspection"):
            report.check_folder(tmp_path, tmp_path / "data")
        (tmp_path / name).unlink()
    with pytest.raises(UserError, match="lies among the images; expected a folder outside of trainA"):
        report.check_folder(tmp_path / "data/trainA/report", tmp_path / "data")
    assert not (tmp_path / "data/trainA/report").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="expected a folder that can be written to"):
        report.check_folder(tmp_path / "file", tmp_path / "data")


def inspection(*images, findings=(), notes=()):
    """Return an inspection of images: (split, height, width, kind, mean, deviation), or (split,) if unreadable."""
    measures = np.zeros(len(images), MEASURES)
    for row, (_, *values) in zip(measures, images):
        if values:
            row["readable"] = True
            row["height"], row["width"], row["kind"], row["mean"], row["deviation"] = values
    names, splits = [f"{i}.png" for i in range(len(images))], np.array([split for split, *_ in images])
    data = Config.from_settings().data
    return Inspection(pathlib.Path("data"), data, names, splits, measures, findings, notes, names)


def test_statistics_by_hand():
    found = inspection(
        (0, 10, 20, "RGB", 100, 0), (0, 20, 20, "L", 200, 0), (0, 30, 20, "RGB", 150, 0),
        (1, 30, 15, "RGB", (1, 2, 3), (4, 5, 6)), (2,),
    )  # fmt: skip
    # The pixels of trainA are 100, 200 and 150: their variance is (50**2 + 50**2 + 0) / 3 = 41**2.
    assert report.statistics(found) == [
        ["", "trainA", "trainB", "testA", "testB"],
        ["readable images", "3", "1", "0", "0"],
        ["width, pixels", "20", "15", "", ""],
        ["height, pixels", "10 20 30", "30", "", ""],
        ["width / height", "0.6667 1 2", "0.5", "", ""],
        ["bands", "RGB 2, L 1", "RGB", "", ""],
        ["mean", "150 150 150", "1 2 3", "", ""],
        ["deviation", "41 41 41", "4 5 6", "", ""],
    ]


def test_few_groups_and_few_images_of_a_group_are_named():
    image = (0, 8, 8, "RGB", 0, 0)
    groups = [[0, 1], [2, 3, 4, 5, 6], [7], [8]]
    findings = (Finding(DUPLICATES, groups, {0: "first"}), Finding(CONSTANT, [[9]]))
    lines = list(report.lines(inspection(*[image] * 10, findings=findings, notes=["a note"])))
    assert lines[lines.index(report.LEGEND) + 1 :] == [
        "a note",
        "",
        "1. duplicates: 9 images in 4 groups",
        "     0.png (first), 1.png",
        "     2.png, 3.png, 4.png, 5.png, ...",
        "     7.png",
        "     and 1 more: --html FOLDER writes a page of all of them",
        f"   {DUPLICATES.meaning}",
        f"   {DUPLICATES.advice}",
        "",
        "2. nearly constant images: 1 image",
        "     9.png",
        f"   {CONSTANT.meaning}",
        f"   {CONSTANT.advice}",
    ]


def lines(folder, **settings):
    config = Config.from_settings(dataset=str(folder), **{"image_size": 48, "load_size": 64, **settings})
    return report.short_lines(config.data, config.networks.multiple, sources.load_domains(config.data, 4))


def test_sound_images_give_no_line(tmp_path):
    assert lines(sound_folder(tmp_path)) == []


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
