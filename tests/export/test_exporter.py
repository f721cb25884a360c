"""Exported generators: what the files do, what is refused, and that nothing is lost or left behind when it fails."""

import pathlib
import re

import numpy as np
import pytest
from PIL import Image

from cyclegan.checkpointing.manager import CheckpointManager
from cyclegan.checkpointing.train_state import TrainState
from cyclegan.config import Config, serialization
from cyclegan.errors import UserError
from cyclegan.export.exporter import (
    FLOAT16_TOLERANCE,
    FORMATS,
    ExportError,
    Format,
    _put,
    export,
    importlib,
    os,
    pictures_for,
    portable,
)
from cyclegan.networks import compat
from scripts import export as script
from tests.export.test_portable import TINY, UNET, make_generator

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "export.md"
ENDINGS = {"savedmodel": "", "keras": ".keras", "onnx": ".onnx", "tflite": ".tflite"}
# TensorFlow 2.21 about its interpreter, which it still has.
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*Interpreter is deprecated:UserWarning")


@pytest.fixture(scope="module")
def generator():
    return make_generator(3, 1)


@pytest.fixture(scope="module")
def run(generator, tmp_path_factory):
    """The folder of a run from 3 channels to 1, on pictures in a folder."""
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
    checkpoints = CheckpointManager(folder / "run" / "checkpoints", {"G": generator, "F": make_generator(1, 3)})
    for epoch in (1, 2):
        checkpoints.save(TrainState(epoch=epoch))
    return folder / "run"


def colour(size=(32, 32), seed=5):
    return np.random.default_rng(seed).integers(0, 256, (*size, 3)).astype(np.uint8)


def translated(generator, picture):
    """float32 [H, W, C] in [0, 255], not rounded."""
    return (generator(picture[None] / np.float32(127.5) - 1).numpy()[0] + 1) * 127.5


@pytest.fixture(scope="module")
def exported(generator, tmp_path_factory):
    """A function that gives the path of an export under the names that the pages use; each is made once."""
    folder, compared = tmp_path_factory.mktemp("exported"), [colour(), colour((36, 40))]

    def path(form, uint8):
        out = folder / f"horse2zebra{'-uint8' if uint8 else ''}{ENDINGS[form]}"
        if not out.exists():
            difference = export(generator, out, form, compared, uint8)
            assert (0.49 < difference < 0.51) if uint8 else difference < 1e-4
        return out

    return path


QUICK = [("savedmodel", False), ("keras", True), ("onnx", False), ("tflite", True)]
SLOW = [(form, uint8) for form in ENDINGS for uint8 in (False, True) if (form, uint8) not in QUICK]
EACH = pytest.mark.parametrize("form, uint8", QUICK + [pytest.param(*rest, marks=pytest.mark.slow) for rest in SLOW])


@EACH
def test_any_number_of_pictures_of_any_size(form, uint8, exported, generator):
    run = FORMATS[form].load(exported(form, uint8))
    for size, count in (((32, 64), 1), ((60, 44), 3), ((32, 64), 1)):
        batch = np.stack([colour(size, seed) for seed in range(count)])
        y = run(batch if uint8 else batch / np.float32(127.5) - 1)
        assert y.dtype == (np.uint8 if uint8 else np.float32) and y.shape == (count, *size, 1)
        expected = np.stack([translated(generator, picture) for picture in batch])
        np.testing.assert_allclose(y if uint8 else (y + 1) * 127.5, expected, atol=0.51 if uint8 else 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "tflite"])
@pytest.mark.parametrize(
    "changes",
    [
        {"variant": "paper", "norm_affine": "yes", "upsample": "resize"},
        {"norm": "batch", "dropout": 0.5},
        {"generator": "unet_128", "image_size": 128, "load_size": 128, "variant": "paper", **UNET},
    ],
    ids=str,
)
def test_networks_of_other_kinds(form, changes, tmp_path):
    side = changes.get("image_size", 32)
    compared = [colour((side, side)), colour((2 * side, side))]
    assert export(make_generator(**changes), tmp_path / "out", form, compared) < 1e-4


