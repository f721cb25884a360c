"""The HTML report in headless Chromium, if it is installed."""

import json
import re
import time

import pytest

from cyclegan.run import html_report
from cyclegan.run.html_report import Frame, Item
from tests.run.reports import MARKUP, ODD, image_file, sample

NAMES = "[...document.querySelectorAll('bdi')].map(e => e.textContent).join()"
SOURCES = "[...document.querySelectorAll('ol img')].map(e => decodeURI(e.getAttribute('src'))).join()"


def test_loads_and_shows_all_images(browser, report):
    browser.open(report)
    assert browser.widths() == [32] * 12 and browser.problems() == []
    assert browser.js("document.title") == "a run"
    assert browser.js(NAMES) == "a,b,c,d"
    assert browser.js("[...document.querySelectorAll('li.item:nth-child(1) img')].map(e => e.alt)") == [
        "input: a", "output: a, epoch 30", "cycle: a, epoch 30"
    ]  # fmt: skip
    assert browser.js("document.querySelector('.scores').textContent") == "cycle error 10"
    assert browser.js("document.querySelectorAll('.scores')[2].textContent") == "cycle error 0.0313"


def test_slider_chooses_the_epoch(browser, report):
    browser.open(report)
    browser.js("find('#epoch').focus()")
    output = "document.querySelector('output').textContent"
    assert browser.js(output) == "30" and browser.js(SOURCES).startswith("in/a,30/a out,30/a back,in/b,30/b out")
    browser.press("ArrowLeft")
    assert browser.js(output) == "20" and browser.js(SOURCES).startswith("in/a,20/a out,20/a back,in/b,20/b out")
    assert browser.js("document.querySelectorAll('img')[1].alt") == "output: a, epoch 20"
    assert browser.js("document.querySelector('.scores').textContent") == "cycle error 20"
    browser.press("Home")
    assert browser.js(output) == "10" and browser.js("find('#epoch').getAttribute('aria-valuetext')") == "epoch 10"
    assert browser.widths() == [32] * 12 and browser.problems() == []


def test_missing_epoch_shows_the_previous_one(browser, tmp_path):
    items = [sample(tmp_path, "all", (1, 2, 3)), sample(tmp_path, "some", (4, 5), epochs=(20, 40))]
    browser.open(html_report.write(tmp_path, "t", items))
    shown = []
    for _ in range(4):
        shown.append(re.findall(r"(\d+)/\w+ out", browser.js(SOURCES)))
        browser.press("-")
    assert shown == [["30", "40"], ["30", "20"], ["20", "20"], ["10", "20"]]


def choose(browser, name, option):
    browser.js(f"find('#{name}').value = {json.dumps(option)}; find('#{name}').dispatchEvent(new Event('change'))")
    assert browser.js(f"find('#{name}').value") == option
    return browser.js(NAMES)


def test_sorting_and_filtering(browser, report):
    browser.open(report)
    assert browser.js("[...find('#sort').options].map(o => o.value)") == [
        "order", "order, reversed", "name, A to Z", "name, Z to A",
        "cycle error, lowest first", "cycle error, highest first",
    ]  # fmt: skip
    assert choose(browser, "sort", "cycle error, lowest first") == "c,a,d,b"
    assert choose(browser, "sort", "cycle error, highest first") == "b,d,a,c"
    browser.press("-")  # epoch 20, where a and b are even
    assert browser.js(NAMES) == "c,a,b,d"
    assert choose(browser, "direction", "Y → X") == "c,d"
    assert browser.js("document.querySelector('[role=status]').textContent") == "2 of 4 shown"
    assert choose(browser, "direction", "") == "c,a,b,d"
    assert choose(browser, "sort", "name, Z to A") == "d,c,b,a" and choose(browser, "sort", "order") == "a,b,c,d"


def test_names_sort_by_number_and_missing_scores_last(browser, tmp_path):
    items = [sample(tmp_path, f"x{i}", (i,), epochs=(0,)) for i in (10, 9)]
    items.append(Item("x1", "X → Y", image_file(tmp_path, "1.png"), [Frame(image_file(tmp_path, "1.png"))]))
    browser.open(html_report.write(tmp_path, "t", items))
    assert choose(browser, "sort", "name, A to Z") == "x1,x9,x10"
    assert choose(browser, "sort", "cycle error, lowest first") == "x9,x10,x1"
    assert choose(browser, "sort", "cycle error, highest first") == "x10,x9,x1"
    hidden = [f"document.querySelector('{part}').closest('label').hidden" for part in ("#epoch", "#direction")]
    assert all(map(browser.js, hidden))  # there is nothing to choose


