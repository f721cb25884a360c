"""Exported generators: outputs of the files, and refused or failed exports, which keep the old file."""

import pathlib
import re

import numpy as np
import onnx
import pytest
import tensorflow as tf
from PIL import Image

from cyclegan.cli import export as command
from cyclegan.errors import UserError
from cyclegan.export import MARKERS, check, exporter
from cyclegan.export.exporter import EXPORT_FORMATS, ExportError, ExportFormat, ExportOptions, export
from tests.export.models import UNET, make_generator

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "export.md"
ENDINGS = {"savedmodel": "", "keras": ".keras", "onnx": ".onnx", "tflite": ".tflite"}
# TensorFlow 2.21 has the interpreter, and warns.
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*Interpreter is deprecated:UserWarning")


@pytest.fixture(scope="module")
def generator():
    return make_generator(3, 1)


def colour(size=(32, 32), seed=5):
    return np.random.default_rng(seed).integers(0, 256, (*size, 3)).astype(np.uint8)


def translated(generator, image):
    """Return the translation of an image, float32 [H, W, C] in [0, 255], not rounded."""
    return (generator(image[None] / np.float32(127.5) - 1).numpy()[0] + 1) * 127.5


@pytest.fixture(scope="module")
def exported(generator, tmp_path_factory):
    """Return a function that exports under the name in the docs, once per format, and returns the path."""
    folder, images = tmp_path_factory.mktemp("exported"), [colour(), colour((36, 40))]

    def path(form, uint8):
        out = folder / f"horse2zebra{'-uint8' if uint8 else ''}{ENDINGS[form]}"
        if not out.exists():
            difference = export(generator, out, images, ExportOptions(form, uint8))
            assert (0.49 < difference < 0.51) if uint8 else difference < 0.01
        return out

    return path


QUICK = [("savedmodel", False), ("keras", True), ("onnx", False), ("tflite", True)]
SLOW = [(form, uint8) for form in ENDINGS for uint8 in (False, True) if (form, uint8) not in QUICK]
EACH = pytest.mark.parametrize("form, uint8", QUICK + [pytest.param(*rest, marks=pytest.mark.slow) for rest in SLOW])


@pytest.mark.sampled
@EACH
def test_any_number_of_images_of_any_size(form, uint8, exported, generator):
    run = EXPORT_FORMATS[form].load(exported(form, uint8))
    for size, count in (((32, 64), 1), ((60, 44), 3), ((32, 64), 1)):
        batch = np.stack([colour(size, seed) for seed in range(count)])
        y = run(batch if uint8 else batch / np.float32(127.5) - 1)
        assert y.dtype == (np.uint8 if uint8 else np.float32) and y.shape == (count, *size, 1)
        expected = np.stack([translated(generator, image) for image in batch])
        np.testing.assert_allclose(y if uint8 else (y + 1) * 127.5, expected, atol=0.51 if uint8 else 0.01)


def test_the_command_offers_each_format(capsys):
    with pytest.raises(SystemExit):
        command.parse(["--help"])
    formats = re.search(r"--format \{([\w,]+)\}", capsys.readouterr().out)[1]
    assert set(formats.split(",")) == {*EXPORT_FORMATS, *MARKERS}


def test_inputs_and_outputs_have_names(exported):
    made = onnx.load(exported("onnx", False))
    shapes = {
        value.name: [part.dim_param or part.dim_value for part in value.type.tensor_type.shape.dim]
        for value in (*made.graph.input, *made.graph.output)
    }
    assert shapes == {"picture": ["N", "H", "W", 3], "translated": ["N", "H", "W", 1]}
    assert [part.version for part in made.opset_import if part.domain == ""] == [17]
    signatures = tf.lite.Interpreter(str(exported("tflite", True))).get_signature_list()
    assert signatures == {"serving_default": {"inputs": ["picture"], "outputs": ["translated"]}}
    serve = tf.saved_model.load(str(exported("savedmodel", False))).signatures["serving_default"]
    assert list(serve(picture=tf.zeros([1, 32, 32, 3]))) == ["translated"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "tflite"])
@pytest.mark.parametrize(
    "changes",
    [
        {"variant": "paper", "norm_affine": "yes", "upsample": "resize"},
        {"norm": "batch", "dropout": 0.5},
        {"variant": "paper", "antialias": True},
        {"generator": "unet_128", "image_size": 128, "load_size": 128, "variant": "paper", **UNET},
    ],
    ids=str,
)
def test_other_networks_are_exported(form, changes, tmp_path):
    side = changes.get("image_size", 32)
    images = [colour((side, side)), colour((2 * side, side))]
    assert export(make_generator(**changes), tmp_path / "out", images, ExportOptions(form)) < 0.02


def test_onnx_files_use_no_deprecated_way_of_resizing(tmp_path):
    export(make_generator(antialias=True), tmp_path / "out", [colour()], ExportOptions("onnx"))
    modes = [a.s for node in onnx.load(tmp_path / "out").graph.node for a in node.attribute if node.op_type == "Resize"]
    assert b"tf_half_pixel_for_nn" not in modes  # with Keras 3, there is no Resize


