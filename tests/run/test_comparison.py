import pytest

from cyclegan.errors import UserError
from cyclegan.run import comparison
from tests.run.compared_runs import make_run, two_runs


@pytest.fixture
def runs(tmp_path):
    return two_runs(tmp_path)


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


# Numbers that no figure can show.
ABSURD = [
    f'{{"split": "test", "epoch": {epoch}, "step": 1, "FID": {value}}}'
    for epoch, value in ((1, 10**400), (10**400, 1), (10**40, 1), (1, 1e308))
]


def test_mistakes_are_one_sentence(tmp_path, runs):
    with pytest.raises(UserError, match="no such file"):
        comparison.read([tmp_path / "none"])
    new = make_run(tmp_path / "new", [])
    with pytest.raises(UserError, match="new: no metrics yet; expected a run that finished an epoch"):
        comparison.curves_png(comparison.read([new]))
    for line in ("[]", *ABSURD, "[" * 100_000):
        (runs[0] / "metrics.jsonl").write_text(line + "\n")
        with pytest.raises(UserError, match=r"metrics\.jsonl can't be read"):
            comparison.read(runs)
