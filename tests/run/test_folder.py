import pytest

from cyclegan.run import folder, manifest
from cyclegan.run.folder import Position
from tests.run.saves import at


def make(path, train_state=None, complete=True):
    """Make the folder and the manifest of a checkpoint."""
    path.mkdir(parents=True)
    (path / "state.index").write_text(path.name)
    manifest.write(path, train_state or at(1))
    if not complete:
        (path / "state.index").write_text("")


def names(path):
    return sorted(each.name for each in path.iterdir())


@pytest.mark.parametrize(
    "name, position",
    [
        ("epoch_0000", (0, 0, 0)),
        ("epoch_0012_pair_00345", (12, 345, 0)),
        ("epoch_12345_pair_01067_test_0008", (12345, 1067, 8)),
    ],
)
def test_names_are_parsed_and_formatted(name, position):
    assert Position.parse(name) == position and Position(*position).name == name
    assert folder.position_of(folder.pathlib.Path(f".partial_{name}")) == position


@pytest.mark.parametrize(
    "name", ["epoch_", "epoch_mine", "epoch_0001_test_0002", "best-x2y", ".partial_epoch_0001", "epoch_" + 16 * "9"]
)
def test_other_names_have_no_position(name):
    assert Position.parse(name) is None


def test_position_of_a_training_state():
    assert Position.of(at(3, 7, 2)) == (3, 7, 2)


def test_checkpoints_are_sorted_by_position(tmp_path):
    for name in ("epoch_0010", "epoch_0002_pair_00010", "epoch_0002", "epoch_mine", "best-x2y", ".removed_epoch_0001"):
        (tmp_path / name).mkdir()
    (tmp_path / "epoch_0011").write_text("a file")
    (tmp_path / "epoch_0013" / "notes").mkdir(parents=True)  # no file of a checkpoint
    (tmp_path / "epoch_0012").symlink_to(tmp_path / "nowhere")
    found = [path.name for path in folder.checkpoints(tmp_path)]
    assert found == ["epoch_0002", "epoch_0002_pair_00010", "epoch_0010"]
    assert folder.checkpoints(tmp_path / "missing") == []


def test_an_interrupted_replacement_is_completed(tmp_path):
    for name in ("epoch_0001", ".removed_epoch_0002", ".partial_epoch_0002", ".removed_best-x2y", ".partial_best-x2y"):
        make(tmp_path / name)
    folder.recover(tmp_path)
    assert names(tmp_path) == [
        ".removed_best-x2y", ".removed_epoch_0002", "best-x2y", "epoch_0001", "epoch_0002"
    ]  # fmt: skip
    folder.clean_up(tmp_path)
    assert names(tmp_path) == ["best-x2y", "epoch_0001", "epoch_0002"]


def test_files_of_the_user_survive_a_kill_before_their_move(tmp_path):
    for name in ("epoch_0001", ".partial_epoch_0001"):
        make(tmp_path / name)
    (tmp_path / ".partial_epoch_0001" / "mine.txt").write_text("precious")
    folder.clean_up(tmp_path)
    assert names(tmp_path) == ["epoch_0001"] and (tmp_path / "epoch_0001" / "mine.txt").read_text() == "precious"


def test_hidden_names_of_the_user_are_left_alone(tmp_path):
    (tmp_path / ".partial_notes.txt").write_text("mine")
    (tmp_path / ".removed_epoch_notes").mkdir()
    folder.clean_up(tmp_path)
    assert names(tmp_path) == [".partial_notes.txt", ".removed_epoch_notes"]


def test_removed_checkpoints_stay_removed_while_others_are_left(tmp_path):
    for name in ("epoch_0001", ".removed_epoch_0002", ".partial_epoch_0003"):
        make(tmp_path / name)
    make(tmp_path / ".partial_epoch_0002", complete=False)
    assert next(folder.candidates(tmp_path)).name == "epoch_0001"
    folder.clean_up(tmp_path)
    assert names(tmp_path) == ["epoch_0001"]


@pytest.mark.parametrize(
    "hidden, recovered",
    [
        ([".removed_epoch_0001", ".removed_epoch_0002"], "epoch_0002"),
        ([".removed_epoch_0001", ".partial_epoch_0001"], "epoch_0001"),
        ([".partial_epoch_0000"], "epoch_0000"),
    ],
)
def test_the_newest_complete_one_is_recovered_if_none_is_left(tmp_path, hidden, recovered):
    for name in hidden:
        make(tmp_path / name)
    make(tmp_path / ".partial_epoch_0009", complete=False)
    (tmp_path / ".removed_epoch_mine").mkdir()
    assert next(folder.candidates(tmp_path)).name == hidden[-1]
    folder.clean_up(tmp_path)
    assert names(tmp_path) == [".removed_epoch_mine", recovered]
    assert (tmp_path / recovered / "state.index").read_text() == hidden[-1]
