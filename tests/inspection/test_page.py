import html
import os
import re

import pytest
from PIL import Image

from cyclegan.errors import UserError
from cyclegan.inspection import page
from tests.inspection.datasets import inspect, planted_folder, save, sound_folder, texture
from tests.run.reports import MARKUP

IMAGES = """Promise.all([...document.querySelectorAll('img')].map(async image => {
    image.loading = 'eager'; await image.decode(); return image.alt; }))"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Return (path of the page, expected findings) of a folder with one defect of each kind."""
    folder = tmp_path_factory.mktemp("planted")
    expected = planted_folder(folder)
    page.check_folder(folder / "report", folder)
    return page.write(folder / "report", inspect(folder)), expected


def test_page_is_self_contained(planted):
    text = planted[0].read_text(encoding="utf-8")
    assert sorted(os.listdir(planted[0].parent)) == ["images", "index.html"] and "{{" not in text
    assert not re.search(r"https?:|//\w|@import|url\(|<script", text)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; img-src 'self' file:;") and "unsafe" not in policy
    assert text.count("<section") == len(planted[1]) and "cut.jpg (" in text


def test_browser_shows_the_images_concerned(browser, planted):
    path, expected = planted
    browser.open(path, width=700)
    names = [name.split(" (")[0] for name in browser.js(IMAGES)]
    shown = [group for title, group in expected.items() if title != "unreadable files"]
    assert names == [name for groups in shown for group in groups for name in group]
    assert browser.problems() == []
    titles = browser.js("[...document.querySelectorAll('h2')].map(e => e.textContent.split(':')[0])")
    assert titles == list(expected)
    assert browser.js("getComputedStyle(document.querySelector('.group')).display") == "flex"  # the style is allowed
    assert browser.js("document.documentElement.scrollWidth") <= 700
    browser.js("document.querySelector('nav li:nth-child(4) a').click()")
    assert browser.js("document.querySelector(':target h2').textContent").startswith("duplicates: 2 images in 1 group")


def test_names_cannot_break_out_of_the_markup(browser, tmp_path):
    sound_folder(tmp_path)
    for name in (MARKUP, "two\nlines.png", "caf\udce9.png"):
        save(Image.new("RGB", (64, 64)), tmp_path / "trainA" / name, format="png")
    page.check_folder(tmp_path / "a&b", tmp_path)
    path = page.write(tmp_path / "a&b", inspect(tmp_path))
    text = path.read_bytes().decode("utf-8")
    assert "<img src=x" not in text and html.escape(MARKUP) in text and "two\\nlines" in text
    browser.open(path)
    assert sorted(browser.js(IMAGES)) == sorted([f"trainA/{MARKUP}", "trainA/two\\nlines.png", "trainA/caf\\udce9.png"])
    assert browser.problems() == []


def test_images_beyond_the_limit_are_listed(tmp_path, monkeypatch):
    sound_folder(tmp_path)
    for i in range(4):
        save(texture(900), tmp_path / "trainA" / f"copy{i}.png")
    monkeypatch.setattr(page, "MAX_IMAGES", 3)
    page.check_folder(tmp_path / "report", tmp_path)
    text = page.write(tmp_path / "report", inspect(tmp_path)).read_text(encoding="utf-8")
    assert len(os.listdir(tmp_path / "report/images")) == text.count("<img") == 3
    assert "<summary>1 not shown</summary><ul><li>trainA/copy3.png</li></ul>" in text


def test_folders_of_pages_are_checked(tmp_path):
    sound_folder(tmp_path / "data")
    with pytest.raises(UserError, match="lies among the images; expected a folder outside of trainA"):
        page.check_folder(tmp_path / "data/trainA/report", tmp_path / "data")
    assert not (tmp_path / "data/trainA/report").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="expected a folder that can be written to"):
        page.check_folder(tmp_path / "file", tmp_path / "data")
