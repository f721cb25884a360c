import io

import pytest
from PIL import Image

from cyclegan.cli import compare
from cyclegan.errors import UserError
from tests.run.compared_runs import make_run, two_runs


def test_the_command_prints_the_table_and_writes_the_curves(tmp_path, capsys):
    png = tmp_path / "curves.png"
    compare.main([*map(str, two_runs(tmp_path)), "--png", str(png)])
    assert "best 1 in 2" in capsys.readouterr().out
    with Image.open(io.BytesIO(png.read_bytes())) as image:
        assert image.format == "PNG" and image.width == 1200
        blue, orange = (
            sum(count for count, color in image.convert("RGB").getcolors(1 << 24) if color == wanted)
            for wanted in ((31, 119, 180), (255, 127, 14))
        )
    assert blue > 50 and orange > 10  # one color for each run


def test_curves_need_a_writable_folder(tmp_path):
    run = make_run(tmp_path / "run", [0.5])
    with pytest.raises(UserError, match="--png .*curves.png: .*; expected a file in a writable folder"):
        compare.main([str(run), "--png", str(tmp_path / "absent" / "curves.png")])