def test_keys_step_through_enlarged_images(browser, report):
    browser.open(report)
    caption, large = "find('#caption').textContent", "find('dialog img').naturalWidth > 0"
    browser.js("document.querySelectorAll('ol button')[3].focus()")
    browser.press("Enter")
    seen = [browser.js(caption)]
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "-", "ArrowDown"):
        browser.press(key)
        seen.append(browser.js(caption))
    assert seen == [
        "input: b (X → Y)", "output: b, epoch 30 (X → Y)", "cycle: b, epoch 30 (X → Y)", "input: b (X → Y)",
        "cycle: b, epoch 30 (X → Y)", "cycle: b, epoch 20 (X → Y)", "cycle: c, epoch 20 (Y → X)",
    ]  # fmt: skip
    assert browser.js(f"find('dialog img').decode().then(() => {large})")
    browser.press("Escape")
    browser.wait_for(False, "find('dialog').open")
    browser.js("document.querySelectorAll('ol button')[1].click()")
    assert browser.js("find('dialog').open") and browser.js(caption) == "output: a, epoch 20 (X → Y)"
    browser.js("find('[data-key=Escape]').click()")
    assert not browser.js("find('dialog').open") and browser.problems() == []


def test_odd_names_are_shown_as_text(browser, tmp_path):
    items = []
    for i, odd in enumerate(ODD):
        paths = [image_file(tmp_path, f"{i}{kind} {odd.replace('/', '_')}") for kind in "ioc"]
        items.append(Item(odd, "X → Y", paths[0], [Frame(*paths[1:], {odd: 1.0})]))
    browser.open(html_report.write(tmp_path, MARKUP, items, [MARKUP]))
    assert browser.widths() == [32] * 3 * len(ODD) and browser.problems() == []
    names = browser.js("[...document.querySelectorAll('bdi')].map(e => e.textContent)")
    assert names[:4] == [*ODD[:2], "two\\nlines", "caf\\udce9"] and names[5:] == ODD[5:]
    assert browser.js("document.title") == browser.js("find('h1').textContent") == MARKUP
    assert browser.js("find('.notes li').textContent") == MARKUP


@pytest.mark.parametrize("width", [320, 1000, 1400])
def test_fits_the_window(browser, tmp_path, width):
    long = "n" * 200
    items = [
        Item(long, "X → Y", "i", [Frame("o", "c", {"a rather long name of a score": 1 / 3}, i) for i in range(200)])
    ]
    browser.open(html_report.write(tmp_path, long, items, [long]), width)
    assert browser.js("document.documentElement.scrollWidth") <= width
    widths = "['.images', 'h2'].map(part => find('ol ' + part).getBoundingClientRect().width)"
    images, card = browser.js(widths)
    assert images == card  # without a gap at the right
    browser.open(html_report.write(tmp_path, long, []), width)
    assert browser.problems() == []  # without an image


def test_peaks_above_the_axis_are_marked(browser, tmp_path):
    values = [[epoch, 1.0 + (epoch == 30) * 99] for epoch in range(1, 101)]
    lines = {"train": values, "test": [[1, 2.0]], "steps": []}
    progress = {"state": "finished", "epoch": 100, "epochs": 100, "step": "100", "left": "", "speed": "", "time": 0}
    curves = [{"group": "losses", "title": "G loss", "lines": lines}]
    run = {"progress": progress, "curves": curves, "settings": {}, "log": []}
    browser.open(html_report.write(tmp_path, "t", [], run=run))
    peaks = browser.js("['train', 'test'].map(e => find(`path.peak.${e}`).getAttribute('d').split('M').length - 1)")
    assert peaks == [1, 1]  # the axis ends at the lowest value
    assert browser.js("find('#curves figcaption').textContent").endswith("▲ above the axis, up to 100")


