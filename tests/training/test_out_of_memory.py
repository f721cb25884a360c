import sys

import pytest
import tensorflow as tf

from cyclegan.errors import TrainingError
from cyclegan.training.out_of_memory import OutOfMemory, explain_out_of_memory, name_checkpoint


@pytest.fixture(autouse=True)
def hook(monkeypatch):
    """Put the hook for exceptions in destructors back after each test."""
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)


def test_exhausted_memory_names_the_flags_to_change():
    error = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor\nwith shape[1,64]")
    with pytest.raises(TrainingError) as explained, explain_out_of_memory():
        raise error
    text = str(explained.value)
    assert explained.value.__cause__ is error and "\n" not in text
    assert all(flag in text for flag in ("--batch_size", "--image_size", "--filters"))


@pytest.mark.parametrize(
    "error, reason",
    [
        (MemoryError(), "memory or threads ran out (MemoryError)"),
        (RuntimeError("can't start new thread"), "memory or threads ran out (can't start new thread)"),
        (OSError(12, "Cannot allocate memory"), "memory or threads ran out ([Errno 12] Cannot allocate memory)"),
        (OSError(11, "Resource temporarily unavailable"), "memory or threads ran out ([Errno 11] "),
        (tf.errors.ResourceExhaustedError(None, None, "OOM\nhere"), "memory or threads ran out (OOM)"),
        (tf.errors.InternalError(None, None, "std::bad_alloc"), "memory or threads ran out (std::bad_alloc)"),
        (OutOfMemory("too large: try a smaller --batch_size"), "too large: try a smaller --batch_size; "),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("epochs", [0, 2])
def test_limits_name_the_last_checkpoint(tmp_path, error, reason, epochs):
    for epoch in range(epochs):
        (tmp_path / "checkpoints" / f"epoch_{epoch:04d}-{epoch}").mkdir(parents=True)
    with pytest.raises(TrainingError) as explained, name_checkpoint(tmp_path):
        raise error
    last = f"the last checkpoint is {tmp_path / 'checkpoints' / 'epoch_0001-1'}, and the same command resumes"
    text = str(explained.value)
    assert text.startswith(reason) and (last if epochs else "there is no checkpoint yet") in text and "\n" not in text
    assert explained.value.exit_code == 1


def test_destructors_are_silent_once_memory_ran_out(tmp_path, capsys):
    class Broken:
        def __del__(self):
            raise ValueError("half done")

    with pytest.raises(TrainingError), name_checkpoint(tmp_path):
        broken = Broken()
        raise MemoryError
    del broken
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [RuntimeError("a defect"), OSError(2, "No such file"), TrainingError("not finite")])
def test_other_errors_name_no_checkpoint(tmp_path, error):
    with pytest.raises(type(error)) as passed, name_checkpoint(tmp_path):
        raise error
    assert passed.value is error
