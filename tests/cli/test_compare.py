"""The comparison of runs."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from matplotlib.figure import Figure
from PIL import Image

from cyclegan.cli import compare
from cyclegan.config import Config, serialization
from cyclegan.errors import UserError
from cyclegan.run.metrics_log import CHANGED


def make_run(folder, errors, scores=(), changes=(), **settings):
    """Make the files of a run with an error and a score in each epoch; return its folder."""
    folder.mkdir(parents=True)
    config = Config.from_settings(output_dir=str(folder), **settings)
    serialization.save(folder / "config.json", config, {}, {"trainA": "3 images"})
    lines = [{"split": "steps", "epoch": 1, "step": 1, "error/MAE": 99.0}]
    for epoch, error in enumerate(errors, 1):
        lines.append({"split": "train", "epoch": epoch, "step": epoch, "loss_X/loss": 9.0, "loss_X/penalty": 0.5})
        lines[-1].update({"seconds": 7.0, "speed/data_wait": 0.5, "skipped_steps": 0})
        lines.append({"split": "test", "epoch": epoch, "step": epoch, "error/MAE": error, "loss_X/loss": 0.25})
    lines += [{"split": "test", "epoch": epoch, "step": epoch, "score/x2y/PSNR": score} for epoch, score in scores]
    lines.append({"split": "train", "epoch": 1, "step": 1, "event": "skipped", "losses": {}})
    lines += [
        {"split": "steps", "epoch": epoch, "step": 1, "event": CHANGED, "changes": [text]} for epoch, text in changes
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"split": "te')
    return folder


@pytest.fixture
def runs(tmp_path):
    """Return the folders of two runs that differ in their settings."""
    a = make_run(tmp_path / "a", [3.0, 1.0, 2.0], [(2, 20.0), (3, 10.0)], lambda_cycle=5.0)
    return [a, make_run(tmp_path / "b", [0.5], objective="cut", lambda_nce=2.0)]


def test_settings_that_differ_and_metrics_stand_side_by_side(runs):
    lines = compare.table(compare.read(runs))
    found = {line.split("  ")[0]: line.split("  ", 1)[1].split() for line in lines}
    last = {"skipped_steps": ["0", "0"], "seconds (of training, per epoch)": ["7", "7"]}
    last["speed/data_wait (share of the time)"] = ["0.5", "0.5"]
    assert list(found)[-3:] == [*last] and {name: found.pop(name) for name in last} == last
    assert found.pop("objective") == ["cyclegan", "cut"] and found.pop("lambda_cycle") == ["5.0", "-"]
    assert found.pop("lambda_nce") == ["-", "2.0"]
    metrics = [name for name in found if "/" in name]
    assert [name.split("/")[0] for name in metrics] == ["error", "loss_X", "loss_X", "score"]
    assert {name: found[name] for name in ("", "epochs done", "steps done", *metrics)} == {
        "": ["a", "b"],
        "epochs done": ["3", "1"],
        "steps done": ["3", "1"],
        "error/MAE": ["2", "(best", "1", "in", "2)", "0.5", "(best", "0.5", "in", "1)"],
        "loss_X/loss": ["0.25", "0.25"],  # of the held-out images; neither a low nor a high loss is better
        "loss_X/penalty": ["0.5", "0.5"],
        "score/x2y/PSNR": ["10", "(best", "20", "in", "2)", "-"],
    }


def test_data_and_blocks_are_one_row_each(tmp_path):
    runs = [make_run(tmp_path / "a", [1.0]), make_run(tmp_path / "b", [1.0], generator="resnet_2blocks")]
    for run, name in zip(runs, "ab"):
        saved = json.loads((run / "config.json").read_text())
        saved["data"] = {"trainA": "30 images (aa)", "trainB": "40 images (bb)", "trainA bytes": f"9 bytes ({name})"}
        (run / "config.json").write_text(json.dumps(saved))
    rows = [line.split("  ")[0] for line in compare.table(compare.read(runs))]
    assert rows[1:5] == ["generator", "images of trainA, trainB", "epochs done", "steps done"]


def test_no_epoch_is_the_best_by_few_images(tmp_path):
    run = make_run(tmp_path / "few", [3.0, 1.0, 2.0])
    saved = json.loads((run / "config.json").read_text())
    saved["data"] = {"testA": "30 images (aa)", "testB": "2 images (bb)"}
    (run / "config.json").write_text(json.dumps(saved))
    read = compare.read([run])
    assert not any("best" in line for line in compare.table(read))
    text = "few: errors and scores rest on 2 held-out images: below 20, no epoch is the best"
    assert compare.notes(read) == [text]


def test_changes_within_a_run_and_other_weights_of_losses_are_named(tmp_path, runs):
    assert compare.notes(compare.read(runs[1:])) == []
    weights = "The losses contain other weights ({}): compare errors and scores, not losses"
    (note,) = compare.notes(compare.read(runs))  # also settings that only one run has
    assert {"lambda_cycle", "lambda_nce", "objective"} <= {*re.findall(r"\w+", note)}
    changed = make_run(tmp_path / "c", [1.0, 2.0], changes=[(0.25, "adversarial lsgan -> bce"), (1, "lr 0.1 -> 0.2")])
    assert compare.notes(compare.read([changed])) == [
        "c: adversarial lsgan -> bce after epoch 0.25", "c: lr 0.1 -> 0.2 after epoch 1", weights.format("adversarial")
    ]  # fmt: skip


def test_errors_on_other_images_are_not_to_be_compared(tmp_path):
    same = [make_run(tmp_path / name, [1.0]) for name in "ab"]
    runs = [*same, make_run(tmp_path / "c", [1.0], image_size=64, lambda_cycle=5.0)]
    for run, count in zip(runs, (30, 40, 30)):
        saved = json.loads((run / "config.json").read_text())
        saved["data"] = {"trainA": f"{count} images (aa)", "testA": "30 images (bb)"}
        (run / "config.json").write_text(json.dumps(saved))
    assert compare.notes(compare.read(same)) == []  # other training images
    errors, losses = compare.notes(compare.read(runs))
    sizes = "image_size, image_width, load_size"
    assert errors == f"Errors and scores are of other images or sizes ({sizes}): don't compare them"
    assert losses == "The losses contain other weights (lambda_cycle): don't compare them, either"


def test_the_legend_names_all_changes_and_a_peak_is_marked(tmp_path):
    changes = [(20, f"{name} 1 -> 2") for name in ("lr", "lambda_cycle")]
    (run,) = compare.read([make_run(tmp_path / "c", [1.0] * 20 + [2.0] * 29 + [90.0], changes=changes)])
    _, texts = compare._legend([run])
    assert texts[:3] == [" c", " c: lr 1 -> 2 after epoch 20", " c: lambda_cycle 1 -> 2 after epoch 20"]
    assert texts[-1] == " value above the plot"
    _, texts = compare._legend(compare.read([make_run(tmp_path / "d", [1.0, 2.0])]))
    assert texts == [" d", " held-out images", " training images"]
    figure = Figure()
    axis = figure.subplots()
    compare._draw(axis, "error/MAE", [run])
    marked = {tuple(line.get_xdata()): line.get_ydata() for line in axis.lines if line.get_marker() == "^"}
    assert marked[(50,)] == [5.0] and axis.get_ylim()[1] == 5.0


def test_changes_are_drawn_within_the_epochs_of_a_curve(tmp_path):
    changes = [(epoch, "lr 1 -> 2") for epoch in (1, 3, 9)]
    runs = [
        make_run(tmp_path / "a", [1.0], [(2, 9.0), (4, 8.0)], changes),
        make_run(tmp_path / "b", [1.0], (), changes),
    ]
    axis = Figure().subplots()
    compare._draw(axis, "score/x2y/PSNR", compare.read(runs))
    assert [line.get_xdata()[0] for line in axis.lines if line.get_linestyle() == ":"] == [3]


@pytest.mark.parametrize(
    "errors, axis",
    [
        ([10.0, 10.1], [9.7975, 10.3025]),
        ([10.0] * 25 + [10.01] * 24 + [90.0], [None, 10.5005]),
        ([1.0, 2.0], [0.95, 2.05]),
    ],
)
def test_an_axis_is_not_so_narrow_that_noise_looks_steep(tmp_path, errors, axis):
    figure = Figure()
    axes = figure.subplots()
    compare._draw(axes, "error/MAE", compare.read([make_run(tmp_path / "c", errors)]))
    assert [value for value, wanted in zip(axes.get_ylim(), axis) if wanted] == pytest.approx([e for e in axis if e])


def test_the_environment_does_not_change_the_drawing(tmp_path, runs):
    """All variables of matplotlib at once, and a home that can't be written to."""
    (tmp_path / "matplotlibrc").write_text(
        "text.usetex: True\nsavefig.dpi: 7\nsavefig.format: pdf\naxes.facecolor: red\n"
    )
    values = {"MPLBACKEND": "module://no.such.backend", "MATPLOTLIBRC": str(tmp_path), "HOME": "/dev/null"}
    values.update(MPLCONFIGDIR="/dev/null/x", XDG_CACHE_HOME="/dev/null/y", XDG_CONFIG_HOME="/dev/null/z")
    root = pathlib.Path(__file__).resolve().parents[2]
    command = [sys.executable, str(root / "scripts" / "compare.py"), *map(str, runs), "--png", "c.png"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **values}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "c.png").read_bytes() == compare.curves_png(compare.read(runs))


