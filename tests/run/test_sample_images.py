import numpy as np
import pytest
from PIL import Image

from cyclegan.run import sample_images
from tests.run.reports import report_data


def flat(*values, count=1):
    """Return float32 [count, 4, 4, channels], all pixels alike."""
    return np.broadcast_to(np.float32(values), (count, 4, 4, len(values)))


FORWARD, BACKWARD = (flat(-1), flat(0), flat(1)), (flat(1), flat(1), flat(0))


def write(folder, epoch, forward=FORWARD, backward=BACKWARD, names=("h", "z")):
    sample_images.write(folder, epoch, forward, backward, names)
    sample_images.write_report(folder)


def items(folder):
    """Return the items of the report of a run."""
    return report_data(folder / "index.html")["items"]


def epochs(folder):
    """Return the epochs of each item."""
    return [[frame["epoch"] for frame in item["frames"]] for item in items(folder)]


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_each_epoch_is_a_frame_of_each_sample(tmp_path):
    write(tmp_path, 10)
    write(tmp_path, 5, backward=(flat(1), flat(0.5), flat(0.2)))
    x, y = items(tmp_path)
    assert (x["name"], x["direction"], x["input"]) == ("h", "X → Y", "samples/inputs/x_1.png")
    assert (y["name"], y["direction"], y["input"]) == ("z", "Y → X", "samples/inputs/y_1.png")
    assert [frame["epoch"] for frame in x["frames"]] == [5, 10]
    assert y["frames"][0] == {
        "output": "samples/epoch_005/fake_x_1.png",
        "cycle": "samples/epoch_005/cycle_y_1.png",
        "scores": {"cycle error": pytest.approx(0.8 * 127.5), "change": pytest.approx(0.5 * 127.5)},
        "epoch": 5,
    }
    for item in (x, y):
        for path in (item["input"], *(frame[kind] for frame in item["frames"] for kind in ("output", "cycle"))):
            Image.open(tmp_path / path).load()


def test_image_files(tmp_path):
    write(tmp_path, 1, (flat(-1), flat(0), flat(1)), (flat(1, -1, 0, 1, 1), flat(0.5, 1), flat(-1, 1, 0, 0, 1)))
    levels = {}
    for name in files(tmp_path / "samples" / "inputs") + files(tmp_path / "samples" / "epoch_001"):
        if name.endswith(".png"):
            (path,) = (tmp_path / "samples").glob(f"*/{name}")
            with Image.open(path) as image:
                assert image.size == (4, 4)
                levels[name] = image.getpixel((0, 0))
    assert levels == {
        "x_1.png": 0, "fake_y_1.png": 128, "cycle_x_1.png": 255,
        "y_1.png": (255, 0, 128), "fake_x_1.png": 191, "cycle_y_1.png": (0, 255, 128),
    }  # fmt: skip


def test_four_channels_are_rgba(tmp_path):
    """Translate transparent images to half-transparent ones; the grid shows them over white."""
    write(tmp_path, 1, (flat(1, -1, -1, -1), flat(-1, -1, -1, 0)), ())
    with Image.open(tmp_path / "samples/inputs/x_1.png") as source:
        assert source.getpixel((0, 0)) == (255, 0, 0, 0)
    with Image.open(tmp_path / "samples/epoch_001/fake_y_1.png") as output:
        assert output.getpixel((0, 0)) == (0, 0, 0, 128)
    with Image.open(tmp_path / "samples/epoch_001.png") as grid:
        assert [grid.getpixel((int(grid.width * x), 100)) for x in (0.25, 0.75)] == [(255,) * 3, (127,) * 3]


