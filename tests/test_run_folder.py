import pytest

from cyclegan.config import Config
from cyclegan.errors import UserError
from cyclegan.run_folder import RunFolder

STACK = {"keras": 2, "tensorflow": "2.15.1"}
DATA = {"trainA": "3 pictures (1)"}


def open_run(path, stack=STACK, **values):
    return RunFolder(Config(output_dir=str(path), **values), stack)


@pytest.fixture
def run(tmp_path):
    """A run that has got as far as its first checkpoint."""
    path = tmp_path / "run"
    open_run(path).start(DATA)
    (path / "checkpoints" / "epoch_0001").mkdir(parents=True)
    return path


def test_looking_changes_nothing(tmp_path):
    open_run(tmp_path / "a" / "b").check_data(DATA)
    assert not list(tmp_path.iterdir())


def test_the_same_run_goes_on(run):
    again = open_run(run, epochs=500, verbose=0, keep=9, devices=3)
    again.check_data(DATA)
    again.start(DATA)
    assert not again.warnings and Config.load(run / "config.json")[0].epochs == 500


def test_other_settings_of_the_training_are_said(run):
    assert open_run(run, lr=1.0, batch_size=2).warnings == [
        "batch_size 1 -> 2 from here on",
        "lr 0.0002 -> 1.0 from here on",
    ]


def test_other_networks_are_refused_with_the_list_of_what_differs(run):
    with pytest.raises(UserError) as error:
        open_run(run, filters=8, residual_blocks=2)
    text = str(error.value)
    assert (
        "filters 64 -> 8, residual_blocks 9 -> 2" in text
        and "another --output_dir" in text
        and "--clear_output_dir" in text
    )


def test_another_data_set_is_refused_with_the_list_of_what_differs(run):
    with pytest.raises(UserError, match=r"differs: trainA 3 pictures \(1\) -> 4 pictures \(2\)"):
        open_run(run, dataset="elsewhere").check_data({"trainA": "4 pictures (2)"})


def test_the_other_stack_is_refused(run):
    with pytest.raises(UserError, match=r"trained with TensorFlow 2\.15\.1 \(Keras 2\), this is 2\.21\.0 \(Keras 3\)"):
        open_run(run, stack={"keras": 3, "tensorflow": "2.21.0"})


def test_clearing_removes_what_a_run_wrote_and_nothing_else(run):
    (run / "notes.txt").write_text("mine")
    (run / "metrics.jsonl").write_text("")
    (run / "events.out.tfevents.1").write_text("")
    for name in ("test/events.out.tfevents.2", "samples/epoch_010.png", "samples/holiday.png", "test/precious.txt"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("")
    open_run(run, filters=8, clear_output_dir=True).start(DATA)
    left = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    assert left == ["config.json", "notes.txt", "samples/holiday.png", "test/precious.txt"]
    assert not (run / "checkpoints").exists()
    assert Config.load(run / "config.json")[0].filters == 8


def test_a_run_without_a_checkpoint_begins_again_with_any_settings(tmp_path):
    open_run(tmp_path).start(DATA)
    other = open_run(tmp_path, filters=8)
    other.check_data({"trainA": "other"})
    other.start(DATA)
    assert Config.load(tmp_path / "config.json")[0].filters == 8


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("config", [None, '{"mine": 1}', "[1]", "{"])
def test_a_folder_of_something_else_is_neither_used_nor_cleared(run, config, clear):
    (run / "config.json").unlink()
    if config:
        (run / "config.json").write_text(config)
    with pytest.raises(
        UserError, match=r"holds .*, but no config\.json of a run; expected .* use another --output_dir"
    ):
        open_run(run, clear_output_dir=clear)


@pytest.mark.parametrize("clear", [False, True])
def test_a_config_of_someone_else_is_not_overwritten(tmp_path, clear):
    (tmp_path / "config.json").write_text('{"mine": 1}')
    with pytest.raises(UserError, match="holds config.json, but no config.json of a run"):
        open_run(tmp_path, clear_output_dir=clear)


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is not a folder that can be written to"):
        open_run(tmp_path / "file" / "run")