def test_the_command_prints_the_table_and_writes_the_curves(runs, tmp_path, capsys):
    png = tmp_path / "curves.png"
    (tmp_path / "README.md").write_text("Runs")  # the pattern * names it, too
    written = ["--png", str(png), "--json", str(tmp_path / "runs.json")]
    assert compare.main([*map(str, runs), str(tmp_path / "README.md"), *written]) == 0
    text = capsys.readouterr().out
    first, second = json.loads((tmp_path / "runs.json").read_text())
    assert first["curves"]["test"]["error/MAE"] == [[1, 3.0], [2, 1.0], [3, 2.0]]
    settings = [first["settings"][name] for name in ("batch_size", "lambda_cycle", "no_flip", "data_dir", "objective")]
    assert settings == [1, 5.0, False, None, "cyclegan"]
    assert (second["name"], second["settings"]["objective"]) == ("b", "cut")
    assert "best 1 in 2" in text and "\nValues of the last epoch, on held-out images; speed" in text
    assert f"\nLeft out, as these are files, not runs: {tmp_path / 'README.md'}\n" in text
    with pytest.raises(UserError, match="README.md is a file; expected the folder of a run"):
        compare.main([str(tmp_path / "README.md")])
    with Image.open(png) as image:
        assert image.format == "PNG" and image.width == 1200
        colors = {color: count for count, color in image.convert("RGB").getcolors(1 << 24)}
    assert colors[(31, 119, 180)] > 50 and colors[(255, 127, 14)] > 10  # one color for each run


