import io
import json

import pytest
from PIL import Image

from cyclegan.commands import compare
from cyclegan.config import Config, serialization
from cyclegan.errors import UserError
from cyclegan.reporting import comparison

STACK = {"tensorflow": "2.15.1", "keras": "2.15.0"}


def make_run(folder, errors, scores=(), **settings):
    """Make the files of a run with an error and a score in each epoch."""
    folder.mkdir(parents=True)
    serialization.save(folder / "config.json", Config.from_settings(**settings), STACK, {"trainA": 3})
    lines = [{"split": "steps", "epoch": 1, "step": 1, "error/MAE": 99.0}]
    for epoch, error in enumerate(errors, 1):
        lines.append({"split": "train", "epoch": epoch, "step": epoch, "error/MAE": 99.0, "epoch_seconds": 1.5})
        lines.append({"split": "test", "epoch": epoch, "step": epoch, "error/MAE": error, "loss_X/loss": 0.25})
    for epoch, score in scores:
        lines.append({"split": "test", "epoch": epoch, "step": epoch, "score/x2y/PSNR": score})
    lines.append({"split": "train", "epoch": 1, "step": 1, "event": "skipped", "losses": {}})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"split": "te')
    return folder


@pytest.fixture
def runs(tmp_path):
    return [
        make_run(tmp_path / "a", [3.0, 1.0, 2.0], [(2, 20.0), (3, 10.0)], lr=1e-3),
        make_run(tmp_path / "b", [0.5], lr=1e-4, objective="cut", epochs=7),
    ]


def rows(folders):
    lines = comparison.table(comparison.read(folders))
    found = {line.split("  ")[0]: line.split("  ", 1)[1].split() for line in lines}
    assert len(found) == len(lines)
    return found


def test_settings_that_differ_and_metrics_stand_side_by_side(runs):
    found = rows(runs)
    assert found["lr"] == ["0.001", "0.0001"] and found["objective"] == ["cyclegan", "cut"]
    assert found["lambda_cycle"] == ["10.0", "-"]  # it has no effect with cut
    assert not {"seed", "output_dir", "tensorflow"} & set(found)
    assert found["epochs"] == ["200", "7"] and found["epochs done"] == ["3", "1"]
    assert found["error/MAE"] == ["2", "(best", "1", "in", "2)", "0.5", "(best", "0.5", "in", "1)"]
    assert found["score/x2y/PSNR"] == ["10", "(best", "20", "in", "2)", "-"]
    assert found["loss_X/loss"] == ["0.25", "0.25"]  # neither a low nor a high loss is better
    assert found["epoch_seconds"] == ["1.5", "1.5"]


def test_runs_of_the_same_name_are_told_apart(tmp_path, runs):
    other = make_run(tmp_path / "more" / "a", [1.0])
    assert [run.name for run in comparison.read([runs[0], other])] == [str(runs[0]), str(other)]


def test_the_command_prints_the_table_and_writes_the_curves(tmp_path, runs, capsys):
    png = tmp_path / "curves.png"
    compare.main([*map(str, runs), "--png", str(png)])
    assert "best 1 in 2" in capsys.readouterr().out
    with Image.open(io.BytesIO(png.read_bytes())) as image:
        assert image.format == "PNG" and image.width == 1200
        blue, orange = (
            sum(count for count, color in image.convert("RGB").getcolors(1 << 24) if color == wanted)
            for wanted in ((31, 119, 180), (255, 127, 14))
        )
    assert blue > 50 and orange > 10  # one color for each run


def test_mistakes_are_one_sentence(tmp_path, runs):
    with pytest.raises(UserError, match="no such file"):
        comparison.read([tmp_path / "none"])
    new = make_run(tmp_path / "new", [])
    with pytest.raises(UserError, match="new: no metrics yet; expected a run that finished an epoch"):
        comparison.curves_png(comparison.read([new]))
    (runs[0] / "metrics.jsonl").write_text("[]\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl can't be read"):
        comparison.read(runs)
    with pytest.raises(UserError, match="--png"):
        compare.main([str(runs[1]), "--png", str(tmp_path / "absent" / "curves.png")])
