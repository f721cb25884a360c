"""Send files of the corpus through the start of a training, a translation with its page, and the evaluation."""

import collections
import faulthandler
import html.parser
import json
import os
import time

import pytest

from cyclegan import terminal
from cyclegan.cli import evaluate
from cyclegan.data import loading
from cyclegan.errors import TrainingError, UserError, printable
from cyclegan.images import reader
from cyclegan.inference.model import Model
from cyclegan.inference.translate_files import translate
from cyclegan.run import html_report
from tests.data.image_folders import image_sets, load
from tests.fuzz import corpus
from tests.inference.runs import make_run

LONGEST = 600  # seconds until a hang ends the process, with the stacks of its threads
SECONDS_PER_FILE = 5.0

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # Pillow warns of damage that it can skip
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the generator: modes that Pillow will not write
]


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    """Lower the limits of an image, so that decoding takes no seconds and gigabytes; end a hang; name all unusable files."""
    monkeypatch.setattr("cyclegan.images.image.MAX_PIXELS", 1_000_000)
    monkeypatch.setattr("cyclegan.images.image.MAX_BYTES", 20_000_000)
    monkeypatch.setattr(loading, "MAX_NAMED", 10**6)
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module")
def run(tmp_path_factory, strategies):
    """Return the folder of a run of tiny networks."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    make_run(folder, strategies[1], channels_y=3, filters=1, residual_blocks=0)
    return folder


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


def decodes(path):
    """Return whether a file decodes; assert that it is read in time, and that the check refuses no file that decodes."""
    begun = time.process_time()
    try:
        checked = reader.check(path)
    except Exception:
        checked = None
    try:
        image = reader.decode(path)
    except Exception:
        image = None
    assert time.process_time() - begun < SECONDS_PER_FILE, ascii(path)
    if image is not None:
        assert checked is not None and checked[1:3] == image.shape[:2], ascii(path)
    return image is not None


def check_start(folder, good, bad):
    """Assert that the start names all unusable files, as soon as the others are gone, and loads the rest."""
    while left := [path for path in bad if os.path.exists(path)]:
        with pytest.raises(UserError, match=f"of {len(good) + len(left)} images cannot be used") as refused:
            load(folder, cache="ram")
        text = str(refused.value)
        named = [path for path in good + left if f"{printable(path)} (" in text]
        assert text.isprintable() and len(named) == int(text.split()[0]) > 0 and set(named) <= set(left)
        if len(named) == len(left):  # what is left passes the check of the headers
            check_late_errors(folder, good, left)
        for path in named:
            os.rename(path, f"{path}.bad")
    assert sum(map(len, image_sets(load(folder)))) == len(good)
    for path in bad:
        os.rename(f"{path}.bad", path)


def check_late_errors(folder, good, bad):
    """Assert that files with damage behind the header are named when they are used."""
    named = 0
    for part in image_sets(load(folder, cache="none")):
        for index, name in enumerate(part.names):
            path = os.path.join(folder, name)
            try:
                assert part.images[index].ndim == 3 and path in good
            except TrainingError as error:
                assert str(error).startswith(f"an image cannot be decoded: {printable(path)} (")
                assert str(error).isprintable() and path in bad
                named += 1
    assert named == len(bad)


def check_translation(run, folder, output, good, bad, format=None):
    """Assert that every file is translated or named, and that no name becomes markup of the page."""
    report = translate(Model(run), folder, output, size=(16, 16), html=True, format=format)
    assert (report.done, len(report.failed)) == (len(good), len(bad))
    assert all(text.isprintable() for text in report.failed)
    assert all(any(text.startswith(f"{printable(path)} (") for text in report.failed) for path in bad)
    outputs = [os.path.join(output, os.path.relpath(path, folder)) for path in good]
    assert all(os.path.exists(os.path.splitext(path)[0] + f".{format}" if format else path) for path in outputs)
    page = Markup(report.page)
    (output / "empty").mkdir()
    assert page.elements == Markup(html_report.write(output / "empty", "", [], [""])).elements
    names = [item["name"] for item in json.loads(page.json)["items"]]
    assert sorted(names) == sorted(printable(os.path.relpath(path, folder)) for path in good)
    assert "<" not in page.json and all(map(str.isprintable, names))


def check_scores(run, folder, good, bad, capsys):
    """Assert that the evaluation names unusable files, and scores the others."""

    def score():
        code = terminal.run(lambda: evaluate.main([str(run), "--features", "random", "--dataset", str(folder)]) and 0)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.out + printed.err
        return code, printed

    held_out = [path for path in [*good, *bad] if path.startswith(f"{folder}/test")]
    code, printed = score()
    assert code == 2 and f"of {len(held_out)} images cannot be used" in printed.err
    for path in bad:
        os.rename(path, f"{path}.bad")
    code, printed = score()
    assert code == 0, printed.err
    for domain, split in (("X", "testA"), ("Y", "testB")):
        count = sum(f"/{split}/" in path for path in good)
        assert f"{count} held-out images of {domain}" in printed.out


@pytest.mark.sampled
@pytest.mark.parametrize("seed, count", [(0, 180), (1, 1080)])
def test_every_file_of_the_corpus_is_used_or_named(run, tmp_path, capsys, seed, count):
    folder = tmp_path / "corpus"
    kinds = corpus.write(folder, seed, count)
    paths = {usable: [path for path in kinds if decodes(path) == usable] for usable in (True, False)}
    good, bad = paths[True], paths[False]
    check_start(folder, good, bad)
    moved = {path: path.replace(f"{folder}", f"{folder} of DICOM") for path in kinds if path.endswith(".dcm")}
    for path in moved:
        os.renames(path, moved[path])
    check_translation(run, folder, tmp_path / "out", *([p for p in part if p not in moved] for part in (good, bad)))
    dicom = ([moved[path] for path in part if path in moved] for part in (good, bad))  # RGB is not written as DICOM
    check_translation(run, f"{folder} of DICOM", tmp_path / "out of DICOM", *dicom, "png")
    for path in moved:
        os.renames(moved[path], path)
    check_scores(run, folder, good, bad, capsys)
    usable = set(good)
    outcomes = collections.Counter((kinds[path], path in usable) for path in kinds)
    for kind in sorted(set(kinds.values())):
        print(f"{kind:10} {outcomes[kind, True]:4} decoded {outcomes[kind, False]:4} refused")


def test_files_depend_on_seed_and_number_only():
    assert corpus.make(3, 1) == corpus.make(3, 1) != corpus.make(4, 1)
    assert len({corpus.make(0, number)[1] for number in range(100)}) == 100
