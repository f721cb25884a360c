import re

import numpy as np
import pytest
import tifffile

from cyclegan.cli import inspect_data
from cyclegan.errors import UserError
from tests.inspection.datasets import planted_folder, sound_folder, texture


def test_script_prints_tables_and_writes_a_page(tmp_path, capsys):
    expected = planted_folder(tmp_path / "data")
    arguments = [str(tmp_path / "data"), "--load_size", "64"]
    assert inspect_data.main([*arguments, "--html", str(tmp_path / "report")]) == 0
    printed = capsys.readouterr().out
    assert re.findall(r"^\d+\. (.*?):", printed, re.MULTILINE) == list(expected)
    assert "trainB/copy1.png, trainB/copy2.tif" in printed
    assert re.search(r"^readable images +10 +20 +5 +6$", printed, re.MULTILINE)
    assert re.search(r"^bands +RGB 9, RGB 16 bit 1 +RGB 19, L 1 +RGB +RGB$", printed, re.MULTILINE)
    assert printed.endswith(f"Page of the images concerned: {tmp_path}/report/index.html\n")
    assert inspect_data.main([*arguments, "--strict"]) == 1


def test_sound_images_pass_in_strict_mode(tmp_path, capsys):
    assert inspect_data.main([str(sound_folder(tmp_path)), "--load_size", "64", "--strict"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Nothing was found that harms training."


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UserError, match="no such folder, because .* is empty .*; expected a folder with"):
        inspect_data.main([str(tmp_path / "missing")])
    with pytest.raises(UserError, match="lies among the images"):
        inspect_data.main([str(sound_folder(tmp_path)), "--html", str(tmp_path / "testB")])
    with pytest.raises(UserError, match="--value_range_x 5:1: expected LO:HI, two numbers with LO < HI"):
        inspect_data.main([str(tmp_path), "--value_range_x", "5:1"])


def test_values_need_a_range(tmp_path, capsys):
    sound_folder(tmp_path)
    for path in tmp_path.glob("t*A/*"):
        values = np.asarray(texture(int(path.stem)).convert("L"), np.float32) * 20 - 1000
        seed = 10 * (path.parent.name == "testA") + int(path.stem)
        tifffile.imwrite(path.with_suffix(".tif"), np.roll(values, 8 * seed, axis=seed % 2))
        path.unlink()
    assert inspect_data.main([str(tmp_path), "--load_size", "64", "--strict"]) == 1
    assert "1. unreadable files: 9 images" in capsys.readouterr().out
    ranged = [str(tmp_path), "--load_size", "64", "--strict", "--value_range_x=-1000:4100"]
    assert inspect_data.main([*ranged, "--html", str(tmp_path / "report")]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "Nothing was found that harms training.",
        f"Page of the numbers above: {tmp_path}/report/index.html",
    ]
