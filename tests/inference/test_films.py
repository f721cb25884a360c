"""Translation of films."""

import io

import numpy as np
import pytest
import tqdm

from cyclegan.errors import UserError
from cyclegan.images import formats, reader
from cyclegan.images.film_format import Film, FilmWriter, open_film
from cyclegan.images.image import DecodedImage
from cyclegan.inference import file_translator
from cyclegan.inference.model import Model
from cyclegan.inference.translate_files import translate
from tests.images.film_samples import COLORS, quarters, read_film, write_film
from tests.images.test_films import colors_of, turn
from tests.inference.arrays import files, images
from tests.inference.runs import make_run

pytest.importorskip("av")
VARIABLE = [0, 40, 95, 120, 180, 200, 240, 300, 310, 400]


@pytest.fixture
def copying(model, monkeypatch):
    """Return a model whose translations are copies of the originals."""
    monkeypatch.setattr(Model, "translate", lambda self, direction, batch, progress: batch)
    return model


@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.mkv", "a.avi", "a.webm"])
def test_times_and_sound_are_kept(copying, tmp_path, name):
    write_film(tmp_path / name, times=None if name == "a.avi" else VARIABLE)
    report = translate([copying], tmp_path / name, tmp_path / "out" / name, batch_size=4)
    assert (report.done, report.images, report.failed) == (1, 10, [])
    assert files(tmp_path / "out") == [name]
    (times, pixels, sound), (new_times, new_pixels, new_sound) = (
        read_film(path) for path in (tmp_path / name, tmp_path / "out" / name)
    )
    np.testing.assert_allclose(new_times, times, atol=1)
    assert [part for _, part in new_sound] == [part for _, part in sound]
    np.testing.assert_allclose([time for time, _ in new_sound], [time for time, _ in sound], atol=1)
    assert np.abs(new_pixels.astype(float) - pixels).mean() < 2


@pytest.mark.parametrize(("matrix", "full"), [(None, None), (1, False), (5, True), (1, True)])
def test_colors_are_kept(copying, tmp_path, matrix, full):
    large = quarters(0).repeat(4, axis=0).repeat(4, axis=1)  # so that the encoder keeps colors
    write_film(tmp_path / "a.mp4", 1, lambda number: large, matrix=matrix, full=full, sound=False)
    translate([copying], tmp_path / "a.mp4", tmp_path / "b.mp4")
    np.testing.assert_allclose(colors_of(reader.decode(tmp_path / "b.mp4")[::4, ::4]), COLORS, atol=4)
    before, after = (film_facts(tmp_path / name) for name in ("a.mp4", "b.mp4"))
    assert before == after


def film_facts(path):
    with open_film(path) as film:
        return film.matrix, film.range, film.size


def test_frames_become_those_of_the_generator(model, tmp_path):
    flat = [np.full((32, 32, 3), level, np.uint8) for level in range(0, 250, 25)]
    write_film(tmp_path / "a.mp4", draw=flat.__getitem__)
    translate([model], tmp_path / "a.mp4", tmp_path / "b.mkv", "y2x", size=(40, 24))
    times, pixels, _ = read_film(tmp_path / "b.mkv")
    assert len(times) == 10 and pixels.shape == (10, 24, 40, 3)
    small = np.stack([image[:24, :1].repeat(40, axis=1) for image in read_film(tmp_path / "a.mp4")[1]])
    assert np.abs(model.y2x(small).astype(float) - pixels).mean() < 4


def test_gray_turned_and_odd_films(tmp_path, strategies, monkeypatch):
    make_run(tmp_path / "run", strategies[1], channels_x=1, channels_y=1)
    model = Model(tmp_path / "run")
    monkeypatch.setattr(Model, "translate", lambda self, direction, batch, progress: batch)
    write_film(tmp_path / "a.mp4", draw=lambda number: quarters(number, 32, 48), sound=False)
    turn(tmp_path / "a.mp4")
    translate(model, tmp_path / "a.mp4", tmp_path / "b.mp4", size=(31, 47))
    _, pixels, sound = read_film(tmp_path / "b.mp4")
    assert pixels.shape == (10, 48, 32, 3) and not sound  # H.264 has even sides only
    gray = reader.decode(tmp_path / "a.mp4", channels=1)
    assert np.abs(pixels[0][:47, :31].astype(float) - gray[:47, :31]).mean() < 8
    assert np.ptp(pixels.astype(int), axis=3).max() < 8


def test_films_of_a_folder_stay_films_beside_images(model, tmp_path):
    formats.write(tmp_path / "in" / "a.png", DecodedImage(images(16, 20, 3)))
    write_film(tmp_path / "in" / "sub" / "b.mp4", 3)
    write_film(tmp_path / "in" / "c.mkv", 3)
    report = translate([model], tmp_path / "in", tmp_path / "out", format="webp", html=True)
    assert (report.done, report.images, report.cut) == (3, 7, 0)
    assert files(tmp_path / "out")[:2] == ["a.webp", "c.mkv"] and (tmp_path / "out" / "sub" / "b.mp4").exists()
    assert len(report.items) == 3 and (tmp_path / "out" / report.items[1].input).exists()
    report = translate([model], tmp_path / "in" / "c.mkv", tmp_path / "film", format="film")
    assert files(tmp_path / "film") == ["c.mp4"]


