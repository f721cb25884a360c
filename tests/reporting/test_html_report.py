"""The page, as files and in a real browser (headless Chromium, over a pipe), where there is one."""

import base64
import hashlib
import html
import json
import os
import re

import numpy as np
import pytest
from PIL import Image

from cyclegan.reporting import html_report
from cyclegan.reporting.html_report import Frame, Item

MARKUP = "<img src=x onerror=alert(1)>\"'&#%?.png"
ODD = [MARKUP, "</script><script>alert(1)</script>", "two\nlines", "caf\udce9", "\u2028<!--", "a:b\\c", "größe 馬.png"]


def picture(folder, name, value=128, size=(32, 32)):
    """Writes a flat PNG. Returns its name."""
    path = os.path.join(os.fsencode(folder), os.fsencode(name))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        Image.fromarray(np.full((*size, 3), value, np.uint8)).save(file, "png")
    return name


def sample(folder, name, errors, direction="X → Y", epochs=(10, 20, 30)):
    """An item with a frame for each of some cycle errors."""
    frames = [
        Frame(
            picture(folder, f"{epoch}/{name} out"),
            picture(folder, f"{epoch}/{name} back"),
            {"cycle error": error},
            epoch,
        )
        for epoch, error in zip(epochs, errors)
    ]
    return Item(name, direction, picture(folder, f"in/{name}"), frames)


@pytest.fixture
def training(tmp_path):
    """The page of a training run: two samples of each direction, three epochs. The cycle errors order them otherwise."""
    items = [sample(tmp_path, "a", (30, 20, 10)), sample(tmp_path, "b", (20, 20, 40))]
    items += [sample(tmp_path, "c", (5, 30, 0.03125), "Y → X"), sample(tmp_path, "d", (1, 2, 20), "Y → X")]
    return html_report.write(tmp_path, "a run", items, ["of the newest checkpoint"])


def data_of(path):
    (found,) = re.findall(
        r'<script type="application/json">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL
    )
    return json.loads(found)


NAMES = "[...document.querySelectorAll('bdi')].map(e => e.textContent).join()"
SOURCES = "[...document.querySelectorAll('ol img')].map(e => decodeURI(e.getAttribute('src'))).join()"
FOCUS = "document.activeElement.querySelector('bdi')?.textContent"


# ---- As files


def test_the_page_has_what_was_given_and_nothing_from_elsewhere(training):
    text = training.read_text(encoding="utf-8")
    assert training.name == "index.html" and sorted(os.listdir(training.parent)) == [
        "10",
        "20",
        "30",
        "in",
        "index.html",
    ]
    assert "<title>a run</title>" in text and "<li>of the newest checkpoint</li>" in text and "{{" not in text
    assert not re.search(r"https?:|//\w|\b(src|href)=|@import|url\(", text)
    first = data_of(training)["items"][0]
    assert (first["name"], first["direction"], first["input"]) == ("a", "X → Y", "in/a")
    frame = {"output": "20/a%20out", "cycle": "20/a%20back", "scores": {"cycle error": 20.0}, "epoch": 20}
    assert first["frames"][1] == frame