@EACH
def test_the_code_of_the_pages_works(form, uint8, exported, generator, tmp_path, monkeypatch):
    out = exported(form, uint8)
    page = PAGE.read_text(encoding="utf-8")
    name = f"horse2zebra{ENDINGS[form]}"
    (program,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if f'"{name}"' in code)
    if uint8:
        x, levels = re.findall(r"`((?:x|levels) = [^`]*)`", page)
        program = re.sub(r"^x = .*", x, program.replace(name, out.name), flags=re.MULTILINE)
        program = re.sub(r"^levels = .*", levels, program, flags=re.MULTILINE)
    assert program.strip().count("\n") <= 10
    monkeypatch.chdir(tmp_path)
    pathlib.Path(out.name).symlink_to(out)
    Image.fromarray(colour((300, 280))).save("horse.jpg")
    exec(compile(program, str(out), "exec"), {})
    horse = np.asarray(Image.open("horse.jpg").resize((256, 256)))
    levels = np.asarray(Image.open("zebra.png")).astype(float)
    assert np.abs(levels - translated(generator, horse)[..., 0]).max() <= 0.51


def test_back_a_named_checkpoint_and_a_fixed_size(run, tmp_path, capsys):
    out = str(tmp_path / "out.keras")
    flags = ["--format", "keras", "--direction", "y2x", "--checkpoint", "epoch_0001", "--size", "64x32"]
    assert script.main([str(run), out, *flags]) < 1e-4
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert said.err == "" and re.fullmatch(r"\S+out.keras: keras, 0\.\d MB, of \S+epoch_0001", lines[0])
    assert lines[1:3] == ["picture: float32 [1, 32, 64, 1]", "translated: float32 [1, 32, 64, 3]"]
    assert re.fullmatch(r"largest .* allowed 0.001; on 2 pictures \(\S+trainB\), 32 x 64 pixels", lines[3])
    with pytest.raises(UserError, match="out.keras is there already"):
        script.main([str(run), out, "--format", "keras"])
    assert script.main([str(run), out, "--format", "keras", "--uint8", "--overwrite"]) < 0.51
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("epoch_0002") and lines[2] == "translated: uint8 [N, H, W, 1]"
    assert lines[1] == "picture: uint8 [N, H, W, 3], H and W multiples of 4"
    assert re.search(r"grey levels, allowed 0.6275; on 2 pictures \(\S+testA\), 32 x 32 and 36", lines[3])


@pytest.mark.slow
def test_float16_weights_and_a_fixed_size_in_tensorflow_lite(generator, tmp_path):
    differences = [
        export(generator, tmp_path / name, "tflite", [colour()], float16=name == "half", size=(32, 32))
        for name in ("whole", "half")
    ]
    assert differences[0] < 1e-4 < differences[1] < FLOAT16_TOLERANCE
    whole, half = ((tmp_path / name).stat().st_size for name in ("whole", "half"))
    assert half < 0.8 * whole


