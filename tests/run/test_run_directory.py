import pytest

from cyclegan.config import Config, serialization
from cyclegan.errors import UserError
from cyclegan.run import manifest
from cyclegan.run.run_directory import RunDirectory
from tests.run.runs import DATA, STACK, open_run
from tests.run.saves import at


def test_opening_changes_nothing(tmp_path):
    open_run(tmp_path / "a" / "b").check_data(DATA)
    assert not list(tmp_path.iterdir())


def test_free_settings_change_on_resume_without_a_warning(run_folder):
    with open_run(run_folder, epochs=500, decay_from=100, verbose=0, keep=9, devices=3) as again:
        again.check_data(DATA)
        again.start(DATA)
    assert not again.warnings and serialization.load(run_folder / "config.json").config.optimization.epochs == 500


def test_other_settings_of_the_training_cause_warnings(run_folder):
    with open_run(run_folder, lr=1.0, lambda_cycle=2.0, batch_size=2, checkpoint_minutes=0.0) as again:
        # `resume_warnings.batch_size_warnings` warns of another global batch.
        expected = ("lambda_cycle 10.0 -> 2.0", "lr 0.0002 -> 1.0", "lr_discriminator 0.0002 -> 1.0")
        assert again.warnings == [f"{change} from here on" for change in expected]


def test_more_epochs_warn_that_the_decay_moves(run_folder):
    with open_run(run_folder, epochs=500) as again:
        assert again.warnings == ["decay_from 100 -> 250 from here on"]


def test_the_saved_configuration_is_the_run_so_far(run_folder, tmp_path):
    with open_run(run_folder, epochs=300, decay_from=100) as again:
        assert again.saved_config.optimization.epochs == 200 and not again.warnings
    with open_run(tmp_path / "new") as new:
        assert new.saved_config is None


def test_other_networks_are_refused(run_folder):
    with pytest.raises(UserError) as error:
        open_run(run_folder, filters=8, residual_blocks=2)
    text = str(error.value)
    assert (
        "generator 'resnet_9blocks' -> 'resnet_2blocks', filters 64 -> 8, residual_blocks 9 -> 2" in text
        and "another --output_dir" in text
        and "--clear_output_dir" in text
    )


def test_another_dataset_is_refused(run_folder):
    text = r"differs: trainA 3 images \(1\) -> 4 images \(2\)"
    with open_run(run_folder, dataset="elsewhere") as again, pytest.raises(UserError, match=text):
        again.check_data({"trainA": "4 images (2)"})


def test_images_of_other_sizes_cause_a_warning(tmp_path):
    data = {"trainA": "3 images (1)", "trainA bytes": "10 bytes (1)"}
    with open_run(tmp_path) as first:
        first.start(data)
    (tmp_path / "checkpoints" / "epoch_0001").mkdir(parents=True)
    repaired = {**data, "trainA bytes": "20 bytes (2)"}
    with open_run(tmp_path) as again:
        again.check_data(repaired)
        again.start(repaired)
    (text,) = again.warnings
    assert text.startswith(
        "images of trainA have the same names as before, but other sizes: 10 bytes (1) -> 20 bytes (2)"
    )
    with open_run(tmp_path) as third:
        third.check_data(repaired)
        assert not third.warnings
        with pytest.raises(UserError, match=r"differs: trainA 3 images \(1\) -> 3 images \(2\); expected"):
            third.check_data({"trainA": "3 images (2)", "trainA bytes": "30 bytes (3)"})


def test_the_other_stack_is_refused(run_folder):
    with pytest.raises(UserError, match=r"trained with TensorFlow 2\.15\.1 \(Keras 2\), this is 2\.21\.0 \(Keras 3\)"):
        open_run(run_folder, stack={"keras": 3, "tensorflow": "2.21.0"})


def test_a_log_without_checkpoints_is_refused(tmp_path):
    with open_run(tmp_path) as run:
        run.start(DATA)
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="has begun to train, but no complete checkpoint .*--clear_output_dir"):
        open_run(tmp_path)
    open_run(tmp_path, clear_output_dir=True).close()


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_that_lost_its_first_checkpoint_is_refused(tmp_path, resumed):
    checkpoints = tmp_path / "checkpoints"
    with open_run(tmp_path) as run:
        run.start(DATA)
        (checkpoints / "epoch_0000").mkdir(parents=True)
        if not resumed:
            run.note_checkpoint()
    if resumed:  # killed between its first checkpoint and the note
        with open_run(tmp_path) as run:
            run.start(DATA)
    (checkpoints / "epoch_0000").rmdir()
    checkpoints.rmdir()
    with pytest.raises(UserError, match=f"begun to train, but no complete checkpoint in {checkpoints}; expected one"):
        open_run(tmp_path)
    with open_run(tmp_path, clear_output_dir=True) as run:
        run.start(DATA)
    open_run(tmp_path).close()  # stopped before its first checkpoint


