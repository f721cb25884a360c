import json
import logging
import re
import shutil
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from cyclegan.cli import export
from cyclegan.config import Config, serialization
from cyclegan.config.data import DataConfig
from cyclegan.errors import UserError
from cyclegan.export import exporter, hub, web_page
from cyclegan.networks import compat
from cyclegan.run import metrics_log
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
    assert export.main([str(run), out, *flags]) < 0.01
    lines = caplog.messages
    assert capsys.readouterr().err == "" and re.fullmatch(
        r"\S+out.keras: keras, 0\.\d MB, of \S+epoch_0001-1", lines[0]
    )
    assert lines[1:3] == ["picture: float32 [1, 32, 64, 1]", "translated: float32 [1, 32, 64, 3]"]
    assert re.fullmatch(r"y2x: compared .* on 1 image \(\S+data, testB\), 32 x 64 pixels", lines[3])
    assert re.fullmatch(r"largest difference from the network: \S+ gray levels of 255", lines[4])
    with pytest.raises(UserError, match="out.keras exists"):
        export.main([str(run), out])
    caplog.clear()
    assert export.main([str(run), out, "--format", "keras", "--uint8", "--overwrite"]) < 0.51
    lines = caplog.messages
    assert lines[0].endswith("epoch_0002-2") and lines[2] == "translated: uint8 [N, H, W, 1]"
    assert lines[1] == "picture: uint8 [N, H, W, 3], H and W multiples of 4"
    assert re.search(r"on 2 images \(\S+data, testA\), 32 x 32 and 36", lines[3])
    assert [record.levelname for record in caplog.records] == ["INFO"] * 5


@pytest.mark.parametrize("count, text", [(39_040, "39.0 kB"), (100_000, "0.1 MB"), (113_200_000, "113.2 MB")])
def test_the_size_of_a_small_file_is_not_zero(tmp_path, count, text):
    with open(tmp_path / "x.onnx", "wb") as file:
        file.truncate(count)
    assert export._size(tmp_path / "x.onnx") == export._size(tmp_path) == text


