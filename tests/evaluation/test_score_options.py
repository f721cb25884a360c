import pathlib

import pytest

from cyclegan.errors import UserError
from cyclegan.evaluation.score_options import ScoreOptions

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"max_images": 1}, "--max_images 1: expected at least 2"),
        ({"batch_size": 0}, "--batch_size 0: expected at least 1"),
        ({"seed": -1}, "--seed -1: expected at least 0"),
        ({"real": "/nowhere"}, "--real /nowhere: no such folder; expected a folder with testA and testB"),
        ({"real": str(ROOT)}, "has no testA and testB, so its images are of one domain; expected --direction"),
    ],
)
def test_refuses_values_that_cannot_work(settings, text):
    with pytest.raises(UserError) as error:
        ScoreOptions(**settings)
    assert text in str(error.value)


def test_real_folder_prefers_the_test_folder(tmp_path):
    (tmp_path / "testB").mkdir()
    options = ScoreOptions(directions=("x2y",), real=str(tmp_path))
    assert options.real_folder("x2y") == tmp_path / "testB" and options.real_folder("y2x") == tmp_path