def test_only_the_chief_notes_a_checkpoint(tmp_path):
    RunDirectory(Config.from_settings(output_dir=str(tmp_path)), STACK, writes=False).note_checkpoint()
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_checkpoint_accepts_any_settings(tmp_path):
    with open_run(tmp_path) as first:
        first.start(DATA)
    with open_run(tmp_path, filters=8) as other:
        other.check_data({"trainA": "other"})
        other.start(DATA)
    assert serialization.load(tmp_path / "config.json").config.networks.filters == 8


def test_an_imported_run_without_its_checkpoint_is_refused(tmp_path):
    with open_run(tmp_path) as imported:
        imported.start({})
    with pytest.raises(
        UserError, match="holds an imported run, but no complete checkpoint in .*import them again with"
    ):
        open_run(tmp_path)
    with open_run(tmp_path, clear_output_dir=True) as again:
        again.start(DATA)
    open_run(tmp_path).close()


def test_an_imported_run_that_has_started_without_its_checkpoint_is_refused(tmp_path):
    with open_run(tmp_path) as imported:
        imported.start({})
    checkpoint = tmp_path / "checkpoints" / "epoch_0000"
    checkpoint.mkdir(parents=True)
    for _ in range(2):
        with open_run(tmp_path) as run:
            run.start(DATA)
    checkpoint.rename(tmp_path / "away")
    text = (
        "imported run, but no complete checkpoint in .*; expected the checkpoint of the imported networks: put it back"
    )
    with pytest.raises(UserError, match=text):
        open_run(tmp_path)


def test_a_checkpoint_that_was_not_restored_is_refused(run_folder, tmp_path):
    with open_run(run_folder) as again:
        again.check_restored(at(200))
        with pytest.raises(UserError, match="had a checkpoint, which has just disappeared"):
            again.check_restored(None)
    with open_run(run_folder, clear_output_dir=True) as new:
        new.check_restored(None)
    with open_run(tmp_path / "new") as new:
        new.check_restored(None)


def test_a_checkpoint_beyond_the_end_of_the_run_is_refused(run_folder):
    with open_run(run_folder, epochs=300) as again:
        again.check_restored(at(300))
    with open_run(run_folder, epochs=100) as again:
        again.check_restored(at(200))
        text = "the checkpoint has done 10000000 epochs; expected at most 200, as config.json of .* one of the two"
        with pytest.raises(UserError, match=text):
            again.check_restored(at(10**7))


@pytest.mark.parametrize("prefix", [".partial_", ".removed_"])
def test_a_complete_checkpoint_of_an_interrupted_save_counts(tmp_path, prefix):
    with open_run(tmp_path) as imported:
        imported.start({})
    checkpoint = tmp_path / "checkpoints" / f"{prefix}epoch_0000"
    checkpoint.mkdir(parents=True)
    with pytest.raises(UserError, match="no complete checkpoint"):
        open_run(tmp_path)
    (checkpoint / "state.index").write_text("")
    manifest.write(checkpoint, at(0))
    with open_run(tmp_path) as run:
        assert run.saved_config


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("config", [None, '{"mine": 1}', "[1]", '["config", "stack", "data"]', "{"])
def test_a_folder_of_something_else_is_refused(run_folder, config, clear):
    (run_folder / "config.json").unlink()
    if config:
        (run_folder / "config.json").write_text(config)
    with pytest.raises(
        UserError,
        match=r"holds .*, but no config\.json of a run, or a damaged one; expected .* use another --output_dir",
    ):
        open_run(run_folder, clear_output_dir=clear)


@pytest.mark.parametrize("clear", [False, True])
def test_a_config_of_something_else_is_refused(tmp_path, clear):
    (tmp_path / "config.json").write_text('{"mine": 1}')
    with pytest.raises(UserError, match="holds config.json, but no config.json of a run, or a damaged one"):
        open_run(tmp_path, clear_output_dir=clear)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is not a folder that can be written to"):
        open_run(tmp_path / "file" / "run")


def test_a_name_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(UserError, match="--output_dir .*File name too long"):
        open_run(tmp_path / ("x" * 300))


def test_a_config_that_is_nested_too_deeply_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match="holds config.json, but no config.json of a run, or a damaged one"):
        open_run(tmp_path)


def test_a_resumed_run_keeps_its_measured_range(tmp_path):
    with open_run(tmp_path, value_range_x="auto") as first:
        assert first.config.data.value_range_x == "auto"
        first.config = first.config.replace(value_range_x="12:3981")
        first.start(DATA)
    (tmp_path / "checkpoints" / "epoch_0001").mkdir(parents=True)
    for text in ("auto", "12:3981"):
        with open_run(tmp_path, value_range_x=text) as again:
            assert again.config.data.value_range("x") == (12, 3981) and not again.warnings
    for text in (None, "0:4095"):
        with pytest.raises(UserError, match="value_range_x '12:3981' -> "):
            open_run(tmp_path, value_range_x=text)
    with pytest.raises(UserError, match="value_range_y None -> 'auto'"):
        open_run(tmp_path, value_range_x="auto", value_range_y="auto")
    with open_run(tmp_path, value_range_x="auto", clear_output_dir=True) as new:
        assert new.config.data.value_range_x == "auto"
