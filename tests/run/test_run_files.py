"""Test the removal of a run's files, and links in its folder."""

import os

import pytest

from cyclegan.config import serialization
from cyclegan.errors import UserError
from cyclegan.run import folder
from tests.run.runs import DATA, open_run


def test_clearing_removes_only_files_of_a_run(run_folder):
    (run_folder / "notes.txt").write_text("mine")
    (run_folder / "metrics.jsonl").write_text("")
    (run_folder / "events.out.tfevents.1").write_text("")
    for name in (
        "test/events.out.tfevents.2",
        "steps/events.out.tfevents.0000000001",
        "index.html",
        "trackers.json",
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
    "wandb/offline-run-1/run-1.wandb",  # which may not be sent yet
    *("checkpoints/epoch_0001/state.index.bak", "checkpoints/epoch_0001/state.data-mine.txt"),
    *("samples/epoch_7.png", "samples/inputs/x_01.png"),
    *("samples/epoch_notes.png", "samples/epoch_mine/fake_x_1.png", "samples/inputs/x_mine.png"),
)


def test_clearing_leaves_foreign_files(run_folder):
    own = (
        *("checkpoints/epoch_0001/manifest.json", "checkpoints/epoch_0001/state.data-00000-of-00001"),
        "checkpoints/.partial_epoch_0002/state.data-00000-of-00001.tempstate1234567890",
        *("checkpoints/.partial_epoch_0002/state_temp/part-1", "samples/epoch_010/fake_x_1.png"),
        *("plugins/profile/2026_01_01/host.xplane.pb", "index.html.partial", "samples/inputs/x_1.png.partial"),
    )
    exchanged = "checkpoints/.partial_epoch_0001/mine.txt"  # a kill between the exchange of two folders and the move of this file
    for name in (*FOREIGN, *own, exchanged):
        (run_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (run_folder / name).write_text(name)
    with open_run(run_folder, filters=8, clear_output_dir=True) as again:
        again.start(DATA)
    left = sorted(str(path.relative_to(run_folder)) for path in run_folder.rglob("*") if path.is_file())
    assert left == sorted((".lock", "config.json", "checkpoints/epoch_0001/mine.txt", *FOREIGN))
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
    with pytest.raises(UserError, match=f"{run / name}: a link that .* use another --output_dir"):
        open_run(run, clear_output_dir=clear)
    files = [path for path in (outside, *outside.rglob("*")) if path.is_file()]
    assert [path.read_text() for path in files] == ["precious"] * (exists and (4 if name in LINKS else 1))


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "events.out.tfevents.0000000001", "test/events.out.tfevents.1", ".lock"]
)
def test_a_file_with_another_name_is_not_written_to(run_folder, tmp_path, name):
    (tmp_path / "outside").write_text("precious")
    (run_folder / name).parent.mkdir(exist_ok=True)
    (run_folder / name).unlink(missing_ok=True)
    os.link(tmp_path / "outside", run_folder / name)
    for clear in (False, True):
        with pytest.raises(UserError, match=f"{name}: a link that .* copy|has another name .a hard link.: .*{name}"):
            open_run(run_folder, clear_output_dir=clear)
    assert (tmp_path / "outside").read_text() == "precious"


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
