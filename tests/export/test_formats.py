import re

import pytest

from cyclegan.cli import export
from cyclegan.export.formats import FORMATS


def test_the_command_offers_each_format(capsys):
    with pytest.raises(SystemExit):
        export.parse(["--help"])
    offered = set(re.findall(r"--format \{([\w,]+)\}", capsys.readouterr().out))
    assert offered == {",".join(FORMATS)}


def test_folders_have_markers_of_their_own():
    markers = {name: form.marker for name, form in FORMATS.items() if form.marker}
    assert markers == {"savedmodel": "saved_model.pb", "web": "networks.json"}


def test_only_tflite_rounds_weights():
    assert [name for name, form in FORMATS.items() if form.has_float16] == ["tflite"]
