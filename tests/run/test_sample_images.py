import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from cyclegan.run import sample_images


def flat(*values, count=1):
    """Return float32 [count, 4, 4, channels], all pixels alike."""
    return np.broadcast_to(np.float32(values), (count, 4, 4, len(values)))


FORWARD, BACKWARD = (flat(-1), flat(0), flat(1)), (flat(1), flat(1), flat(0))


def write(folder, epoch, forward=FORWARD, backward=BACKWARD, names=("h", "z")):
    sample_images.write(folder, epoch, forward, backward, names)


def items(folder):
    """Write the report of a run; return its items."""
    sample_images.write_report(folder)
    (found,) = re.findall(r'"application/json">(.*?)</script>', (folder / "index.html").read_text(encoding="utf-8"))
    return json.loads(found)["items"]


def epochs(folder):
    """Write the report of a run; return the epochs of each item."""
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
    for name in files(tmp_path):
        if name.endswith(".png"):
            image = np.asarray(Image.open(tmp_path / name))
            assert image.shape[:2] == (4, 4)
            levels[name.split("samples/")[1]] = image[0, 0].tolist()
    assert levels == {
        "inputs/x_1.png": 0, "epoch_001/fake_y_1.png": 128, "epoch_001/cycle_x_1.png": 255,
        "inputs/y_1.png": [255, 0, 128], "epoch_001/fake_x_1.png": 191, "epoch_001/cycle_y_1.png": [0, 255, 128],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["samples", "samples/inputs", "samples/epoch_002"])
def test_a_link_that_appears_during_training_is_not_followed(tmp_path, name):
    write(tmp_path, 1)
    outside = tmp_path / "outside"
    outside.mkdir()
    if (tmp_path / name).exists():
        (tmp_path / name).rename(tmp_path / "moved")
    (tmp_path / name).symlink_to(outside)
    with pytest.raises(OSError, match="a symbolic link in the place of a folder"):
        write(tmp_path, 2)
    assert not list(outside.iterdir())


def test_one_direction_without_a_way_back(tmp_path):
    write(tmp_path, 1, FORWARD[:2], ())
    (item,) = items(tmp_path)
    (frame,) = item["frames"]
    assert (frame["output"], frame["cycle"]) == ("samples/epoch_001/fake_y_1.png", "")
    assert list(frame["scores"]) == ["change"]
    assert files(tmp_path / "samples") == ["epoch_001/fake_y_1.png", "epoch_001/frames.json", "inputs/x_1.png"]
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert sample_images.ONE_WAY in page and "cycle error:" not in page and "The slider" not in page
    write(tmp_path, 2)
    items(tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert sample_images.ONE_WAY not in page and "cycle error:" in page and "The slider chooses the epoch" in page


def test_scores_in_gray_levels(tmp_path):
    not_finite = flat(np.nan, 0, 0)
    write(tmp_path, 1, (flat(0), flat(0, 0, 0), flat(0.1)), (flat(0, 0, 0), not_finite, flat(1, 0, 0)))
    x, y = ([frame["scores"] for frame in item["frames"]] for item in items(tmp_path))
    assert x == [{"cycle error": pytest.approx(12.75)}]  # gray and RGB can't be compared
    assert y == [{"cycle error": pytest.approx(127.5 / 3)}]
    assert np.asarray(Image.open(tmp_path / "samples/epoch_001/fake_x_1.png"))[0, 0].tolist() == [0, 128, 128]


def test_remove_after_keeps_other_files(tmp_path):
    for epoch in (9, 10, 200, 1000):
        write(tmp_path, epoch)
        (tmp_path / "samples" / f"epoch_{epoch:03d}.png").write_bytes(b"")
    kept = [
        "samples/epoch_200/mine.png",
        "samples/epoch_of_mine.png",
        "samples/epoch_20x/fake_x_1.png",
        "samples/a.png",
    ]
    for name in kept:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert sample_images.remove_after(tmp_path, 9) and epochs(tmp_path) == [[9], [9]]
    ours = ["epoch_009.png", "epoch_009/cycle_x_1.png", "epoch_009/cycle_y_1.png", "epoch_009/fake_x_1.png"]
    ours += ["epoch_009/fake_y_1.png", "epoch_009/frames.json", "inputs/x_1.png", "inputs/y_1.png"]
    assert files(tmp_path) == sorted(["index.html", *kept, *(f"samples/{name}" for name in ours)])
    assert not (tmp_path / "samples" / "epoch_1000").exists()
    assert not sample_images.remove_after(tmp_path / "elsewhere", 0)


def test_partly_written_epoch_is_left_out(tmp_path):
    write(tmp_path, 1)
    write(tmp_path, 2)
    (tmp_path / "samples" / "epoch_002" / "frames.json").unlink()
    shutil.rmtree(tmp_path / "samples" / "inputs")
    write(tmp_path, 3)
    assert epochs(tmp_path) == [[1, 3], [1, 3]] and (tmp_path / "samples" / "inputs" / "x_1.png").exists()


@pytest.mark.parametrize(
    "damage",
    [b"", b'{"x": [["h", {"cyc', b"\xff", b"[]", b"null", b'{"x": 1}', b'{"x": [["h"]]}', b'{"z": [["h", {}]]}']
    + [
        b'{"x": [["h", 1]]}',
        b'{"x": [[1, {}]]}',
        b'{"x": [["h", {"a": "b"}]]}',
        b'{"x": [["h", {"a": NaN}]]}',
        b'{"x": [["h", {"a": 1' + 400 * b"0" + b"}]]}",
        b"[" * 99999,
    ],
    ids=range(14),
)
def test_damaged_epoch_is_left_out_with_one_warning(tmp_path, caplog, damage):
    for epoch in (1, 2):
        write(tmp_path, epoch)
    (tmp_path / "samples" / "epoch_001" / "frames.json").write_bytes(damage)
    assert epochs(tmp_path) == epochs(tmp_path) == [[2], [2]]
    (text,) = caplog.messages
    assert re.search(r"epoch_001/frames.json is damaged \(.+\) and was removed; the report leaves out epoch 1", text)
    write(tmp_path, 1)
    assert epochs(tmp_path) == [[1, 2], [1, 2]]


def test_odd_names_are_escaped(tmp_path):
    write(tmp_path, 1, names=(["caf\udce9/<b>\n"], ['"&']))
    assert [item["name"] for item in items(tmp_path)] == ["caf\\udce9/<b>\\n", '"&']


def test_order_of_samples(tmp_path):
    images = (flat(0, count=11),) * 3
    write(tmp_path, 1, images, images, ([f"x{i}" for i in range(11)], [f"y{i}" for i in range(11)]))
    assert [item["name"] for item in items(tmp_path)] == [f"{domain}{i}" for domain in "xy" for i in range(11)]