@pytest.mark.parametrize("width", [390, 1400])
def test_changes_of_settings_are_listed_and_drawn_within_the_curves(browser, tmp_path, width):
    lines = {"train": [[epoch, 1 / epoch] for epoch in range(1, 5)], "test": [], "steps": []}
    progress = {"state": "finished", "epoch": 4, "epochs": 4, "step": "4", "left": "", "speed": "", "time": 0}
    curves = [{"group": group, "title": "G loss", "lines": lines} for group in ("errors", "losses")]
    changes = [[0, "lr 1 -> 2 after epoch 0"], [2, MARKUP], [4, "c" * 300], [9, "d"]]
    for shown, drawn in ((changes, ["M171.0 8V130", "M292.0 8V130"] * 2), ([], [])):
        run = {"progress": progress, "curves": curves, "changes": shown, "settings": {}, "log": []}
        browser.open(html_report.write(tmp_path, "t", [], run=run), width)
        assert browser.js("[...document.querySelectorAll('path.change')].map(e => e.getAttribute('d'))") == drawn
        assert browser.js("[...document.querySelectorAll('#changes li')].map(e => e.textContent)") == [
            text for _, text in shown
        ]
        assert browser.js("find('#changes').getBoundingClientRect().height > 0") == bool(shown)
        assert browser.js("document.documentElement.scrollWidth") <= width and browser.problems() == []


@pytest.mark.parametrize(
    "values, axis",
    [
        ([10.0, 10.1, 10.0], ["9.8", "10.1", "10.3"]),
        ([0.0, 0.0], ["-5e-4", "0", "5e-4"]),
        ([1.0, 2.0], ["1", "1.5", "2"]),
    ],
)
def test_an_axis_is_not_so_narrow_that_noise_looks_steep(browser, tmp_path, values, axis):
    lines = {"train": [[epoch, value] for epoch, value in enumerate(values, 1)], "test": [], "steps": []}
    progress = {"state": "finished", "epoch": 3, "epochs": 3, "step": "3", "left": "", "speed": "", "time": 0}
    curves = [{"group": "losses", "title": "G loss", "lines": lines}]
    run = {"progress": progress, "curves": curves, "settings": {}, "log": []}
    browser.open(html_report.write(tmp_path, "t", [], run=run))
    assert browser.js("[...document.querySelectorAll('#curves text')].slice(0, 3).map(e => e.textContent)") == axis
    assert browser.js("find('#warnings').hidden")


@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_of_a_run_shows_curves_as_text_and_keeps_choices_over_a_reload(browser, tmp_path, width):
    lines = {"train": [[1, 2.0], [2, 1.0]], "test": [[2, 1.5]], "steps": []}
    curves = [{"group": group, "title": MARKUP, "lines": lines} for group in ("errors", "losses")]
    progress = {
        "state": "training",
        "epoch": 1.5,
        "epochs": 3,
        "step": "4",
        "left": "about 2 h",
        "speed": "",
        "time": time.time() if width == 390 else 0,
    }
    run = {
        "progress": progress,
        "curves": curves,
        "settings": {"dataset": MARKUP, "lr": "0.1"},
        "changed": 1,
        "log": [MARKUP, "second"],
        "warnings": [MARKUP, "w" * 300],
    }
    browser.open(html_report.write(tmp_path, "t", [sample(tmp_path, "a", (1, 2, 3))], run=run), width)
    written = "written " if width == 390 else "not written for "
    assert browser.js("find('#state').textContent").startswith(
        f"training · epoch 1.5 of 3 · step 4 · about 2 h left · {written}"
    )
    assert browser.js("[find('progress').value, find('progress').max]") == [1.5, 3]
    assert browser.js("[...find('#warnings').children].map(e => e.textContent)") == [MARKUP, "w" * 300]
    assert browser.js("find('#warnings').getBoundingClientRect().bottom < find('#curves').getBoundingClientRect().top")
    assert (
        browser.js("find('#log').textContent") == f"{MARKUP}\nsecond" and browser.js("find('dd').textContent") == MARKUP
    )
    assert browser.js("[...document.querySelectorAll('.changed')].map(e => e.textContent)") == [f"dataset {MARKUP}"]
    assert browser.js("find('#curves figcaption').textContent") == f"{MARKUP} training 1 held-out 1.5 "
    summaries = browser.js("[...document.querySelectorAll('#curves summary')].map(e => e.textContent)")
    assert summaries == ["errors: mean absolute difference of images in [-1, 1]", "losses (no unit)"]
    assert browser.js("[...document.querySelectorAll('details')].map(e => e.open)") == [True, False, False, False]
    assert browser.js("[...document.querySelectorAll('#curves path.train')].map(e => e.getAttribute('d').length > 9)")
    assert browser.js("document.documentElement.scrollWidth") <= width and browser.problems() == []
    browser.js("document.querySelectorAll('details')[1].open = true; slider.value = 0; setTimeout(reload, 50); 0")
    time.sleep(0.5)
    browser.wait_for("true 10", "document.querySelectorAll('details')[1].open + ' ' + find('output').textContent")
