import errno
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from cyclegan.checkpointing import run_directory
from cyclegan.checkpointing.run_directory import RunDirectory
from cyclegan.config import Config, serialization
from cyclegan.errors import TrainingError, UserError

STACK = {"keras": 2, "tensorflow": "2.15.1"}
DATA = {"trainA": "3 pictures (1)"}
ROOT = pathlib.Path(__file__).resolve().parents[2]


def open_run(path, stack=STACK, **values):
    return RunDirectory(Config.from_settings(output_dir=str(path), **values), stack)


@pytest.fixture
def run(tmp_path):
    """A run that has got as far as its first checkpoint."""
    path = tmp_path / "run"
    with open_run(path) as first:
        first.start(DATA)
    for name in ("epoch_0001", "best-x2y", ".partial_best-y2x"):
        (path / "checkpoints" / name).mkdir(parents=True)
    return path


def test_looking_changes_nothing(tmp_path):
    open_run(tmp_path / "a" / "b").check_data(DATA)
    assert not list(tmp_path.iterdir())


def test_the_same_run_goes_on(run):
    with open_run(run, epochs=500, decay_from=100, verbose=0, keep=9, devices=3) as again:
        again.check_data(DATA)
        again.start(DATA)
    assert not again.warnings and serialization.load(run / "config.json")[0].epochs == 500


def test_other_settings_of_the_training_are_said(run):
    with open_run(run, lr=1.0, lambda_cycle=2.0, batch_size=2, checkpoint_minutes=0.0) as again:
        # The batch size is not among them: it is the global batch that counts, see `progress.TrainState.batch_warnings`.
        expected = ("lambda_cycle 10.0 -> 2.0", "lr 0.0002 -> 1.0", "lr_discriminator 0.0002 -> 1.0")
        assert again.warnings == [f"{change} from here on" for change in expected]


def test_more_epochs_say_that_the_decay_of_the_learning_rates_moves(run):
    with open_run(run, epochs=500) as again:
        assert again.warnings == ["decay_from 100 -> 250 from here on"]


def test_the_saved_configuration(run, tmp_path):
    with open_run(run, epochs=300, decay_from=100) as again:
        assert again.saved_config.optimization.epochs == 200 and not again.warnings
    with open_run(tmp_path / "new") as new:
        assert new.saved_config is None


def test_other_networks_are_refused_with_the_list_of_what_differs(run):
    with pytest.raises(UserError) as error:
        open_run(run, filters=8, residual_blocks=2)
    text = str(error.value)
    assert (
        "generator 'resnet_9blocks' -> 'resnet_2blocks', residual_blocks 9 -> 2, filters 64 -> 8" in text
        and "another --output_dir" in text
        and "--clear_output_dir" in text
    )


def test_another_data_set_is_refused_with_the_list_of_what_differs(run):
    text = r"differs: trainA 3 pictures \(1\) -> 4 pictures \(2\)"
    with open_run(run, dataset="elsewhere") as again, pytest.raises(UserError, match=text):
        again.check_data({"trainA": "4 pictures (2)"})


def test_images_of_the_same_names_and_other_sizes_are_said(tmp_path):
    data = {"trainA": "3 pictures (1)", "trainA bytes": "10 bytes (1)"}
    with open_run(tmp_path) as first:
        first.start(data)
    (tmp_path / "checkpoints" / "epoch_0001").mkdir(parents=True)
    repaired = {**data, "trainA bytes": "20 bytes (2)"}
    with open_run(tmp_path) as again:
        again.check_data(repaired)
        again.start(repaired)
    (text,) = again.warnings
    assert text.startswith(
        "pictures of trainA have the same names as before, but other sizes: 10 bytes (1) -> 20 bytes (2)"
    )
    with open_run(tmp_path) as third:
        third.check_data(repaired)
        assert not third.warnings
        with pytest.raises(UserError, match=r"differs: trainA 3 pictures \(1\) -> 3 pictures \(2\)\. Use"):
            third.check_data({"trainA": "3 pictures (2)", "trainA bytes": "30 bytes (3)"})


def test_the_other_stack_is_refused(run):
    with pytest.raises(UserError, match=r"trained with TensorFlow 2\.15\.1 \(Keras 2\), this is 2\.21\.0 \(Keras 3\)"):
        open_run(run, stack={"keras": 3, "tensorflow": "2.21.0"})


def test_clearing_removes_what_a_run_wrote_and_nothing_else(run):
    (run / "notes.txt").write_text("mine")
    (run / "metrics.jsonl").write_text("")
    (run / "events.out.tfevents.1").write_text("")
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
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("")
    with open_run(run, filters=8, clear_output_dir=True) as again:
        again.start(DATA)
    left = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    mine = ["notes.txt", "samples/epoch_020/mine.png", "samples/holiday.png", "test/precious.txt"]
    assert left == [".lock", "config.json", *mine]
    for name in ("checkpoints", "steps", "samples/inputs", "samples/epoch_010"):
        assert not (run / name).exists()
    assert serialization.load(run / "config.json")[0].filters == 8


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_is_taken_away_is_noticed(tmp_path, replaced):
    path = tmp_path / "run"
    run = open_run(path)
    run.start(DATA)
    run.check()
    path.rename(tmp_path / "elsewhere")
    if replaced:
        open_run(path).start(DATA)
    with pytest.raises(TrainingError, match="was removed or moved while it was trained in"):
        run.check()


def test_a_log_without_its_checkpoints_is_not_thrown_away(tmp_path):
    with open_run(tmp_path) as run:
        run.start(DATA)
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    (tmp_path / "checkpoints").symlink_to(tmp_path / "unmounted")
    with pytest.raises(UserError, match="holds the log of a run, but no checkpoint .*--clear_output_dir"):
        open_run(tmp_path)
    open_run(tmp_path, clear_output_dir=True).close()


