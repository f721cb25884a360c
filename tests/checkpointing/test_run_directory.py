import pytest

from cyclegan.checkpointing import folder, manifest
from cyclegan.checkpointing.run_directory import RunDirectory
from cyclegan.config import Config, serialization
from cyclegan.errors import UserError
from tests.checkpointing.runs import DATA, STACK, open_run
from tests.checkpointing.saves import at


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
        "generator 'resnet_9blocks' -> 'resnet_2blocks', residual_blocks 9 -> 2, filters 64 -> 8" in text
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
        with pytest.raises(UserError, match=r"differs: trainA 3 images \(1\) -> 3 images \(2\)\. Use"):
            third.check_data({"trainA": "3 images (2)", "trainA bytes": "30 bytes (3)"})


def test_the_other_stack_is_refused(run_folder):
    with pytest.raises(UserError, match=r"trained with TensorFlow 2\.15\.1 \(Keras 2\), this is 2\.21\.0 \(Keras 3\)"):
        open_run(run_folder, stack={"keras": 3, "tensorflow": "2.21.0"})


def test_clearing_removes_only_files_of_a_run(run_folder):
    (run_folder / "notes.txt").write_text("mine")
    (run_folder / "metrics.jsonl").write_text("")
    (run_folder / "events.out.tfevents.1").write_text("")
    for name in (
        "test/events.out.tfevents.2",
        "steps/events.out.tfevents.0000000001",
        "index.html",
        "samples/epoch_010.png",
        "samples/epoch_010/frames.json",
        "samples/epoch_010/fake_y_1.png",
        "samples/epoch_020/cycle_x_1.png",
        "samples/epoch_020/mine.png",
        "samples/inputs/x_1.png",
        "samples/holiday.png",
        "test/precious.txt",
    ):
        (run_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (run_folder / name).write_text("")
    with open_run(run_folder, filters=8, clear_output_dir=True) as again:
        again.start(DATA)
    left = sorted(str(path.relative_to(run_folder)) for path in run_folder.rglob("*") if path.is_file())
    mine = ["notes.txt", "samples/epoch_020/mine.png", "samples/holiday.png", "test/precious.txt"]
    assert left == [".lock", "config.json", *mine]
    for name in ("checkpoints", "steps", "samples/inputs", "samples/epoch_010"):
        assert not (run_folder / name).exists()
    assert serialization.load(run_folder / "config.json").config.networks.filters == 8


FOREIGN = (
    "plugins/mine/x.txt",
    "plugins/profile/2026_01_01/notes.txt",
    "checkpoints/epoch_notes.txt",
    "checkpoints/epoch_0001.txt",
    "checkpoints/epoch_0001/notes/x.txt",
    "checkpoints/best-x2y/why.txt",
    "samples/epoch_010/mine/fake_x_1.png",
    "steps/deep/events.out.tfevents.1",
    *("events.out.tfevents.mine", "plugins/profile/mine/host.xplane.pb"),
    *("checkpoints/.backup_epoch_0001/state.index", "checkpoints/epoch_1_notes/state.index"),
    *("checkpoints/.partial_epoch_notes/x.txt", "checkpoints/best-x2x/state.index"),
    *("samples/epoch_notes.png", "samples/epoch_mine/fake_x_1.png", "samples/inputs/x_mine.png"),
)


def test_clearing_leaves_foreign_files(run_folder):
    own = (
        *("checkpoints/epoch_0001/manifest.json", "checkpoints/epoch_0001/state.data-00000-of-00001"),
        *("checkpoints/.partial_epoch_0002/state_temp/part-1", "samples/epoch_010/fake_x_1.png"),
        *("plugins/profile/2026_01_01/host.xplane.pb", "index.html.partial", "samples/inputs/x_1.png.partial"),
    )
    for name in (*FOREIGN, *own):
        (run_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (run_folder / name).write_text(name)
    with open_run(run_folder, filters=8, clear_output_dir=True) as again:
        again.start(DATA)
    left = sorted(str(path.relative_to(run_folder)) for path in run_folder.rglob("*") if path.is_file())
    assert left == sorted((".lock", "config.json", *FOREIGN))
    assert not folder.checkpoints(run_folder / "checkpoints")


LINKS = ("checkpoints", "samples", "samples/inputs", "samples/epoch_010", "test", "steps", "plugins", "plugins/profile")


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("name", [*LINKS, "metrics.jsonl", "events.out.tfevents.0000000001", "samples/epoch_010.png"])
def test_a_link_out_is_refused(tmp_path, name, clear, exists):
    run, outside = tmp_path / "run", tmp_path / "outside"
    with open_run(run) as first:
        first.start(DATA)
    if exists and name in LINKS:
        for inside in ("epoch_0001/state.index", "epoch_010.png", "x_1.png", "events.out.tfevents.1"):
            (outside / inside).parent.mkdir(parents=True, exist_ok=True)
            (outside / inside).write_text("precious")
    elif exists:
        outside.write_text("precious")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(outside)
    with pytest.raises(UserError, match=f"{run / name}: a symbolic link that .* use another --output_dir"):
        open_run(run, clear_output_dir=clear)
    files = [path for path in (outside, *outside.rglob("*")) if path.is_file()]
    assert [path.read_text() for path in files] == ["precious"] * (exists and (4 if name in LINKS else 1))


@pytest.mark.parametrize("name", ["config.json.partial", "index.html.partial", "checkpoints/epoch_0002"])
def test_a_link_that_nothing_is_written_through_is_no_obstacle(run_folder, tmp_path, name):
    (tmp_path / "outside" / "state.index").parent.mkdir()
    (tmp_path / "outside" / "state.index").write_text("precious")
    (run_folder / name).symlink_to(tmp_path / "outside" / ("" if name.startswith("checkpoints") else "state.index"))
    for clear in (False, True):
        with open_run(run_folder, clear_output_dir=clear) as again:
            again.start(DATA)
    assert (tmp_path / "outside" / "state.index").read_text() == "precious"
    assert serialization.load(run_folder / "config.json").data == DATA


def test_a_log_without_checkpoints_is_refused(tmp_path):
    with open_run(tmp_path) as run:
        run.start(DATA)
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="has begun to train, but no complete checkpoint .*--clear_output_dir"):
        open_run(tmp_path)
    open_run(tmp_path, clear_output_dir=True).close()


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_that_lost_its_checkpoints_before_its_first_log_line_is_refused(tmp_path, resumed):
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
    text = "imported run, but no complete checkpoint in .*; expected the one of the imported networks: put it back"
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
