"""Send files with any names and damages through the start of a training and a translation with its page."""

import html.parser
import json
import os
import random

import pytest

from cyclegan.data import loading
from cyclegan.errors import UserError, printable
from cyclegan.images import reader
from cyclegan.inference.model import Model
from cyclegan.inference.translate_files import translate
from cyclegan.run import html_report
from tests.data.image_folders import image_sets, load
from tests.images.samples import CHANNELS, VALID
from tests.inference.runs import make_run

NAMES = (
    *("plain", "two\nlines", "return\r", 'it\'s a "quote"', "<b>bold<", "<img src=x onerror=alert(1)>", "{{data}}"),
    *("<", "</script><script>alert(1)<"),  # the first with the part after the slash: </script>
    *("&lt;&quot;&#60;", "\x1b[31mred\x07", "photo\u202egnp", "\u2028line", "zèbre 馬", "100%20#?&=", "-flag"),
    *("$(x)`y`;z|", "*?[a]", "back\\slash", " spaces ", "x" * 180, b"caf\xe9\xff".decode(errors="surrogateescape")),
)
SEEDS = [content for name, content in VALID.items() if name not in CHANNELS]


def contents(rng):
    """Return a valid image, a truncated one, one with flipped bits, the head of one with random bytes, and no image."""
    valid, flipped = rng.choice(SEEDS), bytearray(rng.choice(SEEDS))
    for _ in range(rng.randint(1, 8)):
        flipped[rng.randrange(min(120, len(flipped)))] ^= 1 << rng.randrange(8)
    no_image = rng.choice([b"", b"\n", b"<html><script>alert(1)</script></html>", rng.randbytes(300)])
    return valid, valid[: rng.randrange(len(valid))], bytes(flipped), valid[:16] + rng.randbytes(200), no_image


@pytest.fixture
def files(tmp_path):
    """Write the dataset; return the paths of the files that can be decoded, and of the others."""
    rng, good, bad = random.Random(0), [], []
    for number, name in enumerate(NAMES):
        for kind, content in enumerate(contents(rng)):
            split = ("trainA", "trainB", "testA", "testB")[(number + kind) % 4]
            ending = rng.choice((".png", ".jpg", ".JPEG", ".tif", ".webp", ".bmp", ".gif"))
            path = str(tmp_path / "data" / split / f"{name}{number}-{kind}{ending}")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
            try:
                reader.decode(path)
                good.append(path)
            except Exception:  # decoders raise almost anything
                bad.append(path)
    assert len(good) > 20 and len(bad) > 40
    return good, bad


class Markup(html.parser.HTMLParser):
    """Collect the elements of a page, and the JSON in it."""

    def __init__(self, path):
        super().__init__()
        self.elements, self.json = [], ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, tuple(attributes)))

    def handle_data(self, data):
        if self.elements[-1:] == [("script", (("type", "application/json"),))]:
            self.json += data


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow warns of damage that it can skip
def test_every_file_of_the_corpus_is_used_or_named(files, strategies, tmp_path, monkeypatch):
    good, bad = files
    monkeypatch.setattr("cyclegan.images.image.MAX_IMAGE_PIXELS", 1_000_000)  # a damaged size costs no gigabytes
    monkeypatch.setattr(loading, "MAX_NAMED", 10**6)
    make_run(tmp_path / "run", strategies[1], channels_y=3, filters=1, residual_blocks=0)
    report = translate(Model(tmp_path / "run"), tmp_path / "data", tmp_path / "out", size=(16, 16), html=True)
    assert (report.done, len(report.failed)) == (len(good), len(bad)) and all(map(str.isprintable, report.failed))
    assert all(any(text.startswith(f"{printable(path)} (") for text in report.failed) for path in bad)
    assert all(os.path.exists(tmp_path / "out" / os.path.relpath(path, tmp_path / "data")) for path in good)
    page = Markup(report.page)
    (tmp_path / "empty").mkdir()
    assert page.elements == Markup(html_report.write(tmp_path / "empty", "", [], [""])).elements  # no name is markup
    names = [item["name"] for item in json.loads(page.json)["items"]]
    assert sorted(names) == sorted(printable(os.path.relpath(path, tmp_path / "data")) for path in good)
    assert "<" not in page.json and all(map(str.isprintable, names))
    while left := [path for path in bad if os.path.exists(path)]:  # those with a whole header are found later
        with pytest.raises(UserError, match="images cannot be used") as refused:
            load(tmp_path / "data")
        named = [path for path in good + left if f"{printable(path)}, " in f"{refused.value}".replace(" (", ", ")]
        assert named and set(named) <= set(left) and str(refused.value).isprintable()
        for path in named:
            os.remove(path)
    assert sum(map(len, image_sets(load(tmp_path / "data")))) == len(good)