def test_one_direction_without_a_way_back(tmp_path):
    write(tmp_path, 1, FORWARD[:2], ())
    (item,) = items(tmp_path)
    (frame,) = item["frames"]
    assert (frame["output"], frame["cycle"]) == ("samples/epoch_001/fake_y_1.png", "")
    assert list(frame["scores"]) == ["change"]
    assert files(tmp_path / "samples" / "epoch_001") == ["fake_y_1.png", "frames.json"]
    assert sample_images.ONE_WAY in (tmp_path / "index.html").read_text(encoding="utf-8")
    write(tmp_path, 2)
    assert sample_images.ONE_WAY not in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_scores_in_gray_levels(tmp_path):
    not_finite = flat(np.nan, 0, 0)
    write(tmp_path, 1, (flat(0), flat(0, 0, 0), flat(0.1)), (flat(0, 0, 0), not_finite, flat(1, 0, 0)))
    x, y = ([frame["scores"] for frame in item["frames"]] for item in items(tmp_path))
    assert x == [{"cycle error": pytest.approx(12.75)}]  # gray and RGB can't be compared
    assert y == [{"cycle error": pytest.approx(127.5 / 3)}]
    assert np.asarray(Image.open(tmp_path / "samples/epoch_001/fake_x_1.png"))[0, 0].tolist() == [0, 128, 128]


def test_later_epochs_are_removed(tmp_path):
    for epoch in (9, 10, 200, 1000):
        write(tmp_path, epoch)
    for name in ("epoch_of_mine.png", "a.png"):
        (tmp_path / "samples" / name).touch()
    write(tmp_path, 1000.5)
    assert epochs(tmp_path) == [[9, 10, 200, 1000, 1000.5]] * 2
    write(tmp_path, 1001)  # ends the images of the epoch that ran
    assert epochs(tmp_path) == [[9, 10, 200, 1000, 1001]] * 2
    write(tmp_path, 1001.5)
    sample_images.remove_after(tmp_path, 9)
    sample_images.write_report(tmp_path)
    assert epochs(tmp_path) == [[9], [9]]
    left = [path.name for path in sorted((tmp_path / "samples").iterdir())]
    assert left == ["a.png", "epoch_009", "epoch_009.png", "epoch_of_mine.png", "inputs"]
    assert sample_images.grids(tmp_path) == [(9, tmp_path / "samples" / "epoch_009.png")]
    sample_images.remove_after(tmp_path / "elsewhere", 0)
    assert not (tmp_path / "elsewhere").exists()


def test_an_epoch_that_was_written_in_part_is_left_out(tmp_path, caplog):
    for epoch in (1, 2):
        write(tmp_path, epoch)
    (tmp_path / "samples" / "epoch_001" / "frames.json").write_bytes(b'{"x": [["h", {"cyc')
    (tmp_path / "samples" / "epoch_002" / "frames.json").unlink()
    write(tmp_path, 3)
    assert epochs(tmp_path) == [[3], [3]]
    (text,) = caplog.messages
    assert "epoch_001/frames.json is damaged" in text and "its images are left out" in text


def test_order_of_samples(tmp_path):
    images = (flat(0, count=11),) * 3
    write(tmp_path, 1, images, images, ([f"x{i}" for i in range(11)], [f"y{i}" for i in range(11)]))
    assert [item["name"] for item in items(tmp_path)] == [f"{domain}{i}" for domain in "xy" for i in range(11)]


def test_a_grid_shows_images_side_by_side_below_their_titles(tmp_path):
    """Show the first of two channels as gray, and the first three of five."""
    two, five = flat(-1, 1), flat(1, -1, 0, 1, 1)
    write(tmp_path, 1, (two, five, flat(0)), (flat(1), flat(1, 1, 1), two))
    grid = Image.open(tmp_path / "samples" / "epoch_001.png").convert("RGB")
    colors = [grid.getpixel((int(grid.width * (column + 0.5) / 6), int(grid.height * 0.3))) for column in range(6)]
    black, gray, white = ((level,) * 3 for level in (0, 128, 255))
    assert colors == [black, (255, 0, 128), gray, white, white, black]
    title = np.asarray(grid.crop((0, 0, grid.width, 48)).convert("L"))
    assert all((part < 128).any() for part in np.array_split(title, 6, axis=1))