def test_nothing_runs_but_the_page_s_own_script(training):
    text = training.read_text(encoding="utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; img-src 'self' file:;") and "unsafe" not in policy
    for element in ("style", "script"):
        (content,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in html.unescape(policy)


@pytest.mark.parametrize("odd", ODD)
def test_nothing_breaks_out_of_the_data_or_the_markup(tmp_path, odd):
    path = html_report.write(tmp_path, odd, [Item(odd, odd, odd, [Frame(odd, scores={odd: 1.0})])], [odd])
    text = path.read_bytes().decode("utf-8")  # whatever the names are
    (found,) = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    assert not set("<>&\n\u2028\u2029") & set(found) and found.isascii()
    assert text.count("<script") == 2 and "<img src=x" not in text
    item = json.loads(found)["items"][0]
    assert item["name"] == odd.replace("\n", "\\n").replace("\u2028", "\\u2028").replace("\udce9", "\\udce9")
    assert re.fullmatch(r"[\w.~/%-]+", item["input"], re.ASCII)


def test_paths_become_relative_urls(tmp_path):
    urls = {"a b/c#d.png": "a%20b/c%23d.png", "50%?.png": "50%25%3F.png", "caf\udce9": "caf%E9", "a:b": "a%3Ab", "": ""}
    items = [Item("n", "X → Y", "i", [Frame("o", name)]) for name in urls]
    data = data_of(html_report.write(tmp_path, "t", items))
    assert [item["frames"][0]["cycle"] for item in data["items"]] == [*urls.values()]
    with pytest.raises(ValueError, match="/etc/x: expected a path relative to the page's folder"):
        html_report.write(tmp_path, "t", [Item("n", "X → Y", "/etc/x", [Frame("o")])])


@pytest.mark.parametrize(
    "size, aspect", [((20, 40), 2.0), ((40, 30), 0.75), ((10, 100), 2.0), ((100, 10), 0.5)]
)  # height, width
def test_a_picture_s_place_has_the_shape_of_the_first_one(tmp_path, size, aspect):
    items = [Item("n", "X → Y", picture(tmp_path, "i.png", size=size), [Frame("o.png")])]
    assert data_of(html_report.write(tmp_path, "t", items))["aspect"] == aspect
    (tmp_path / "i.png").write_bytes(b"damaged")
    assert data_of(html_report.write(tmp_path, "t", items))["aspect"] == 1.0
    assert data_of(html_report.write(tmp_path, "t", []))["aspect"] == 1.0


def test_the_page_is_written_whole_or_not_at_all(training, monkeypatch):
    before = training.read_bytes()
    with pytest.raises(ValueError):
        html_report.write(training.parent, "t", [Item("n", "X → Y", "i", [Frame("o", scores={"error": float("nan")})])])

    def full(path, *args, **kwargs):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(OSError, match="No space left"):
        html_report.write(training.parent, "t", [])
    assert training.read_bytes() == before and not (training.parent / "index.html.partial").exists()


# ---- In a browser


def test_it_loads_without_complaints_and_shows_every_picture(browser, training):
    browser.open(training)
    assert browser.widths() == [32] * 12 and browser.complaints() == []
    assert browser.js("document.title") == "a run"
    assert browser.js(NAMES) == "a,b,c,d"
    assert browser.js("[...document.querySelectorAll('li.item:nth-child(1) img')].map(e => e.alt)") == [
        "input: a", "output: a, epoch 30", "cycle: a, epoch 30"
    ]  # fmt: skip
    assert browser.js("document.querySelector('.scores').textContent") == "cycle error 10"
    assert browser.js("document.querySelectorAll('.scores')[2].textContent") == "cycle error 0.0313"


def test_the_slider_goes_through_the_epochs(browser, training):
    browser.open(training)
    browser.js("find('#epoch').focus()")
    output = "document.querySelector('output').textContent"
    assert browser.js(output) == "30" and browser.js(SOURCES).startswith("in/a,30/a out,30/a back,in/b,30/b out")
    browser.press("ArrowLeft")
    assert browser.js(output) == "20" and browser.js(SOURCES).startswith("in/a,20/a out,20/a back,in/b,20/b out")
    assert browser.js("document.querySelectorAll('img')[1].alt") == "output: a, epoch 20"
    assert browser.js("document.querySelector('.scores').textContent") == "cycle error 20"
    browser.press("Home")
    assert browser.js(output) == "10" and browser.js("find('#epoch').getAttribute('aria-valuetext')") == "epoch 10"
    assert browser.widths() == [32] * 12 and browser.complaints() == []


def test_an_item_without_a_chosen_epoch_shows_the_one_before(browser, tmp_path):
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


def test_sorting_and_filtering(browser, training):
    browser.open(training)
    assert browser.js("[...find('#sort').options].map(o => o.value)") == [
        "order", "order, reversed", "name, A to Z", "name, Z to A", "cycle error, lowest first", "cycle error, highest first"
    ]  # fmt: skip
    assert choose(browser, "sort", "cycle error, lowest first") == "c,a,d,b"
    assert choose(browser, "sort", "cycle error, highest first") == "b,d,a,c"
    browser.press("-")  # epoch 20, where a and b are even
    assert browser.js(NAMES) == "c,a,b,d"
    assert choose(browser, "direction", "Y → X") == "c,d"
    assert browser.js("document.querySelector('[role=status]').textContent") == "2 of 4 shown"
    assert choose(browser, "direction", "") == "c,a,b,d"
    assert choose(browser, "sort", "name, Z to A") == "d,c,b,a" and choose(browser, "sort", "order") == "a,b,c,d"


def test_numbers_in_names_count_and_a_missing_score_comes_last(browser, tmp_path):
    items = [sample(tmp_path, f"x{i}", (i,), epochs=(0,)) for i in (10, 9)]
    items.append(Item("x1", "X → Y", picture(tmp_path, "1.png"), [Frame(picture(tmp_path, "1.png"))]))
    browser.open(html_report.write(tmp_path, "t", items))
    assert choose(browser, "sort", "name, A to Z") == "x1,x9,x10"
    assert choose(browser, "sort", "cycle error, lowest first") == "x9,x10,x1"
    assert choose(browser, "sort", "cycle error, highest first") == "x10,x9,x1"
    hidden = [f"document.querySelector('{part}').closest('label').hidden" for part in ("#epoch", "#direction")]
    assert all(map(browser.js, hidden))  # there is nothing to choose


def test_keys_move_the_focus(browser, training):
    browser.open(training, width=700)  # one column
    seen = []
    for key in ("j", "j", "ArrowDown", "ArrowUp", "k", "k", "End", "ArrowRight", "ArrowLeft", "Home"):
        browser.press(key)
        seen.append(browser.js(FOCUS))
    assert "".join(seen) == "abcbaaddca"
    assert browser.js("document.querySelectorAll('.item[tabindex=\"0\"]').length") == 1
    browser.press("End")
    box = browser.js("JSON.parse(JSON.stringify(document.activeElement.getBoundingClientRect()))")
    assert 0 <= box["top"] and box["bottom"] <= 900
    browser.open(training, width=1200)  # two columns
    browser.press("j", "ArrowDown")
    assert browser.js(FOCUS) == "c"
    browser.press("Tab", "Tab")  # one stop for all items
    assert browser.js("document.activeElement.closest('ol')") is None


def test_a_picture_is_shown_large(browser, training):
    browser.open(training)
    caption, large = "find('#caption').textContent", "find('dialog img').naturalWidth > 0"
    browser.press("j", "j", "Enter")
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
    browser.wait_for([False, "c"], f"[find('dialog').open, {FOCUS}]")
    browser.js("document.querySelectorAll('ol button')[1].click()")
    assert browser.js("find('dialog').open") and browser.js(caption) == "output: a, epoch 20 (X → Y)"
    browser.js("find('[data-key=Escape]').click()")
    assert not browser.js("find('dialog').open") and browser.complaints() == []


def test_odd_names_are_text_and_their_files_load(browser, tmp_path):
    items = []
    for i, odd in enumerate(ODD):
        paths = [picture(tmp_path, f"{i}{kind} {odd.replace('/', '_')}") for kind in "ioc"]
        items.append(Item(odd, "X → Y", paths[0], [Frame(*paths[1:], {odd: 1.0})]))
    browser.open(html_report.write(tmp_path, MARKUP, items, [MARKUP]))
    assert browser.widths() == [32] * 3 * len(ODD) and browser.complaints() == []
    names = browser.js("[...document.querySelectorAll('bdi')].map(e => e.textContent)")
    assert names[:4] == [*ODD[:2], "two\\nlines", "caf\\udce9"] and names[5:] == ODD[5:]
    assert browser.js("document.title") == browser.js("find('h1').textContent") == MARKUP
    assert browser.js("find('.notes li').textContent") == MARKUP


def test_a_missing_picture_shows_its_text(browser, training):
    (training.parent / "30" / "a out").unlink()
    browser.open(training)
    widths = "[...document.querySelectorAll('ol img')].slice(0, 3).map(e => e.complete && e.naturalWidth)"
    browser.wait_for([32, 0, 32], widths)
    assert browser.js("document.querySelectorAll('ol img')[1].alt") == "output: a, epoch 30"
    place, other = browser.js(
        "[...document.querySelectorAll('ol img')].slice(1, 3).map(e => e.getBoundingClientRect().height)"
    )
    assert place == other > 0  # it keeps its room


CONTRASTS = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d');
  const luminance = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(
      (c) => c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    return colour === 'rgba(0, 0, 0, 0)' && element.parentElement ? background(element.parentElement) : colour;
  };
  const elements = [...document.querySelectorAll(
    'h1, .notes li, label, output, select, #theme, [role=status], .keys, kbd, bdi, .direction, .scores, figcaption')];
  return elements.map((element) => {
    const [p, q] = [getComputedStyle(element).color, background(element)].map(luminance);
    return [element.tagName, (Math.max(p, q) + 0.05) / (Math.min(p, q) + 0.05)];
  });
})()"""  # WCAG 2, contrast ratio


@pytest.mark.parametrize("dark", [False, True])
def test_dark_and_light_are_readable(browser, training, dark):
    browser.open(training, dark=dark)
    paper = browser.js("getComputedStyle(document.body).backgroundColor")
    for pressed in (False, True):
        if pressed:
            browser.js("find('#theme').click()")
        ratios = browser.js(CONTRASTS)
        assert len(ratios) > 40 and min(ratio for _, ratio in ratios) >= 4.5, sorted(ratios, key=lambda pair: pair[1])[
            :5
        ]
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 384) == dark
    assert browser.js("getComputedStyle(document.body).backgroundColor") != paper
    assert browser.js("find('#theme').textContent") == ("Dark" if dark else "Light")


@pytest.mark.parametrize("width", [320, 400, 1400])
def test_nothing_is_wider_than_the_window(browser, tmp_path, width):
    long = "n" * 200
    items = [
        Item(long, "X → Y", "i", [Frame("o", "c", {"a rather long name of a score": 1 / 3}, i) for i in range(200)])
    ]
    browser.open(html_report.write(tmp_path, long, items, [long]), width)
    assert browser.js("document.documentElement.scrollWidth") <= width


def test_an_empty_page_is_a_page(browser, tmp_path):
    browser.open(html_report.write(tmp_path, "t", []))
    browser.press("j", "-", "End")
    assert (
        browser.js("document.querySelector('[role=status]').textContent") == "0 of 0 shown"
        and browser.complaints() == []
    )


def test_five_thousand_pictures_are_there_at_once(browser, tmp_path):
    """And what is not near the window is not loaded."""
    out = picture(tmp_path, "o.png")
    items = [Item(f"n{i}", "X → Y", f"{i}.png", [Frame(out, scores={"error": float(i % 7)})]) for i in range(5000)]
    browser.open(html_report.write(tmp_path, "t", items))
    assert browser.js("document.querySelectorAll('.item').length") == 5000
    choose(browser, "sort", "error, highest first")
    browser.press("End")
    assert browser.js(FOCUS) == "n4998"  # the last of those with a 0
    asked = {
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    }
    assert len(asked) < 500