def test_a_mask_holds_for_all_frames(model, tmp_path):
    write_film(tmp_path / "in" / "a.mkv", 3, lambda number: np.full((32, 48, 3), 200, np.uint8))
    mask = np.zeros((32, 48, 1), np.uint8)
    mask[:, 24:] = 1
    formats.write(tmp_path / "masks" / "a.png", DecodedImage(mask))
    assert translate([model], tmp_path / "in", tmp_path / "out", masks=tmp_path / "masks").done == 1
    _, before, _ = read_film(tmp_path / "in" / "a.mkv")
    _, after, _ = read_film(tmp_path / "out" / "a.mkv")
    change = np.abs(after.astype(float) - before).mean(axis=(1, 3, 0))
    assert len(after) == 3 and change[:20].max() < 2 and change[28:].min() > 5


def test_one_film_fails_alone_with_its_name(model, tmp_path):
    write_film(tmp_path / "in" / "good.mp4")
    content = (tmp_path / "in" / "good.mp4").read_bytes()
    (tmp_path / "in" / "cut.mp4").write_bytes(content[: len(content) // 2])
    (tmp_path / "in" / "empty.mkv").touch()
    report = translate([model], tmp_path / "in", tmp_path / "out")
    assert report.done == 1 and files(tmp_path / "out") == ["good.mp4"]
    assert [text.rpartition("/")[2] for text in report.failed] == [
        "cut.mp4 (a damaged film: its header cannot be decoded)",
        "empty.mkv (an empty file)",
    ]


def test_requests_that_do_not_work(model, models, tmp_path):
    write_film(tmp_path / "a.mp4", 2)
    formats.write(tmp_path / "b.png", DecodedImage(images(16, 20, 3)))
    for source, target, text in (
        ("a.mp4", "c.png", "a.mp4 .a film becomes a film: expected a name that ends in .mp4"),
        ("b.png", "c.mp4", "b.png .expected a FILM file as original"),
    ):
        with pytest.raises(UserError, match=text):
            translate([model], tmp_path / source, tmp_path / target)
    for target, text in (
        ("c.webm", "the sound of this film (aac) does not fit into .webm files: expected .mkv"),
        ("c.avi", "AVI files have one rate instead of times of frames: expected .mp4 or .mkv"),
    ):
        report = translate([model], tmp_path / "a.mp4", tmp_path / target)
        assert report.failed == [f"{tmp_path / 'a.mp4'} ({text})"]
    assert files(tmp_path) == ["a.mp4", "b.png"]


def test_the_progress_bar_ends_at_100_percent(copying, tmp_path, monkeypatch):
    """Also if the number of frames is an estimate, or a film fails."""
    for name in ("a.mp4", "long.mp4", "cut.mkv"):
        write_film(tmp_path / "in" / name)
    cut = (tmp_path / "in" / "cut.mkv").read_bytes()
    (tmp_path / "in" / "cut.mkv").write_bytes(cut[: len(cut) // 2])
    (tmp_path / "in" / "empty.mkv").touch()
    count, bars, wrong = reader.count, [], {"a.mp4": 7, "long.mp4": 14}
    monkeypatch.setattr(reader, "count", lambda path, *rest: wrong.get(path.rpartition("/")[2]) or count(path, *rest))

    def progress_bar(visible=True, **settings):
        bars.append(tqdm.tqdm(disable=not visible, file=io.StringIO(), **settings))
        return bars[-1]

    monkeypatch.setattr(file_translator.terminal, "progress_bar", progress_bar)
    put, failing = FilmWriter.write, []

    def write(self, pixels, time):
        if failing:
            raise OSError(28, "No space left on device")
        put(self, pixels, time)

    monkeypatch.setattr(FilmWriter, "write", write)
    for is_failing in (False, True):
        failing[:] = [is_failing] * is_failing
        report = translate([copying], tmp_path / "in", tmp_path / f"out {is_failing}", batch_size=4, bars=True)
        assert len(report.failed) == (4 if is_failing else 1) and bars[-1].n == bars[-1].total > 3, (report, bars)


def test_ctrl_c_leaves_no_part_and_few_frames_are_in_memory(model, tmp_path, monkeypatch):
    write_film(tmp_path / "a.mp4", 60)
    monkeypatch.setattr(file_translator, "MAX_PIXELS", 8 * 32 * 32)
    decoded, written = [], []
    pixels, write = Film.pixels, FilmWriter.write
    monkeypatch.setattr(Film, "pixels", lambda *arguments: decoded.append(1) or pixels(*arguments))

    def stop(*arguments):
        write(*arguments)
        written.append(len(decoded))
        if len(written) == 30:
            raise KeyboardInterrupt

    monkeypatch.setattr(FilmWriter, "write", stop)
    with pytest.raises(KeyboardInterrupt):
        translate([model], tmp_path / "a.mp4", tmp_path / "out" / "a.mp4", batch_size=4)
    assert files(tmp_path / "out") == []
    assert max(ahead - number for number, ahead in enumerate(written)) <= 16
