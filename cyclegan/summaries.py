"""Scalars, pictures and figures to TensorBoard and to `metrics.jsonl`."""

import contextlib
import io
import json
import pathlib

import matplotlib
import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from cyclegan.errors import UserError

CYCLES = (("X", "G(X)", "F(G(X))"), ("Y", "F(Y)", "G(F(Y))"))


class Summary:
    """What a run writes for people to look at.

    TensorBoard's events of training lie in the run's folder itself and those of testing under `test/`, so TensorBoard shows
    them as two runs; `metrics.jsonl` has one line per split and epoch; `samples/` the pictures.

    Args:
        folder: the run's folder.
        epoch: how many epochs are done already; lines of later ones, which a crash left behind, are dropped.
    """

    def __init__(self, folder, epoch=0):
        self.folder = pathlib.Path(folder)
        self._metrics = self.folder / "metrics.jsonl"
        self._keep_until(epoch)
        self._writers = {
            "train": tf.summary.create_file_writer(str(self.folder)),
            "test": tf.summary.create_file_writer(str(self.folder / "test")),
        }

    def scalars(self, split, epoch, step, values):
        """Writes a dict of floats for a split ("train" or "test") after an epoch (from 1) and `step` global steps."""
        with self._writers[split].as_default(step=epoch):
            for key, value in values.items():
                tf.summary.scalar(key, value)
        self._writers[split].flush()
        line = json.dumps({"split": split, "epoch": epoch, "step": step, **values}, allow_nan=False)
        with _written(self._metrics), open(self._metrics, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def cycles(self, epoch, forward, backward):
        """Plots X -> G(X) -> F(G(X)) and Y -> F(Y) -> G(F(Y)).

        Args:
            forward, backward: three float arrays [N, H, W, C] in [-1, 1] each, in the order of the arrows.

        Returns:
            The path of the PNG that shows all of them.
        """
        with self._writers["test"].as_default(step=epoch):
            for name, titles, pictures in zip(("X_cycle", "Y_cycle"), CYCLES, (forward, backward)):
                for i, row in enumerate(zip(*pictures)):
                    image = _render([row], titles)
                    tf.summary.image(f"{name}/sample_{i + 1}", image[None])
        self._writers["test"].flush()
        path = self.folder / "samples" / f"epoch_{epoch:03d}.png"
        rows = [(*x_row, *y_row) for x_row, y_row in zip(zip(*forward), zip(*backward))]
        with _written(path):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(_png(rows, CYCLES[0] + CYCLES[1]))
        return path

    def close(self):
        """Writes out what is still in memory."""
        for writer in self._writers.values():
            writer.close()

    def _keep_until(self, epoch):
        if not self._metrics.is_file():
            return
        kept = []
        for line in self._metrics.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                if json.loads(line)["epoch"] <= epoch:
                    kept.append(line + "\n")
            except (ValueError, KeyError, TypeError):
                continue  # a line that a crash cut short
        partial = self._metrics.with_suffix(".partial")
        with _written(self._metrics):
            partial.write_text("".join(kept), encoding="utf-8")
            partial.replace(self._metrics)


@contextlib.contextmanager
def _written(path):
    """Says in one line what the system has against writing a file."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path} could not be written ({error}): free some space or make it writable, and start again"
        ) from error


def _figure(rows, titles):
    """A matplotlib figure of rows of pictures in [-1, 1], a title above each column."""
    height, width = rows[0][0].shape[:2]
    side = 1.6
    size = (side * len(titles), side * height / width * len(rows) + 0.3)
    figure = Figure(figsize=size, dpi=max(100, width / side), layout="constrained")
    axes = figure.subplots(len(rows), len(titles), squeeze=False)
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            axis = axes[i][j]
            axis.imshow(np.clip(np.squeeze(picture) / 2 + 0.5, 0, 1), cmap="gray", vmin=0, vmax=1)
            axis.set_axis_off()
            if i == 0:
                axis.set_title(titles[j], fontsize=9)
    return figure


def _png(rows, titles):
    buffer = io.BytesIO()
    with matplotlib.rc_context({"font.family": "DejaVu Sans"}):
        _figure(rows, titles).savefig(buffer, format="png")
    return buffer.getvalue()


def _render(rows, titles):
    """uint8 [H, W, 3]: the figure as TensorBoard wants it."""
    return tf.io.decode_png(_png(rows, titles), channels=3)