def test_a_difference_that_files_show_is_a_warning(run, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(exporter, "export", lambda *arguments: 0.6)
    with caplog.at_level(logging.INFO, "cyclegan.export"):
        assert export.main([str(run), str(tmp_path / "new.onnx")]) == 0.6
    assert "0.6 gray levels of 255, more than the 0.5 of rounding" in caplog.records[-1].message
    assert caplog.records[-1].levelname == "WARNING"


@pytest.mark.parametrize(
    "flags, text",
    [
        ("out --format onnx --float16", "--float16 with --format onnx: only tflite has it"),
        ("out --format tflite --float16 --int8", "--float16 with --int8: expected one of them"),
        ("out --format hub --uint8", "--uint8 with --format hub: only savedmodel, keras, onnx, tflite has it"),
        ("out --format web --size 64", "--size with --format web: only savedmodel"),
        ("out --format onnx --runtime cdn", "--runtime with --format onnx: only web has it"),
        (
            "out",
            r"out: expected --format \(savedmodel, keras, .*web, hub\), or a name that ends in one of .keras .onnx",
        ),
        ("out --format keras", "out: --format keras expects a name that ends in .keras"),
        ("b.keras --format onnx", "b.keras: --format onnx expects a name that ends in .onnx"),
        ("b.onnx --format savedmodel", "b.onnx: --format savedmodel expects a name without an ending"),
        ("out --format web --runtime absent", "--runtime absent: expected a folder with ort"),
        ("out --format web --runtime cdn", "TensorFlow is not needed yet"),
        ("out --format onnx --size 30", "--size 30x30: expected multiples of 4 pixels"),
        ("out --format onnx --pictures no.png", r"--pictures no.png: no file or folder.*; expected image files"),
        ("out --format onnx --pictures .", r"--pictures \.: a .*; expected image files"),
    ],
)
def test_impossible_requests_are_refused_before_tensorflow_starts(run, tmp_path, monkeypatch, flags, text):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(export.terminal, "start", mock.Mock(side_effect=UserError("TensorFlow is not needed yet")))
    with pytest.raises(UserError, match=text):
        export.main([str(run), *flags.split()])
    assert not list(tmp_path.iterdir())


def test_swapped_arguments_and_sizes_are_named(run, tmp_path, capsys):
    with pytest.raises(UserError, match="out: no such folder, .*, but .* is a run: swap them"):
        export.main([str(tmp_path / "out"), str(run), "--format", "onnx"])
    with pytest.raises(SystemExit):
        export.main([str(run), str(tmp_path / "out"), "--format", "onnx", "--size", "3a"])
    assert "expected a number of pixels, or WIDTHxHEIGHT" in capsys.readouterr().err


def test_values_of_ranges_are_logged(caplog):
    both, one = DataConfig(value_range_x="-1000:2000", value_range_y="0:4095"), DataConfig(value_range_y="0:4095")
    with caplog.at_level(logging.INFO, "cyclegan.export"):
        export._log_signature((1, 1), exporter.ExportOptions("onnx"), both, "y2x", 4)
        export._log_signature((1, 1), exporter.ExportOptions("onnx", uint8=True), one, "x2y", 4)
    assert [text for text in caplog.messages if "stand for" in text] == [
        "picture: -1 and 1 stand for the values 0 and 4095",
        "translated: -1 and 1 stand for the values -1000 and 2000",
        "translated: 0 and 255 stand for the values 0 and 4095",
    ]


def test_a_folder_for_a_model_hub(run, tmp_path, monkeypatch, caplog):
    """Its card names the data, the settings, the scores and the limits, and no folder of this machine."""
    run = shutil.copytree(run, tmp_path / "run")
    (run / "samples").mkdir()
    Image.new("RGB", (8, 8)).save(run / "samples" / "epoch_002.png")
    lines = [
        {"split": "test", "epoch": epoch, "step": epoch, "error/MAE(X, F(G(X)))": error, "score/x2y/PSNR": 20 + error}
        for epoch, error in ((1, 0.1), (2, 0.3), (3, 0.05))  # the last one is from after the checkpoint
    ]
    lines[1].update({"score/x2y/KID_std": 0.5, "score/x2y/FID": 1.5})
    changed = {"event": metrics_log.CHANGED, "changes": ["lr 0.1 -> 0.2", "filters 4 -> 8"]}
    lines.insert(1, {"split": "steps", "epoch": 1, "step": 1, **changed})
    lines.append({"split": "steps", "epoch": 2, "step": 2, **changed, "changes": ["later"]})
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    saved = serialization.load(run / "config.json")
    config = saved.config.replace(evaluate_features=f"fid:{tmp_path / 'graph.tgz'}")
    serialization.save(run / "config.json", config, saved.stack, saved.data)
    out = tmp_path / "card"
    caplog.set_level(logging.INFO, "cyclegan.export")
    assert export.main([str(run), str(out), "--format", "hub"]) < 0.01
    assert f"{out / 'README.md'}: set its `license`, now unknown, before you upload the folder" in caplog.messages
    networks = {f"{direction}.{form}" for direction in ("x2y", "y2x") for form in ("keras", "onnx")}
    assert {path.name for path in out.iterdir()} == {
        *networks,
        "README.md",
        "config.json",
        "samples.png",
        "scores.json",
    }
    assert json.loads((out / "config.json").read_text())["config"]["data"]["dataset"] == "data"
    scores = json.loads((out / "scores.json").read_text())
    assert scores["error/MAE(X, F(G(X)))"] == {"best": 0.1, "best_epoch": 1, "last": 0.3, "last_epoch": 2}
    assert scores["score/x2y/PSNR"]["best_epoch"] == 2
    assert scores["score/x2y/KID_std"] == {"last": 0.5, "last_epoch": 2}  # a deviation has no best
    few = hub.best_and_last(metrics_log.epochs(run / "metrics.jsonl"), 2, has_best=False)
    assert few["score/x2y/PSNR"] == {"last": 20.3, "last_epoch": 2}
    card = (out / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: ") and "| error/MAE(X, F(G(X))) | 0.1 (epoch 1) | 0.3 (epoch 2) |" in card
    assert "| score/x2y/KID_std | - | 0.5 (epoch 2) |" in card
    assert "FID and KID compare the features fid:graph.tgz." in card
    assert "changes before it:\n\n- lr 0.1 -> 0.2, filters 4 -> 8 after epoch 1\n\n## Scores" in card
    assert "--filters 4" in card and "`data`" in card and "## Limits" in card and "![" in card
    assert str(tmp_path) not in "".join(path.read_text() for path in (out / "README.md", out / "config.json"))
    (out / "README.md").write_text(card.replace("license: unknown", "license: mit"))
    (out / ".git" / "refs").mkdir(parents=True)
    (out / "LICENSE").symlink_to("nowhere")
    (out / "notes").write_text("mine")
    assert export.main([str(run), str(out), "--format", "hub", "--direction", "x2y", "--overwrite"]) < 0.01
    assert (out / "README.md").read_text().startswith("---\nlicense: mit\n") and (out / ".git" / "refs").is_dir()
    assert (out / "LICENSE").is_symlink() and (out / "notes").read_text() == "mine" and not (out / "y2x.onnx").exists()
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]
    Image.new("RGB", (50, 40)).save(out / "image.jpg")
    monkeypatch.chdir(out)
    exec(code, {})
    with Image.open(out / "translation.png") as translation:
        assert translation.size == (32, 32)
    saved = json.loads((run / "config.json").read_text())
    saved["config"]["data"].update({"value_range_x": "40:90", "value_range_y": "7:10"})
    saved["data"]["masks of trainA"] = "3 images (1)"
    (run / "config.json").write_text(json.dumps(saved))
    export.main([str(run), str(out), "--format", "hub", "--overwrite"])
    card = (out / "README.md").read_text(encoding="utf-8")
    assert hub.MASKED in card and hub.MASKED in caplog.messages
    Image.new("RGB", (32, 32), (40, 65, 90)).save(out / "image.png")
    monkeypatch.chdir(out)
    values: dict = {}
    exec(re.search(r"```python\n(.*?)```", card, re.DOTALL)[1], values)
    assert values["x"].shape == (1, 32, 32, 3) and values["x"][0, 0, 0].tolist() == [-1, 0, 1]
    translation = np.load(out / "translation.npy")
    np.testing.assert_allclose(translation, (values["y"][0] + 1) * 1.5 + 7, rtol=1e-6)


@pytest.mark.sampled
@pytest.mark.parametrize("direction, inputs", [("y2x", {"y2x": 1}), (None, {"x2y": 3, "y2x": 1})])
def test_the_script_makes_a_page(run, tmp_path, caplog, direction, inputs):
    page, given = tmp_path / "page", [*WEB, "--direction", direction] if direction else WEB
    with caplog.at_level(logging.INFO, "cyclegan.export"):
        assert 0 < export.main([str(run), str(page), *given]) < 0.5
    files = {path.name for path in page.iterdir()}
    sources = {path.name for path in web_page.PAGE_FILES.iterdir()}
    assert files == {*sources, "networks.json", *(f"{name}.onnx" for name in inputs)}
    settings = json.loads((page / "networks.json").read_text(encoding="utf-8"))
    assert {each["name"]: each["inputs"] for each in settings["directions"]} == inputs
    assert settings["runtime"].startswith(web_page.CDN) and (settings["side"], settings["multiple"]) == (32, 4)
    assert "<title>CycleGAN: run</title>" in (page / "index.html").read_text(encoding="utf-8")
    assert caplog.messages[0].endswith(f"of {run}/checkpoints/epoch_0002-2") and "http.server" in caplog.messages[-1]


def test_a_page_of_value_ranges_is_refused(run, tmp_path):
    path = shutil.copytree(run, tmp_path / "run") / "config.json"
    serialization.save(path, serialization.load(path).config.replace(value_range_y="0:4095"), compat.stack(), {})
    with pytest.raises(UserError, match="run: has value ranges, which browsers cannot read"):
        export.main([str(path.parent), str(tmp_path / "page"), *WEB])
