import errno
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import pytest

from cyclegan.config import serialization
from cyclegan.errors import TrainingError, UserError
from cyclegan.run import run_directory
from tests.run.saves import DATA, open_run

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_free_settings_change_on_resume(run_folder):
    with open_run(run_folder, epochs=500, decay_from=100, verbose=0, keep=9, devices=3) as again:
        again.check_data(DATA)
        again.start(DATA)
        assert again.saved_config.optimization.epochs == 200
    assert serialization.load(run_folder / "config.json").config.optimization.epochs == 500


def test_other_networks_are_refused(run_folder):
    with pytest.raises(UserError) as error:
        open_run(run_folder, filters=8, residual_blocks=2)
    differences = "generator 'resnet_9blocks' -> 'resnet_2blocks', filters 64 -> 8; expected"
    for text in (differences, "drop these flags", "another --output_dir", "--clear_output_dir"):
        assert text in str(error.value)


def test_another_dataset_is_refused(run_folder):
    text = r"differs: images in trainA 3 -> 5, held-out images of trainA none -> 1 images \(3\), trainA 3 images "
    with open_run(run_folder, dataset="elsewhere") as again, pytest.raises(UserError, match=text):
        again.check_data({"trainA": "4 images (2)", "testA": "1 images (3)"})


@pytest.mark.parametrize("inside", ["", "trainA", "trainB/sub/run", "link", "../masks/sub", "../linked/run"])
def test_a_folder_among_the_images_is_refused_before_it_is_written(tmp_path, inside):
    (tmp_path / "photos" / "trainA").mkdir(parents=True)
    (tmp_path / "photos" / "link").symlink_to("trainA")
    (tmp_path / "photos" / "maskA").symlink_to("../masks")
    (tmp_path / "photos" / "trainA" / "sub").symlink_to("../../linked")
    (tmp_path / "linked").mkdir()
    for path in (tmp_path / "photos" / inside, tmp_path / "photos" / ".." / "photos" / inside):
        with pytest.raises(UserError, match="--output_dir .* lies in the folder of the images, .*; expected a folder"):
            open_run(path, dataset=str(tmp_path / "photos"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link", "linked", "maskA", "photos", "sub", "trainA"]
    with open_run(tmp_path / "photos of a run", dataset=str(tmp_path / "photos")) as run:
        assert run.path.is_dir()


@pytest.mark.parametrize("inside", ["a/checkpoints", "a/samples/x", "link/x", "b/../a/new"])
def test_a_new_run_in_the_folder_of_a_run_is_refused(tmp_path, monkeypatch, inside):
    monkeypatch.chdir(tmp_path)
    with open_run("r/a") as first:
        first.start(DATA)
    (tmp_path / "r/a/checkpoints").mkdir()
    (tmp_path / "r/link").symlink_to("a")
    for path, run in ((f"r/{inside}", "r/a"), (tmp_path / "r" / inside, tmp_path / "r/a")):
        with pytest.raises(UserError, match=f"lies in the run {run}; resume it with --output_dir {run}, or choose"):
            open_run(path)
    for path in ("r/b", "r/a/../c", "r/a", "r/link", "r/a/checkpoints/../../d"):
        open_run(path).close()


def test_images_of_other_sizes_are_no_other_dataset(tmp_path):
    data = {"trainA": "3 images (1)", "trainA bytes": "10 bytes (1)"}
    with open_run(tmp_path) as first:
        first.start(data)
    (tmp_path / "checkpoints" / "epoch_0001-1").mkdir(parents=True)
    repaired = {**data, "trainA bytes": "20 bytes (2)"}
    with open_run(tmp_path) as again:
        again.check_data(repaired)
        again.start(repaired)
    other = r"differs: trainA 3 images \(1\) -> 3 images \(2\); expected"
    with open_run(tmp_path) as third, pytest.raises(UserError, match=other):
        third.check_data({"trainA": "3 images (2)", "trainA bytes": "30 bytes (3)"})
    with open_run(tmp_path, clear_output_dir=True) as masked:
        masked.start({**repaired, "masks of trainA": "3 images (4)"})
    (tmp_path / "checkpoints" / "epoch_0001-1").mkdir(parents=True, exist_ok=True)
    choices = r"Put them back\. If another folder has them, give it as --dataset\. To train on .*--init_from [^;]*_dir$"
    text = rf"masks of trainA 3 images \(4\) -> none; expected the images and masks of its start\. {choices}"
    with open_run(tmp_path) as again, pytest.raises(UserError, match=text):
        again.check_data(repaired)


def test_a_path_names_a_checkpoint_of_a_run_only(run_folder, tmp_path):
    assert run_directory.split_checkpoint(run_folder / "checkpoints" / "a") == (run_folder, "a")
    other = tmp_path / "checkpoints" / "a"
    assert run_directory.split_checkpoint(other) == (other, "")


def test_the_other_stack_is_refused(run_folder):
    with pytest.raises(UserError, match=r"trained with TensorFlow 2\.15\.1 \(Keras 2\), this is 2\.21\.0 \(Keras 3\)"):
        open_run(run_folder, stack={"keras": 3, "tensorflow": "2.21.0"})


def test_a_log_without_checkpoints_is_refused(tmp_path):
    with open_run(tmp_path) as run:
        run.start(DATA)
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(
        UserError, match="has begun to train, but no complete checkpoint .*start over with --clear_output_dir"
    ):
        open_run(tmp_path)
    open_run(tmp_path, clear_output_dir=True).close()


def test_a_run_without_a_checkpoint_accepts_any_settings(tmp_path):
    with open_run(tmp_path) as first:
        first.start(DATA)
    with open_run(tmp_path, filters=8) as other:
        other.check_data({"trainA": "other"})
        other.start(DATA)
    assert serialization.load(tmp_path / "config.json").config.networks.filters == 8


def test_a_resumed_run_keeps_its_measured_range(tmp_path):
    with open_run(tmp_path, value_range_x="auto") as first:
        assert first.config.data.value_range_x == "auto"
        first.config = first.config.replace(value_range_x="12:3981")
        first.start(DATA)
    (tmp_path / "checkpoints" / "epoch_0001-1").mkdir(parents=True)
    for text in ("auto", "12:3981"):
        with open_run(tmp_path, value_range_x=text) as again:
            assert again.config.data.value_range("X") == (12, 3981)
    for text in (None, "0:4095"):
        with pytest.raises(UserError, match="value_range_x '12:3981' -> "):
            open_run(tmp_path, value_range_x=text)
    with pytest.raises(UserError, match="value_range_y None -> 'auto'"):
        open_run(tmp_path, value_range_x="auto", value_range_y="auto")
    with open_run(tmp_path, value_range_x="auto", clear_output_dir=True) as new:
        assert new.config.data.value_range_x == "auto"


@pytest.mark.parametrize("name, reason", [("file/run", "file is a file"), ("loop/run", "leads back to itself")])
def test_a_folder_that_cannot_be_written_is_refused(tmp_path, name, reason):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match=f"--output_dir .*{reason}.*; expected a folder that can be written to"):
        open_run(tmp_path / name)


def test_a_folder_in_which_nothing_was_started_is_removed(tmp_path):
    with open_run(tmp_path / "new") as run:
        run.check_data(DATA)
    assert not list(tmp_path.iterdir())
    (tmp_path / "notes.txt").write_text("mine")
    open_run(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_imported_run_without_its_checkpoint_is_refused(tmp_path):
    with open_run(tmp_path) as imported:
        imported.start({})
    (tmp_path / "checkpoints" / "epoch_0000-1").mkdir(parents=True)
    with open_run(tmp_path, stacks="all", slice_axis=0, film_every=5, nodata=-1.0) as run:  # it has seen no images
        run.start(DATA)
    with pytest.raises(UserError, match="differs: .*stacks 'all' -> 'first'"):
        open_run(tmp_path)
    (tmp_path / "checkpoints" / "epoch_0000-1").rename(tmp_path / "away")
    with pytest.raises(UserError, match="imported run, but no complete checkpoint .*import the networks again with"):
        open_run(tmp_path)
    with open_run(tmp_path, clear_output_dir=True) as again:
        again.start(DATA)
    open_run(tmp_path).close()


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("config", [None, '{"mine": 1}', '["config", "stack", "data"]', "{", "[" * 100_000])
def test_a_folder_of_something_else_is_refused(run_folder, config, clear):
    (run_folder / "config.json").unlink()
    if config:
        (run_folder / "config.json").write_text(config)
    with pytest.raises(
        UserError, match=r"holds .*, but no config\.json of a run, or a damaged one; expected .* use anot"
    ):
        open_run(run_folder, clear_output_dir=clear)
    assert (run_folder / "checkpoints" / "epoch_0001-1").is_dir()


def test_clearing_removes_only_what_a_run_writes(run_folder):
    events = [f"{folder}events.out.tfevents.1" for folder in ("", "train/", "test/", "steps/")]
    samples = ["samples/epoch_010.png", "samples/epoch_010/frames.json", "samples/inputs/x_1.png", "samples/now/x"]
    saved = [f"checkpoints/{name}/state.index" for name in ("epoch_0001-1", "best-x2y-1", "partial")]
    own = ["metrics.jsonl", "index.html", "index.html.partial", "trackers.json", "plugins/profile/1/host.xplane.pb"]
    mine = ["notes.txt", "samples/holiday.png", "test/precious.txt", "wandb/run-1.wandb", "checkpoints/epochs.txt"]
    mine += ["film.partial", "checkpoints/epoch_0001_my_notes/a.txt", "samples/epoch_of_steam.png"]
    for name in (*own, *events, *samples, *saved, *mine):
        (run_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (run_folder / name).write_text("")
    (run_folder / "checkpoints" / "epoch_0002-2").symlink_to(run_folder / "wandb")
    with open_run(run_folder, filters=8, clear_output_dir=True) as again:
        again.start(DATA)
    left = sorted(str(path.relative_to(run_folder)) for path in run_folder.rglob("*") if path.is_file())
    assert left == sorted([".lock", "config.json", *mine])
    assert not (run_folder / "steps").exists() and not (run_folder / "plugins").exists()
    assert serialization.load(run_folder / "config.json").config.networks.filters == 8


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("name", [".lock", "train", "test", "steps", "checkpoints"])
def test_a_file_where_a_run_has_its_own_is_refused(tmp_path, name, clear):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match=f"{name} is no file of this program; expected no such file: move it away"):
        open_run(tmp_path, clear_output_dir=clear)
    assert (tmp_path / name).read_text() == "mine"


def test_clearing_refuses_a_folder_that_is_no_run(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="--clear_output_dir: .* holds files, but no run; expected the folder of a run"):
        open_run(tmp_path, clear_output_dir=True)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == ["notes.txt"]
    with open_run(tmp_path / "new", clear_output_dir=True) as run:
        run.start(DATA)


def test_a_run_of_an_earlier_version_is_refused_in_one_line(run_folder):
    saved = json.loads((run_folder / "config.json").read_text())
    saved.update(format=1, version="1.0.0")
    (run_folder / "config.json").write_text(json.dumps(saved))
    shutil.rmtree(run_folder / "checkpoints")
    (run_folder / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"version 1\.0\.0 wrote it in format 1; expected format 2 of version"):
        open_run(run_folder)


HOLDER = """
import sys
from cyclegan.config import Config
from cyclegan.run.run_directory import RunDirectory
run = RunDirectory(Config.from_settings(output_dir=sys.argv[1]), {"keras": 2, "tensorflow": "2.15.1"})
run.start({"trainA": "3 images (1)"})
print("open", flush=True)
sys.stdin.read()
"""


def check_refused(path, pid, **values):
    with pytest.raises(UserError, match=rf"another process trains there \(process {pid} on .* another --output_dir"):
        open_run(path, **values)


def test_a_moved_or_replaced_folder_ends_the_run(tmp_path):
    path = tmp_path / "run"
    run = open_run(path)
    run.start(DATA)
    run.check()
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(TrainingError, match="was removed or moved during training"):
        run.check()
    with open_run(path) as other, pytest.raises(TrainingError, match="was removed or moved during training"):
        other.start(DATA)
        run.check()


def test_a_second_run_is_refused_until_the_first_is_closed(run_folder):
    before = len(os.listdir("/proc/self/fd")), (run_folder / "config.json").read_bytes()
    with open_run(run_folder) as first:
        for clear in (False, True):  # a refusal keeps the lock
            check_refused(run_folder, os.getpid(), clear_output_dir=clear)
        assert (run_folder / "config.json").read_bytes() == before[1]
        first.start(DATA)
        check_refused(run_folder, os.getpid())
    first.close()
    with pytest.raises(UserError, match="differs"):
        open_run(run_folder, filters=8)  # a refusal releases the lock
    open_run(run_folder).close()
    assert len(os.listdir("/proc/self/fd")) == before[0]


def test_a_killed_process_releases_the_lock(run_folder):
    command = [sys.executable, "-c", HOLDER, str(run_folder)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "open\n"
            check_refused(run_folder, holder.pid)
        finally:
            holder.kill()
    assert str(holder.pid) in (run_folder / ".lock").read_text()  # the file alone is no lock
    with open_run(run_folder):
        assert (run_folder / ".lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_a_file_system_without_locks_allows_two_runs(run_folder, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(run_directory.fcntl, "flock", flock)
    with open_run(run_folder) as one, open_run(run_folder):
        one.start(DATA)
