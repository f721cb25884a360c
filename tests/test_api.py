"""`import cyclegan`: train, load, translate, score and export from Python."""

import dataclasses
import inspect
import logging
import math
import pathlib
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import cyclegan
from cyclegan.api import _check_callbacks, _messages, _plain
from cyclegan.cli.export import export_run
from cyclegan.evaluation.options import ScoreOptions
from cyclegan.inference.file_translator import Report, Request
from cyclegan.inference.model import Model

SETTINGS = {"dataset": "stripes", "image_size": 32, "filters": 2, "residual_blocks": 1, "max_dataset_size": 4}
SETTINGS.update(no_peak=True, steps_per_call=1, evaluate_every=2, precision="float32")
EarlyStopping, LambdaCallback = tf.keras.callbacks.EarlyStopping, tf.keras.callbacks.LambdaCallback


class Recorder:
    def __init__(self):
        self.epochs = []

    def on_epoch_end(self, epoch, logs):
        self.epochs.append((epoch, logs))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a run of two epochs, and the calls of a callback."""
    recorder, folder = Recorder(), tmp_path_factory.mktemp("api") / "run"
    return cyclegan.train(epochs=2, output_dir=folder, callbacks=[recorder], **SETTINGS), recorder.epochs


def test_the_package_is_imported_without_tensorflow():
    program = "import sys, cyclegan; cyclegan.UserError; assert not {'tensorflow', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_callbacks_get_the_metrics_of_the_history(trained):
    run, calls = trained
    assert [epoch for epoch, _ in calls] == [0, 1]
    history = run.history
    assert history["epoch"] == [1, 2] and history["step"] == [4, 8]
    assert {len(column) for column in history.values()} == {2}
    for epoch, logs in calls:
        assert logs["train/loss_G/total"] == history["train/loss_G/total"][epoch]
    scores = history["test/score/x2y/FID"]
    assert math.isnan(scores[0]) and scores[1] == calls[1][1]["test/score/x2y/FID"]

    rows = [line.split() for line in repr(history).splitlines()]
    assert rows[0] == ["epoch", "1", "2"]


def test_a_folder_of_images_is_no_run(tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "photo.png")
    with pytest.raises(cyclegan.UserError, match="is a folder of images; expected the folder of a run"):
        cyclegan.load(tmp_path)


def test_the_page_lists_all_arguments_with_their_defaults():
    text = (pathlib.Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    stated = {}
    for name, arguments in re.findall(r"^(cyclegan\.\w+|run\.\w+)(\((?:[^\n]*\)$|\n(?: .*\n)*\)))", text, re.MULTILINE):
        scope = {}
        exec(f"def call{arguments}: pass", scope)
        stated[name] = defaults_of(scope["call"])
        positional = inspect.getfullargspec(getattr(cyclegan, name[9:], None) or getattr(cyclegan.Run, name[4:])).args
        assert inspect.getfullargspec(scope["call"]).args == [each for each in positional if each != "self"], name
    run = cyclegan.Run
    for name, functions in {
        "cyclegan.train": (cyclegan.train,),
        "cyclegan.load": (Model,),
        "cyclegan.translate": (cyclegan.translate, Request),
        "run.x2y": (run.x2y,),
        "run.y2x": (run.y2x,),
        "run.evaluate": (run.evaluate, ScoreOptions),
        "run.export": (run.export, export_run),
        "run.restore": (run.restore,),
    }.items():
        expected = {key: value for function in functions for key, value in defaults_of(function).items()}
        given = {"self", "options"} if len(functions) > 1 else {"self"}
        given |= {"run", "checkpoint"} if name == "run.export" else set()
        assert stated.pop(name) == {key: value for key, value in expected.items() if key not in given}, name
    assert not stated
    assert all(f"`{field.name}`" in text for field in dataclasses.fields(Report) if field.repr)


def defaults_of(function):
    """Return the defaults of the parameters of a function by name."""
    return {name: each.default for name, each in inspect.signature(function).parameters.items()}


def test_unknown_options_are_explained(trained, tmp_path):
    run, _ = trained
    for call, text in (
        (lambda: run.evaluate(featurs="random"), r"^unknown settings: featurs \(do you mean features\?\)$"),
        (lambda: run.export(tmp_path / "g", fromat="onnx"), r"^unknown settings: fromat \(do you mean format\?\)$"),
        (lambda: run.export(tmp_path / "g.onnx", quantize=True), r"^unknown settings: quantize; expected direction, f"),
        (lambda: run.export(tmp_path / "g.onnx", checkpoint="epoch_0001"), "^unknown settings: checkpoint; expected "),
        (lambda: cyclegan.load(run.path, gpu=1), r"^unknown settings: gpu; expected device, precision, tile$"),
        (lambda: run.evaluate(json="x"), "^unknown settings: json; expected batch_size, data_dir, .*, real, seed$"),
        (lambda: cyclegan.translate(run, tmp_path, tmp_path, x=1), "^unknown settings: x; expected batch_size, dir"),
        (
            lambda: cyclegan.translate(run, tmp_path, tmp_path / "out", overwite=True),
            r"overwite \(do you mean overwrite",
        ),
        (lambda: run.export(tmp_path / "g.onnx", size="64x32"), r"^size '64x32': expected \(width, height\)"),
        (lambda: run.export(tmp_path / "g.onnx", size=30), "^--size 30x30: expected multiples of 4 pixels"),
        (lambda: cyclegan.translate(run, [], tmp_path / "out"), r"^source \[\]: expected at least one file or folder"),
        (lambda: cyclegan.translate(run, None, tmp_path / "out"), "^None: expected a path"),
        (
            lambda: cyclegan.translate(run, tmp_path, tmp_path, batch_size="8"),
            "batch_size '8': expected a whole number",
        ),
        (lambda: run.evaluate(max_images="5"), "max_images '5': expected a whole number of at least 2"),
        (lambda: cyclegan.load(run.path, tiles=512), r"^unknown settings: tiles \(do you mean tile\?\)$"),
    ):
        with pytest.raises(cyclegan.UserError, match=text):
            call()


def test_swapped_paths_are_named(trained, tmp_path):
    run, _ = trained
    images = tmp_path / "trainA"
    images.mkdir()
    Image.new("L", (8, 8)).save(images / "photo.png")
    for given in (run, run.path, str(run.path)):
        with pytest.raises(cyclegan.UserError, match=r"trainA is a folder of images, but .*run is a run: swap them$"):
            cyclegan.translate(images, given, tmp_path / "out")


@pytest.mark.parametrize("callbacks", [Recorder(), Recorder, [Recorder], [object()], None, "x", [EarlyStopping()]])
def test_callbacks_that_cannot_be_called_are_refused_first(callbacks, tmp_path):
    with pytest.raises(cyclegan.UserError, match=r"^callbacks .*: expected a list of objects with .* on_epoch_end"):
        cyclegan.train(output_dir=tmp_path / "run", callbacks=callbacks, **SETTINGS)
    assert not (tmp_path / "run").exists()
    _check_callbacks([LambdaCallback(on_epoch_end=print)])


def test_a_run_says_what_it_is(trained):
    run, _ = trained
    text = repr(run)
    assert str(run.path) in text and "stripes at 32 x 32 pixels" in text and "2 of 2 epochs, 8 steps" in text
    assert f"score/x2y/FID {run.history['test/score/x2y/FID'][1]:.4g}" in text


def test_a_list_and_a_folder_are_translated(trained, tmp_path):
    run, _ = trained
    images = [np.full((24 + 4 * n, 32, 3), 50 * n, np.uint8) for n in range(3)]
    translated = run.x2y(images)
    assert [each.shape for each in translated] == [each.shape for each in images]
    (tmp_path / "sub").mkdir()
    names = ["a.png", "sub/b.png", "sub/c.png"]
    for name, image in zip(names, images):
        Image.fromarray(image).save(tmp_path / name)
    found = run.x2y(tmp_path)
    assert list(found) == names
    assert cyclegan.translate(run, [tmp_path / each for each in names[:2]], tmp_path / "out").done == 2
    options = {"batch_size": np.int64(2), "overwrite": True}
    assert cyclegan.translate(run.path, [str(tmp_path / names[1])], tmp_path / "out", **options).done == 1
    for name, expected in zip(names, translated):
        np.testing.assert_array_equal(np.asarray(found[name]), expected)


def test_a_run_is_scored_and_exported(trained, tmp_path):
    run, _ = trained
    scores = run.evaluate(features="random")
    assert set(scores) == {"x2y", "y2x"} and scores["x2y"]["FID"] == pytest.approx(run.history["test/score/x2y/FID"][1])
    assert scores["x2y"]["untranslated_FID"] > 0 and run.evaluate("y2x", features="random") == {"y2x": scores["y2x"]}
    assert run.export(tmp_path / "g.keras", direction="y2x", uint8=True) < 0.51
    with pytest.raises(cyclegan.UserError, match="g.keras exists"):
        run.export(tmp_path / "g.keras")


def test_several_trainings_are_no_retracing(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("tensorflow"), "propagate", True)
    caplog.set_level(logging.WARNING, "tensorflow")  # whatever other tests have left
    warning = "5 out of the last 5 calls to <function> triggered tf.function retracing."
    with _messages():  # of a training
        logging.getLogger("tensorflow").warning(warning)
        logging.getLogger("tensorflow").warning("another one")
    logging.getLogger("tensorflow").warning(warning)
    assert caplog.messages == ["another one", warning]  # the last one as before


@pytest.mark.slow
def test_the_same_call_resumes_and_leaves_the_program_as_it_was(trained, capfd):
    run, _ = trained
    loggers = logging.getLogger("cyclegan"), logging.root
    before = [(logger.handlers[:], logger.level) for logger in loggers]
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]

    class Fault:
        def on_epoch_end(self, epoch, logs):
            raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        cyclegan.train(epochs=3, output_dir=run.path, callbacks=[Fault()], **SETTINGS)
    assert cyclegan.load(run.path).train_state.epoch == 3  # saved before the callback
    resumed = cyclegan.train(epochs=3, output_dir=run.path, **SETTINGS)
    assert resumed.train_state.epoch == 3 and cyclegan.load(run.path).history["epoch"] == [1, 2, 3]
    assert "Resumed from" in capfd.readouterr().out
    assert before == [(logger.handlers[:], logger.level) for logger in loggers]
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


@pytest.mark.parametrize("path", ["gs://bucket/x", "x" * 5000, "x" * 300, "a\0b", "~nobody-of-this-name/x", "n\udcff"])
def test_a_path_that_cannot_be_is_an_error(trained, tmp_path, path):
    run, _ = trained
    calls = [
        lambda: cyclegan.train(output_dir=path, **SETTINGS),
        lambda: cyclegan.train(**{**SETTINGS, "dataset": path}, output_dir=tmp_path),
        lambda: cyclegan.load(path),
        lambda: run.x2y(path),
        lambda: run.export(path),
        lambda: cyclegan.translate(run, tmp_path, path),
        lambda: cyclegan.translate(run, path, tmp_path),
        lambda: cyclegan.translate(run.path, tmp_path, path),
    ]
    for call in calls:
        with pytest.raises(cyclegan.UserError):
            call()


def test_values_of_python_become_those_of_the_flags(trained):
    run, _ = trained
    given = {"epochs": np.int64(1), "lr": np.float32(0.5), "no_flip": np.bool_(True), "init_from": run, "data_dir": run}
    paths = {"init_from": str(run.checkpoint), "data_dir": str(run.path)}
    assert _plain(given) == {"epochs": 1, "lr": 0.5, "no_flip": True, **paths}
    given = {"epoch_size": 8, "value_range_x": (0, 255), "diffaugment": ["color", "cutout"], "size": (4, 2)}
    texts = {"epoch_size": "8", "value_range_x": "0:255", "diffaugment": "color,cutout"}
    assert _plain(given) == {**texts, "size": (4, 2)}


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"epoch": 2}, r"unknown settings: epoch \(do you mean epochs\?\)$"),
        ({"dataroot": "x"}, r"unknown settings: dataroot \(here: dataset\)$"),
        ({"gpus": 2}, r"unknown settings: gpus; expected those of docs/api\.md$"),
        ({"dataset": "no such folder"}, "no such folder"),
        ({"dataset": ["a", "b"]}, r"^dataset \['a', 'b'\]: expected a text"),
        ({"epochs": "ten"}, "^epochs 'ten': expected a whole number"),
        ({"objective": 3}, "objective 3: expected one of cyclegan"),
        ({"objective": "cut", "lambda_cycle": 1.0}, "lambda_cycle belongs to objective cyclegan"),
        ({"preset": "none"}, "preset none: expected one of paper"),
    ],
)
def test_wrong_settings_are_explained_without_flags(settings, text, tmp_path):
    with pytest.raises(cyclegan.UserError, match=text):
        cyclegan.train(**{"dataset": "stripes", "output_dir": tmp_path / "run", **settings})