@pytest.mark.slow
def test_smaller_weights_and_fixed_size_in_tflite(generator, tmp_path):
    whole, half, quarter = found = [
        (export(generator, out := tmp_path / name, [colour()], options), out.stat().st_size)
        for name, options in {
            "whole": ExportOptions("tflite", size=(32, 32)),
            "half": ExportOptions("tflite", float16=True, size=(32, 32)),
            "quarter": ExportOptions("tflite", int8=True, size=(32, 32)),
        }.items()
    ]
    assert [difference for difference, _ in found] == sorted(difference for difference, _ in found)
    assert whole[0] < 0.01 and half[0] < 3 and quarter[0] < 30
    assert half[1] < 0.8 * whole[1] and quarter[1] < 0.7 * whole[1]


@EACH
def test_the_code_of_the_docs_works(form, uint8, exported, generator, tmp_path, monkeypatch):
    out = exported(form, uint8)
    page = PAGE.read_text(encoding="utf-8")
    name = f"horse2zebra{ENDINGS[form]}"
    *loading, translating = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (load,) = (code for code in loading if f'"{name}"' in code)
    program = f"{load}\n{translating}"
    if uint8:
        x, levels = re.findall(r"`((?:x|levels) = [^`]*)`", page)
        program = re.sub(r"^x = .*", x, program.replace(name, out.name), flags=re.MULTILINE)
        program = re.sub(r"^levels = .*", levels, program, flags=re.MULTILINE)
    assert len(re.findall(r"^.+", program, re.MULTILINE)) <= 10
    monkeypatch.chdir(tmp_path)
    pathlib.Path(out.name).symlink_to(out)
    Image.fromarray(colour((300, 280))).save("horse.jpg")
    exec(compile(program, str(out), "exec"), {})
    horse = np.asarray(Image.open("horse.jpg").resize((256, 256)))
    levels = np.asarray(Image.open("zebra.png")).astype(float)
    assert np.abs(levels - translated(generator, horse)[..., 0]).max() <= 0.51


def faked(function):
    """Return a format whose files compute a function [N, H, W, C] -> [N, H, W, C]."""
    return ExportFormat(lambda model, path, options: path.write_text("new"), lambda path: function)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return (function that exports over an old file in a format that computes a given function, path of the file)."""
    out = tmp_path / "out"

    def put(generator, function, **options):
        out.write_text("old")
        monkeypatch.setitem(EXPORT_FORMATS, "onnx", faked(function))
        monkeypatch.setattr(exporter, "make_portable", lambda *arguments: None)
        return export(generator, out, [colour(), colour((32, 36))], ExportOptions("onnx", **options))

    return put, out


WRONG = {
    "turned": lambda y: y[:, ::-1, ::-1],
    "inverted": lambda y: -y,
    "no number": lambda y: np.where(np.arange(y.size).reshape(y.shape) == 3, np.nan, y).astype(np.float32),
    "another type": lambda y: y.astype(np.float64),
    "another shape": lambda y: y[:1, :1],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_file_is_not_put_into_place(wrong, place, generator):
    put, out = place
    with pytest.raises(ExportError, match="out was not written|an image became") as raised:
        put(generator, lambda x: WRONG[wrong](generator(x).numpy()))
    assert raised.value.exit_code == 1
    assert out.read_text() == "old" and list(out.parent.iterdir()) == [out]


def test_a_file_with_other_rounding_is_written_and_its_difference_returned(place, generator):
    put, out = place
    assert put(generator, lambda x: generator(x).numpy() + np.float32(0.0014)) == pytest.approx(0.18, rel=0.01)
    assert out.read_text() == "new" and list(out.parent.iterdir()) == [out]
    one = lambda y: y + np.float32(0.1) * (np.arange(y.size).reshape(y.shape) == y.size - 1)  # noqa: E731
    assert put(generator, lambda x: one(generator(x).numpy())) == pytest.approx(12.75, rel=0.01)

    def levels(x, change=np.rint):
        return change((generator(x / np.float32(127.5) - 1).numpy() + 1) * 127.5).astype(np.uint8)

    assert 0.49 < put(generator, levels, uint8=True) <= 0.5
    assert put(generator, lambda x: levels(x, np.floor), uint8=True) > ExportOptions("onnx", uint8=True).tolerance


def test_existing_files_are_replaced_on_request_only(generator, tmp_path, monkeypatch):
    for name in ("saved", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("old")
    (tmp_path / "saved" / "saved_model.pb").write_text("old")
    for name, form, overwrite, text in (
        ("saved", "savedmodel", False, "saved exists; choose another name, or --overwrite"),
        ("file", "tflite", False, "file exists"),
        ("saved", "tflite", True, "saved is a folder that --format tflite did not make"),
        ("other", "savedmodel", True, "other is a folder that --format savedmodel did not make"),
        ("saved", "hub", True, "saved is a folder that --format hub did not make"),
        ("[saved]/new", "savedmodel", False, "TensorFlow loads no SavedModel from a path with"),
        ("file/model", "onnx", True, "file: Not a directory; expected a folder that can be written to"),
    ):
        with pytest.raises(UserError, match=text):
            check(tmp_path / name, form, overwrite)
    same = ExportFormat(lambda model, path, options: path.mkdir(), lambda path: lambda x: generator(x).numpy())
    monkeypatch.setitem(EXPORT_FORMATS, "savedmodel", same)
    for name in ("saved", "file"):
        check(tmp_path / name, "savedmodel", overwrite=True)
        export(generator, tmp_path / name, [colour()], ExportOptions("savedmodel"))
        assert (tmp_path / name).is_dir() and not list((tmp_path / name).iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"saved", "other", "file"}
