import sys

import pytest

from cyclegan import program_name


@pytest.mark.parametrize(
    "path, own, train",
    [
        ("/clone/train.py", "train.py", "python train.py"),
        ("/env/bin/cyclegan-inspect", "cyclegan-inspect", "cyclegan-train"),
    ],
)
def test_messages_name_programs_as_the_user_starts_them(monkeypatch, path, own, train):
    monkeypatch.setattr(sys, "argv", [path])
    assert program_name.own() == own and program_name.of("train") == train
