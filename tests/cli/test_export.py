import json
import logging
import re
import shutil
import types

import numpy as np
import pytest
from PIL import Image

from cyclegan.cli import export
from cyclegan.config import Config, serialization
from cyclegan.config.data import DataConfig
from cyclegan.errors import UserError
from cyclegan.export import exporter, web_page
from cyclegan.networks import compat
from cyclegan.run.checkpoints import CheckpointManager
from cyclegan.run.train_state import TrainState
from tests.export.models import TINY, make_generator

WEB = ["--format", "web", "--runtime", "cdn"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the folder of a run from 3 channels to 1, on images in a folder."""
    folder = tmp_path_factory.mktemp("export")
    for split, channels in (("testA", 3), ("trainB", 1)):
        (folder / "data" / split).mkdir(parents=True)
        for number in range(3):
            levels = np.random.default_rng(number).integers(0, 256, (10, 14, channels)).astype(np.uint8)
            large = Image.fromarray(levels if channels == 3 else levels[..., 0]).resize((48, 40), Image.BICUBIC)
            large.save(folder / "data" / split / f"{number}.png")
    config = Config.from_settings(
        output_dir=str(folder / "run"), dataset=str(folder / "data"), channels_y=1, pool_size=0, **TINY
    )
    (folder / "run").mkdir()
    serialization.save(folder / "run" / "config.json", config, compat.stack(), {})
    checkpoints = CheckpointManager(
        folder / "run" / "checkpoints", {"G": make_generator(3, 1), "F": make_generator(1, 3)}
    )
    for epoch in (1, 2):
        checkpoints.save(TrainState(epoch=epoch))
    return folder / "run"


def test_flags_choose_direction_checkpoint_and_size(run, tmp_path, capsys, caplog):
    caplog.set_level(logging.INFO, "cyclegan.export")
    out = str(tmp_path / "out.keras")
    flags = ["--format", "keras", "--direction", "y2x", "--checkpoint", "epoch_0001", "--size", "64x32"]
    assert export.main([str(run), out, *flags]) < 1e-4
    lines = caplog.messages
    assert capsys.readouterr().err == "" and re.fullmatch(
        r"\S+out.keras: keras, 0\.\d MB, of \S+epoch_0001-1", lines[0]
    )
    assert lines[1:3] == ["picture: float32 [1, 32, 64, 1]", "translated: float32 [1, 32, 64, 3]"]
    assert re.fullmatch(r"largest .* allowed 0.001; on 1 image \(\S+data, testB\), 32 x 64 pixels", lines[3])
    with pytest.raises(UserError, match="out.keras exists"):
        export.main([str(run), out, "--format", "keras"])
    caplog.clear()
    assert export.main([str(run), out, "--format", "keras", "--uint8", "--overwrite"]) < 0.51
    lines = caplog.messages
    assert lines[0].endswith("epoch_0002-2") and lines[2] == "translated: uint8 [N, H, W, 1]"
    assert lines[1] == "picture: uint8 [N, H, W, 3], H and W multiples of 4"
    assert re.search(r"gray levels, allowed 0.6275; on 2 images \(\S+data, testA\), 32 x 32 and 36", lines[3])


def test_impossible_requests_are_refused_first(run, tmp_path, capsys):
    out = str(tmp_path / "out")
    for flags, text in (
        (["--format", "onnx", "--float16"], "--float16 with --format onnx: only tflite has it"),
        (["--format", "onnx", "--size", "30"], "--size 30x30: expected multiples of 4 pixels"),
        (["--format", "onnx", "--pictures", "no.png"], r"1 of 2 images cannot be used.*no.png"),
    ):
        with pytest.raises(UserError, match=text):
            export.main([str(run), out, *flags])
    with pytest.raises(UserError, match="out is no file or folder, .* a run: swap them"):
        export.main([out, str(run), "--format", "onnx"])
    with pytest.raises(SystemExit):
        export.main([str(run), out, "--format", "onnx", "--size", "3a"])
    assert "expected a number of pixels, or WIDTHxHEIGHT" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_values_of_ranges_are_logged(caplog):
    both, one = DataConfig(value_range_x="-1000:2000", value_range_y="0:4095"), DataConfig(value_range_y="0:4095")
    with caplog.at_level(logging.INFO, "cyclegan.export"):
        export._log_ranges(types.SimpleNamespace(uint8=False), both, "y2x")
        export._log_ranges(types.SimpleNamespace(uint8=True), one, "x2y")
    assert caplog.messages == [
        "picture: -1 and 1 stand for the values 0 and 4095",
        "translated: -1 and 1 stand for the values -1000 and 2000",
        "translated: 0 and 255 stand for the values 0 and 4095",
    ]


@pytest.mark.sampled
@pytest.mark.parametrize("direction, inputs", [("y2x", {"y2x": 1}), (None, {"x2y": 3, "y2x": 1})])
def test_the_script_makes_a_page(run, tmp_path, caplog, direction, inputs):
    page, given = tmp_path / "page", [*WEB, "--direction", direction] if direction else WEB
    with caplog.at_level(logging.INFO, "cyclegan.export"):
        assert 0 < export.main([str(run), str(page), *given]) < exporter.TOLERANCE
    files = {path.name for path in page.iterdir()}
    sources = {path.name for path in web_page.PAGE_FILES.iterdir()}
    assert files == {*sources, "networks.json", *(f"{name}.onnx" for name in inputs)}
    settings = json.loads((page / "networks.json").read_text(encoding="utf-8"))
    assert {each["name"]: each["inputs"] for each in settings["directions"]} == inputs
    assert settings["runtime"].startswith(web_page.CDN) and (settings["side"], settings["multiple"]) == (32, 4)
    assert "<title>CycleGAN: run</title>" in (page / "index.html").read_text(encoding="utf-8")
    assert caplog.messages[-1].startswith(f"{page}: a page of {run}/checkpoints/epoch_0002-2;")


def test_a_page_of_value_ranges_is_refused(run, tmp_path):
    path = shutil.copytree(run, tmp_path / "run") / "config.json"
    serialization.save(path, serialization.load(path).config.replace(value_range_y="0:4095"), compat.stack(), {})
    with pytest.raises(UserError, match="run: has value ranges, which browsers cannot read"):
        export.main([str(path.parent), str(tmp_path / "page"), *WEB])