def faked(function):
    """A format whose files do what a function says, [N, H, W, C] -> [N, H, W, C]."""
    return Format(lambda model, path, float16: path.write_text("new"), lambda path: function)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A function that exports in a format that does what is said, over an old file; and the path."""
    out = tmp_path / "out"

    def put(generator, function, **options):
        out.write_text("old")
        monkeypatch.setitem(FORMATS, "onnx", faked(function))
        monkeypatch.setattr(portable, "network", lambda *arguments: None)
        return export(generator, out, "onnx", [colour(), colour((32, 36))], overwrite=True, **options)

    return put, out


WRONG = {
    "off": lambda y: y + 0.0011,
    "in one pixel": lambda y: y + 0.0011 * (np.arange(y.size).reshape(y.shape) == y.size - 1),
    "no number": lambda y: np.where(np.arange(y.size).reshape(y.shape) == 3, np.nan, y).astype(np.float32),
    "another type": lambda y: y.astype(np.float64),
    "another shape": lambda y: y[:1, :1],
    "mirrored": lambda y: y[:, :, ::-1],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_does_something_else_is_not_put_in_place(wrong, place, generator):
    put, out = place
    with pytest.raises(ExportError, match="out was not written|a picture became") as raised:
        put(generator, lambda x: WRONG[wrong](generator(x).numpy()))
    assert raised.value.exit_code == 1
    assert out.read_text() == "old" and list(out.parent.iterdir()) == [out]
    assert put(generator, lambda x: generator(x).numpy() + np.float32(0.0009)) == pytest.approx(0.0009, rel=1e-3)
    assert out.read_text() == "new" and list(out.parent.iterdir()) == [out]


def test_levels_have_to_be_rounded(place, generator):
    put, out = place

    def levels(x, change=np.rint):
        return change((generator(x / np.float32(127.5) - 1).numpy() + 1) * 127.5).astype(np.uint8)

    assert 0.49 < put(generator, levels, uint8=True) <= 0.5
    for change in (np.floor, lambda y: np.rint(y + 0.3)):
        with pytest.raises(ExportError, match=r"by up to \d.*, expected at most 0.6275; .*out was not written"):
            put(generator, lambda x, change=change: levels(x, change), uint8=True)
    assert out.read_text() == "old"


def test_weights_that_a_converter_changes_are_noticed(generator, tmp_path, monkeypatch):
    converted = portable.network

    def changes(*arguments):
        model = converted(*arguments)
        model.set_weights([0.99 * weights for weights in model.get_weights()])
        return model

    monkeypatch.setattr(portable, "network", changes)
    with pytest.raises(ExportError, match="keras: its pictures differ from the network's by up to 0"):
        export(generator, tmp_path / "out.keras", "keras", [colour()])
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_replaced_on_request_only(generator, tmp_path, monkeypatch):
    for name in ("saved", "other", "file"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").rmdir()
    (tmp_path / "file").write_text("old")
    (tmp_path / "saved" / "saved_model.pb").write_text("old")
    for name, form, overwrite, text in (
        ("saved", "savedmodel", False, "saved is there already; expected another name, or --overwrite"),
        ("file", "tflite", False, "file is there already"),
        ("saved", "tflite", True, "saved: a folder, and no SavedModel that --format savedmodel could replace"),
        ("other", "savedmodel", True, "other: a folder, and no SavedModel"),
        ("model", "keras", True, "model: expected a name that ends with .keras"),
        ("new/model", "onnx", True, r"new/model: no folder .*new: make it"),
    ):
        with pytest.raises(UserError, match=text):
            export(generator, tmp_path / name, form, [colour()], overwrite=overwrite)
    assert (tmp_path / "file").read_text() == (tmp_path / "saved" / "saved_model.pb").read_text() == "old"
    like_ours = Format(lambda model, path, float16: path.mkdir(), lambda path: lambda x: generator(x).numpy())
    monkeypatch.setitem(FORMATS, "savedmodel", like_ours)
    for name in ("saved", "file"):
        export(generator, tmp_path / name, "savedmodel", [colour()], overwrite=True)
        assert (tmp_path / name).is_dir() and not list((tmp_path / name).iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"saved", "other", "file"}


def test_a_folder_that_can_not_be_replaced_after_all_is_still_there(tmp_path, monkeypatch):
    for name in ("made", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError):
        _put(tmp_path / "made", tmp_path / "out")
    assert (tmp_path / "out" / "out").exists()


def test_what_is_missing_or_makes_no_sense_is_said_first(run, tmp_path, monkeypatch, capsys):
    out = str(tmp_path / "out")
    for flags, text in (
        (["--format", "onnx", "--float16"], "--float16 with --format onnx: expected it with tflite only"),
        (["--format", "onnx", "--size", "30"], "--size 30x30: expected multiples of 4 pixels"),
        (["--format", "onnx", "--pictures", "no.png"], r"2 of 2 images cannot be used.*no.png"),
    ):
        with pytest.raises(UserError, match=text):
            script.main([str(run), out, *flags])
    with pytest.raises(SystemExit):
        script.main([str(run), out, "--format", "onnx", "--size", "3a"])
    assert "expected a number of pixels, or WIDTHxHEIGHT" in capsys.readouterr().err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="--format onnx needs tf2onnx, onnx, onnxruntime: install with pip install -r"):
        script.main([str(run), out, "--format", "onnx"])
    assert not list(tmp_path.iterdir())


def test_pictures_to_compare_on(run):
    config = serialization.load(run / "config.json")[0]
    data = pathlib.Path(config.dataset)
    compared, text = pictures_for(config, "x2y")
    assert [picture.shape for picture in compared] == [(32, 32, 3)] * 2 + [(36, 40, 3)] * 2
    first, second = (np.asarray(Image.open(data / "testA" / name).resize((32, 32))) for name in ("0.png", "1.png"))
    np.testing.assert_array_equal(compared[:2], [first, second])
    assert text == f"2 pictures ({data / 'testA'}), 32 x 32 and 36 x 40 pixels"
    (given,), text = pictures_for(config, "x2y", [data / "trainB" / "2.png"], (64, 32))
    assert given.shape == (64, 32, 3) and text == "1 pictures (given), 64 x 32 pixels"
    other = config.replace(dataset="stripes", channels_y=5)
    drawn, text = pictures_for(other, "y2x")
    assert [picture.shape for picture in drawn] == [(32, 32, 5)] * 2 + [(36, 40, 5)] * 2
    assert text.startswith("2 drawn pictures, ") and drawn[0].std() > 20 and (drawn[0] != drawn[1]).any()
    np.testing.assert_array_equal(drawn[0][..., :2], drawn[0][..., 3:])
