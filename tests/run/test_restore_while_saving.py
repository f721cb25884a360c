"""A process restores while another one saves and keeps one checkpoint."""

import pathlib
import shutil
import subprocess
import sys
import threading

import pytest

from cyclegan.errors import UserError
from cyclegan.run import folder, manifest
from tests.run.saves import Run, at, save

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def writer(tmp_path):
    writer = Run(tmp_path / "checkpoints", keep=1)
    writer.save(1, at(1))
    return writer


def before_reading(monkeypatch, *saves):
    """Let another process save before each of the next verifications."""
    verify, waiting = manifest.verify, list(saves)

    def verify_late(path):
        if waiting and path.parent.name == "checkpoints" and not path.name.startswith("."):
            waiting.pop(0)()
        return verify(path)

    monkeypatch.setattr(manifest, "verify", verify_late)


@pytest.mark.parametrize("strict", [False, True])
def test_a_checkpoint_that_vanishes_is_followed_by_the_next_one(writer, monkeypatch, caplog, strict):
    before_reading(monkeypatch, *(lambda i=i: writer.save(i, at(i)) for i in (2, 3, 4)))
    assert writer.restored(strict=strict) == (4, at(4)) and not caplog.messages


def test_a_checkpoint_that_appears_during_the_listing_is_found(writer, monkeypatch):
    checkpoints, missed = folder.checkpoints, [True, True]
    monkeypatch.setattr(folder, "checkpoints", lambda path: [] if missed and missed.pop() else checkpoints(path))
    assert writer.restored(strict=False) == (1, at(1))


@pytest.mark.parametrize("name", [None, "best-x2y"])
def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(writer, monkeypatch, caplog, name):
    writer.save(2, at(1), aliases=["best-x2y"])
    verify, saves = manifest.verify, [1, 2]

    def verify_early(path):
        train_state = verify(path)
        if saves:
            saves.pop()
            writer.save(3, at(1), aliases=["best-x2y"])
        return train_state

    monkeypatch.setattr(manifest, "verify", verify_early)
    assert (writer.alias(name) if name else writer.restored(strict=False)) in (3, (3, at(1)))
    assert not saves and not caplog.messages


def test_a_reader_finds_a_checkpoint_beside_a_writer(writer, caplog):
    finished = threading.Event()

    def save_often():
        for i in range(2, 60):
            writer.save(i, at(i))
        finished.set()

    thread = threading.Thread(target=save_often)
    thread.start()
    found = []
    while not finished.is_set():
        found.append(writer.restored(strict=False))
    thread.join()
    assert len(found) > 5 and found == sorted(found, key=lambda restored: restored[0])
    assert all(train_state == at(value) for value, train_state in found) and not caplog.messages


READ = """
import logging, pathlib, sys
import tensorflow as tf
from cyclegan.run.manager import CheckpointManager

logging.basicConfig(stream=sys.stdout)
state = {name: tf.Variable([0.0, 0.0], name=name) for name in "ab"}
checkpoints = CheckpointManager(pathlib.Path(sys.argv[1]), state)
for _ in range(100):
    print(checkpoints.restore(strict=False).train_state.epoch, int(state["a"][0]))
"""


@pytest.mark.slow
def test_another_process_restores_beside_real_saves(run, tmp_path):
    epoch = 1
    checkpoints = save(run, epoch, keep=1)
    command = [sys.executable, "-c", READ, checkpoints.folder]
    output = tmp_path / "found.txt"
    with (
        output.open("w") as file,
        subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.PIPE, text=True) as reader,
    ):
        while reader.poll() is None:
            epoch += 1
            save(run, epoch, keep=1)
        assert reader.returncode == 0, reader.stderr.read()
    found = [line.split() for line in output.read_text().splitlines()]
    epochs = [int(saved) for saved, _ in found]
    print(f"{len(epochs)} restores of {len(set(epochs))} checkpoints, beside {epoch} saves")
    assert all(saved == value for saved, value in found) and len(epochs) == 100
    assert epochs == sorted(epochs) and len(set(epochs)) > 5


def test_a_missing_name_is_refused_at_once(writer, monkeypatch):
    reads = []
    monkeypatch.setattr(manifest, "verify", lambda path: reads.append(path) or {}["no"])
    with pytest.raises(UserError, match="can't be read"):
        writer.alias("best-x2y")
    assert len(reads) == 1


@pytest.mark.parametrize("hidden", [".partial_epoch_0001", ".partial_epoch_0002", ".removed_epoch_0001"])
def test_an_interrupted_save_is_adopted(writer, hidden):
    path = writer.folder / "epoch_0001"
    shutil.copytree(path, writer.folder / hidden)
    position = at(int(hidden[-1]))
    (writer.folder / hidden / "manifest.json").unlink()
    manifest.write(writer.folder / hidden, position)
    (path / "state.index").write_text("damaged")
    assert writer.restored(strict=False) == (1, position) and (writer.folder / hidden).exists()
    assert writer.restored() == (1, position)
    adopted = writer.folder / hidden[len(".partial_") :]
    assert manifest.is_complete(adopted) and not (writer.folder / hidden).exists()
    writer.save(2, at(3))
    assert [path.name for path in writer.folder.iterdir()] == ["epoch_0003"]
