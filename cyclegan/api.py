"""The functions of `import cyclegan`: train a run, and load it to translate, score and export."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from cyclegan import terminal
from cyclegan.cli import check_run
from cyclegan.cli import export as export_command
from cyclegan.cli import train as train_command
from cyclegan.cli import translate as translate_command
from cyclegan.config import command_line
from cyclegan.config.config import all_settings
from cyclegan.errors import UserError, check_path, counted
from cyclegan.evaluation.options import ScoreOptions
from cyclegan.evaluation.score_run import score_run
from cyclegan.inference import translate_files
from cyclegan.inference.conversions import Path
from cyclegan.inference.file_translator import Report
from cyclegan.inference.model import Model
from cyclegan.run import metrics_log

if TYPE_CHECKING:
    from cyclegan.training.callbacks import Epoch

SHOWN = ("test/error/", "test/score/")  # beginnings of the metrics that `repr` shows
SHOWN_EPOCHS = 5  # of a history


class History(dict[str, list[float]]):
    """A table of metrics, a column by name; shown are the last `SHOWN_EPOCHS` epochs, with a line for each metric."""

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        cells = {name: "".join(f"{value:12.4g}" for value in column[-SHOWN_EPOCHS:]) for name, column in self.items()}
        return "\n".join(f"{name:{width}}{row}" for name, row in cells.items())


class Run(Model):
    """A trained run. Next to `Model`, which translates, it has scores, exports and the history of the training."""

    def __init__(self, run: str | os.PathLike[str], checkpoint: str | None = None, **options: Any) -> None:
        """Load a run.

        Args:
            run: Folder of the run, or RUN/checkpoints/NAME.
            checkpoint: Name of a checkpoint, such as "epoch_0010" or "best-x2y"; by default the newest.
            options: `precision` ("float32", "bfloat16" or "float16"), `tile` (side in pixels of the largest square that
                is translated at once) and `device` (TensorFlow's name, such as "GPU:1").

        Raises:
            UserError: There is no such run, checkpoint or option, or the checkpoint cannot be read.
        """
        command_line.check_names(options, ("precision", "tile", "device"))
        checkpoint = None if checkpoint is None else str(checkpoint)
        check_run(run, checkpoint=checkpoint)
        super().__init__(run, checkpoint, **_plain(options))

    def evaluate(self, direction: str | None = None, **options: Any) -> dict[str, dict[str, float]]:
        """Score the generators on the held-out images, as `cyclegan-evaluate` does.

        Args:
            direction: "x2y" or "y2x"; by default both.
            options: Flags of the command by name, such as `features="random"`, which needs no download, or `paired`.

        Returns:
            The scores of each direction by name, such as "FID", and those of the untranslated images, such as
            "untranslated_FID". A pandas.DataFrame has a column for each direction.

        Raises:
            UserError: The images or the features do not exist or do not fit, or there is no such flag.
        """
        command_line.check_names(options, (field.name for field in dataclasses.fields(ScoreOptions)))
        with _messages():
            result = score_run(self, None, ScoreOptions(direction, **_plain(options)))
        return {
            direction: {**part["scores"], **{f"untranslated_{name}": s for name, s in part["untranslated"].items()}}
            for direction, part in result["directions"].items()
        }

    def export(self, out: str | os.PathLike[str], **options: Any) -> float:
        """Write a generator for other programs, as `cyclegan-export` does.

        Args:
            out: File, or folder of the formats "savedmodel", "web" and "hub".
            options: Flags of the command by name, such as `format="onnx"` (by default from the ending of `out`),
                `direction="y2x"`, `uint8=True` or `overwrite=True`.

        Returns:
            The largest difference of the file's output from the network's, in gray levels of 255.

        Raises:
            UserError: There is no such flag, the file exists or can't be written, or its output is not the network's.
        """
        flags = inspect.signature(export_command.export_run).parameters.keys() - {"run", "out", "checkpoint"}
        command_line.check_names(options, flags)
        check_path(out)
        with _messages():
            return export_command.export_run(self.path, out, checkpoint=self.checkpoint.name, **_plain(options))

    @property
    def history(self) -> History:
        """The metrics of each epoch, a column by name: "epoch", "step", "train/loss_G/total", "test/score/x2y/FID", ...

        NaN stands for metrics that an epoch does not have. runs/README.md explains them. For a table:
        `pandas.DataFrame(run.history)`.
        """
        rows = metrics_log.epochs(self.path / "metrics.jsonl")
        names = dict.fromkeys(name for row in rows for name in row)
        return History({name: [row.get(name, math.nan) for row in rows] for name in names})

    def __repr__(self) -> str:
        config, state = self.config, self.train_state
        height, width = config.data.image_shape
        rows = (row for row in metrics_log.epochs(self.path / "metrics.jsonl") if row["epoch"] == state.epoch)
        shown = [f"{name[5:]} {value:.4g}" for row in rows for name, value in row.items() if name.startswith(SHOWN)]
        return (
            f"Run {self.path}: {config.objective.objective}, {config.networks.generator} of {config.networks.filters}"
            f" filters, trained on {config.data.dataset} at {width} x {height} pixels\n"
            f"  {state.epoch} of {counted(config.optimization.epochs, 'epoch')}, {counted(state.step, 'step')};"
            f" {self.checkpoint.name}\n"
            f"  Held-out images: {', '.join(shown) or 'no metrics of this epoch'}"
        )


load = Run  # `cyclegan.load`


def train(dataset: str | os.PathLike[str] | None = None, *, callbacks: Sequence[Any] = (), **settings: Any) -> Run:
    """Train a run, or resume the one in `output_dir`, as `cyclegan-train` does.

    Ctrl-C, or the stop button of a notebook, saves a checkpoint; the same call resumes.

    Args:
        dataset: Folder or name of the images, as --dataset takes it.
        callbacks: Objects whose method `on_epoch_end(epoch, logs)` is called after each epoch, counted from 0 as in
            Keras, with the metrics of the epoch by their names in `Run.history`, when its checkpoint is saved. No other
            method is called. An error in a callback ends the training.
        settings: Flags of training by name, such as `epochs=100` or `no_flip=True`.

    Returns:
        The run with its newest checkpoint.

    Raises:
        UserError: There is no such setting, a value or callback cannot work, or training failed or was stopped. A run
            that had begun keeps its checkpoints.
    """
    _check_callbacks(callbacks)
    command_line.check_names(settings, (*all_settings(), "config"))
    try:
        given = settings if dataset is None else {**settings, "dataset": dataset}
        config, weights = train_command.configure([], **_plain(given))
    except UserError as error:
        raise UserError(str(error).replace("--", "")) from None
    with _messages():
        train_command.train(config, weights, [_KerasCallbacks(callbacks)])
    return Run(config.run.output_dir)


def translate(
    run: Path | Model | list[Model],
    source: Path | Sequence[Path],
    target: Path,
    direction: Literal["x2y", "y2x"] = "x2y",
    *,
    bars: bool = False,
    **options: Any,
) -> Report:
    """Translate image files and films.

    Args:
        run: Folder of a run, whose newest checkpoint runs on all GPUs; or a `Model`; or a list of models, one for each
            device.
        source: File, or folder (its images and films, also in subfolders), or pattern of `glob` (`**` for any folders);
            or a list of these.
        target: Folder; or a file if `source` is one file. Names and subfolders are the same as in `source`.
        direction: "x2y" or "y2x".
        bars: Whether to show a progress bar.
        options: Other attributes of `Request` by name, such as `size=(512, 384)` or `overwrite=True`.

    Returns:
        The report. It names each file that cannot be read or written; the other files are translated.

    Raises:
        UserError: There are no images, or files to write exist, or two have the same name, or their format does not
            support the result, or there is no such option; nothing was written.
    """
    given = [*source, target] if isinstance(source, (list, tuple)) else [source, target]
    *sources, out = [each.path if isinstance(each, Model) else each for each in given]
    for each in (*sources, out):
        check_path(each)
    if isinstance(run, (str, os.PathLike)):
        translate_command.check_paths(os.fspath(run), [os.fspath(each) for each in sources], os.fspath(out))
    return translate_files.translate(run, sources, out, direction, bars=bars, **_plain(options))


def _check_callbacks(callbacks: Any) -> None:
    """Raise `UserError` if callbacks are no list of objects with the method that `train` calls."""
    expected = "expected a list of objects with a method on_epoch_end(epoch, logs)"
    if not isinstance(callbacks, (list, tuple)):
        raise UserError(f"callbacks {callbacks!r}: {expected}")
    for each in callbacks:
        if isinstance(each, type) or not callable(getattr(each, "on_epoch_end", None)):
            raise UserError(f"callbacks with {each!r}: {expected}")
        if (getattr(each.on_epoch_end, "__module__", "") or "").startswith(("keras.", "tf_keras.")):
            raise UserError(f"callbacks with {each!r}: {expected} that needs no Keras model")


class _KerasCallbacks:
    """Call callbacks as Keras does."""

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self._callbacks = callbacks

    def on_epoch_end(self, epoch: Epoch) -> None:
        parts = epoch.metrics.items()
        logs = {f"{split}/{name}": value for split, values in parts for name, value in values.items()}
        for callback in self._callbacks:
            callback.on_epoch_end(epoch.state.epoch - 1, logs)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with Python's types for NumPy's, and texts for paths, for runs and where flags take texts.

    For example, "8" for `epoch_size=8`, and "0:255" for `value_range_x=(0, 255)`.
    """
    plain, known = {}, all_settings()
    for name, given in options.items():
        value = given
        if isinstance(value, Model):
            value = value.checkpoint if name == "init_from" else value.path
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        value = value.tolist() if hasattr(value, "tolist") else value  # of NumPy
        if name in known and known[name].value_type[0] is str and not known[name].field.metadata["is_path"]:
            if isinstance(value, (list, tuple)):
                value = (":" if name.startswith("value_range") else ",").join(map(str, value))
            value = str(value) if type(value) in (int, float) else value
        plain[name] = value
    return plain


def _is_no_retracing(record: logging.LogRecord) -> bool:
    return "triggered tf.function retracing" not in record.getMessage()


@contextlib.contextmanager
def _messages() -> Iterator[None]:
    """Show the messages of the package inside the context, as its commands do; leave logging as it was before.

    TensorFlow's warning about functions that are traced again is left out: each training has functions of its own.
    """
    loggers = [logging.getLogger("cyclegan"), logging.getLogger("tensorflow"), logging.root]
    before = [(each, each.handlers[:], each.level) for each in loggers]
    terminal.configure_logging()
    loggers[1].setLevel(logging.WARNING)  # TensorFlow shows more in a notebook
    loggers[1].addFilter(_is_no_retracing)
    try:
        yield
    finally:
        loggers[1].removeFilter(_is_no_retracing)
        for each, handlers, level in before:
            each.handlers[:] = handlers
            each.setLevel(level)