def test_runs_of_the_same_name_are_told_apart(tmp_path, runs):
    other = make_run(tmp_path / "more" / "a", [1.0])
    assert [run.name for run in compare.read([runs[0], other])] == [str(runs[0]), str(other)]


def test_a_damaged_run_and_a_folder_without_a_run_are_left_out(tmp_path, runs, caplog):
    (make_run(tmp_path / "z", [1.0]) / "config.json").write_text("{")
    (tmp_path / "empty").mkdir()
    assert [run.name for run in compare.read([tmp_path / "z", *runs])] == ["a", "b"]
    damaged = f"left out: {tmp_path}/z/config.json can't be read as the configuration"
    assert caplog.messages[0].startswith(damaged)
    caplog.clear()
    others = [str(tmp_path / name) for name in ("empty", "z", "none")]
    written = ["--png", str(tmp_path / "curves.png")]
    assert compare.main([others[0], *map(str, runs), *others[1:], *written]) == 1
    empty, second, missing = caplog.messages
    assert empty.startswith(f"left out: {others[0]} is a folder without a run or images; expected the folder of a run")
    assert second.startswith(damaged)
    assert missing.startswith(f"left out: {others[2]}: no such folder; expected the folder of a run")
    assert compare.main([*map(str, runs), *written]) == 0
    with pytest.raises(UserError, match="empty is a folder without a run or images; expected the folder of a run"):
        compare.main(others)


def test_mistakes_are_one_sentence(tmp_path, runs):
    with pytest.raises(UserError, match="none: no such folder; expected the folder of a run"):
        compare.read([tmp_path / "none"])
    with pytest.raises(UserError, match="is a folder without a run or images; expected a run in it: a, b"):
        compare.read([tmp_path])
    (tmp_path / "photos").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "photos" / "photo.png")
    with pytest.raises(UserError, match="is a folder of images; expected the folder of a run"):
        compare.read([tmp_path / "photos"])
    (tmp_path / "config.json").write_text("")
    with pytest.raises(UserError, match="/config.json can't be read as the configuration of a run"):
        compare.read([tmp_path])
    with pytest.raises(UserError, match=r"--png notes\.txt: expected a name that ends in \.png"):
        compare.main([str(runs[0]), "--png", "notes.txt"])
    (tmp_path / "scores.json").write_text('{"directions": {}}')
    with pytest.raises(UserError, match=r"--json .*/scores\.json: another file; expected a new name, or an earlier"):
        compare.main([str(runs[0]), "--png", f"{tmp_path}/a.png", "--json", f"{tmp_path}/scores.json"])
    with pytest.raises(UserError, match=r"photos/photo\.png: another file; expected a new name, or an earlier result"):
        compare.main([str(runs[0]), "--png", f"{tmp_path}/photos/photo.png"])
    new = make_run(tmp_path / "new", [])
    assert compare.notes(compare.read([runs[0], new]))[0] == "new: has no metrics"
    with pytest.raises(UserError, match="new: no metrics yet; expected a run that finished an epoch"):
        compare.curves_png(compare.read([new]))
    with pytest.raises(UserError, match="/proc: No such file or directory; expected a folder that can be written to"):
        compare.main([str(runs[0]), "--png", "/proc/absent/curves.png"])
    compare.main([str(runs[0]), "--png", str(tmp_path / "absent" / "curves.png")])
    assert (tmp_path / "absent" / "curves.png").is_file()