def test_a_run_without_a_checkpoint_begins_again_with_any_settings(tmp_path):
    with open_run(tmp_path) as first:
        first.start(DATA)
    with open_run(tmp_path, filters=8) as other:
        other.check_data({"trainA": "other"})
        other.start(DATA)
    assert serialization.load(tmp_path / "config.json")[0].filters == 8


def test_an_imported_run_without_its_checkpoint_does_not_begin_with_random_weights(tmp_path):
    with open_run(tmp_path) as imported:
        imported.start({})
    with pytest.raises(UserError, match="holds an imported run, but no checkpoint in .*import them again with"):
        open_run(tmp_path)
    with open_run(tmp_path, clear_output_dir=True) as again:
        again.start(DATA)
    open_run(tmp_path).close()


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("config", [None, '{"mine": 1}', "[1]", '["config", "stack", "data"]', "{"])
def test_a_folder_of_something_else_is_neither_used_nor_cleared(run, config, clear):
    (run / "config.json").unlink()
    if config:
        (run / "config.json").write_text(config)
    with pytest.raises(
        UserError,
        match=r"holds .*, but no config\.json of a run, or a damaged one; expected .* use another --output_dir",
    ):
        open_run(run, clear_output_dir=clear)


@pytest.mark.parametrize("clear", [False, True])
def test_a_config_of_someone_else_is_not_overwritten(tmp_path, clear):
    (tmp_path / "config.json").write_text('{"mine": 1}')
    with pytest.raises(UserError, match="holds config.json, but no config.json of a run, or a damaged one"):
        open_run(tmp_path, clear_output_dir=clear)


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is not a folder that can be written to"):
        open_run(tmp_path / "file" / "run")


def test_a_place_with_a_name_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(UserError, match="--output_dir .*File name too long"):
        open_run(tmp_path / ("x" * 300))


def test_a_config_that_would_be_nested_too_deeply_is_one_of_something_else(tmp_path):
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match="holds config.json, but no config.json of a run, or a damaged one"):
        open_run(tmp_path)


def refused_as_busy(path, pid, **values):
    with pytest.raises(UserError) as error:
        open_run(path, **values)
    text = str(error.value)
    return f"{path}: another process trains there (process {pid} on " in text and "another --output_dir" in text


@pytest.mark.parametrize("clear", [False, True])
def test_a_run_that_another_process_trains_is_refused_until_that_is_done(run, clear):
    before = (run / "config.json").read_bytes()
    with open_run(run):
        assert refused_as_busy(run, os.getpid(), clear_output_dir=clear)
        assert refused_as_busy(run, os.getpid(), clear_output_dir=clear)  # the refusal did not open it
    assert (run / "config.json").read_bytes() == before
    with open_run(run, clear_output_dir=clear) as again:
        again.start(DATA)
        assert refused_as_busy(run, os.getpid())  # nor did starting


def test_closing_twice_is_harmless(run):
    first = open_run(run)
    first.close()
    with open_run(run):
        first.close()
        assert refused_as_busy(run, os.getpid())


HOLDER = """
import sys
from cyclegan.config import Config
from cyclegan.checkpointing.run_directory import RunDirectory
run = RunDirectory(Config.from_settings(output_dir=sys.argv[1]), {"keras": 2, "tensorflow": "2.15.1"})
run.start({"trainA": "3 pictures (1)"})
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("new", [False, True])
def test_a_run_is_free_again_when_its_process_was_killed(run, tmp_path, new):
    path = tmp_path / "new" if new else run
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "open\n"
            assert refused_as_busy(path, holder.pid)
        finally:
            holder.kill()
    assert str(holder.pid) in (path / ".lock").read_text()  # which alone keeps nobody out
    (path / ".lock").write_text("process 12345678901234567890 on a.host.with.a.long.name" * 3)
    with open_run(path) as again:
        again.start(DATA)
        assert (path / ".lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_of_two_starts_in_a_new_folder_the_second_is_refused(tmp_path):
    path = tmp_path / "new"
    with open_run(path) as first, open_run(path) as second, open_run(path) as third:
        first.start(DATA)
        written = (path / "config.json").read_bytes()
        with pytest.raises(UserError, match=rf"another process trains there \(process {os.getpid()} on "):
            second.start(DATA)
        first.close()
        with pytest.raises(UserError, match="another process has trained there in the meantime: start again"):
            third.start(DATA)
        assert (path / "config.json").read_bytes() == written


def test_a_refused_start_leaves_the_folder_open(run):
    for values in ({"filters": 8}, {"stack": {"keras": 3, "tensorflow": "2.21.0"}}):
        with pytest.raises(UserError):
            open_run(run, **values)
        with open_run(run):
            pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_can_be_trained_on(run, tmp_path, monkeypatch, code):
    def flock(descriptor, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(run_directory.fcntl, "flock", flock)
    for path in (run, tmp_path / "new"):
        with open_run(path) as one, open_run(path):
            one.start(DATA)


def test_nothing_stays_open(run):
    before = len(os.listdir("/proc/self/fd"))
    with open_run(run) as first:
        assert refused_as_busy(run, os.getpid())
        first.start(DATA)
    with pytest.raises(UserError):
        open_run(run, filters=8)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_without_a_standard_input_locks_too(run):
    # As cron and `nohup command <&-` start it: the first file that is opened becomes number 0.
    program = "import os; os.close(0)\n" + HOLDER.replace("sys.stdin.read()", "RunDirectory(run.config, run.stack)")
    done = subprocess.run([sys.executable, "-c", program, str(run)], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "open\n" and "another process trains there" in done.stderr
