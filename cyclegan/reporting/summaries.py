"""Scalars, pictures and figures to TensorBoard and to `metrics.jsonl`."""

import contextlib
import gc
import io
import json
import math
import pathlib

import numpy as np
import tensorflow as tf
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.plugins.image.metadata import create_summary_metadata as image_metadata
from tensorboard.plugins.scalar.metadata import create_summary_metadata as scalar_metadata

from cyclegan.reporting import sample_images
from cyclegan.reporting.event_log import Events, Journal

CYCLES = (("X", "G(X)", "F(G(X))"), ("Y", "F(Y)", "G(F(Y))"))
FOLDERS = {"train": "", "test": "test", "steps": "steps"}  # of TensorBoard's runs, in the run's folder


class SummaryWriter:
    """What a run writes for people to look at.

    TensorBoard's events of training lie in the run's folder itself, those of testing under `test/`, and those of single steps,
    whose step is the global step and not the epoch, under `steps/`, so TensorBoard shows them as three runs; `metrics.jsonl`
    has the same figures as lines; `samples/` and `index.html` the pictures, see `samples`. When the disk is full, all but the
    pictures is kept in memory until it can be written.

    Args:
        folder: the run's folder.
        say: called with a text when something can't be written.
    """

    def __init__(self, folder, say=print):
        self.folder = pathlib.Path(folder)
        self.say = say
        self._metrics = Journal(self.folder / "metrics.jsonl", say)
        self._events = {split: Events(self.folder / name, say) for split, name in FOLDERS.items()}

    @property
    def log_bytes(self):
        """The size of `metrics.jsonl`: what `rewind` wants to come back to this place."""
        return self._metrics.size

    def rewind(self, log_bytes, epoch, step):
        """Drops what was written after a place in training: a crash, or going back to a checkpoint, has made it void.

        Args:
            log_bytes: what the property of that name was there.
            epoch, step: how many epochs and global steps were done there.
        """
        self._metrics.cut(log_bytes)
        for split, events in self._events.items():
            events.restart((step if split == "steps" else epoch) + 1)
        with self._pictures():
            if sample_images.rewind(self.folder, epoch):
                sample_images.write_page(self.folder, self.say)

    def flush(self):
        """Tries again to write what could not be written yet. Returns whether all is written now."""
        done = [part.flush() for part in (self._metrics, *self._events.values())]
        return all(done)

    def scalars(self, split, epoch, step, values):
        """Writes a dict of finite floats.

        Args:
            split: "train" or "test" for the figures of a whole epoch, "steps" for those of some training steps.
            epoch: which one, from 1.
            step: how many global steps are done.
        """
        self._line(split=split, epoch=epoch, step=step, **values)
        place, prefix = (step, "steps/") if split == "steps" else (epoch, "")
        protos = [
            Summary.Value(tag=prefix + key, tensor=_scalar(value), metadata=scalar_metadata(prefix + key, ""))
            for key, value in values.items()
        ]
        self._events[split].add(place, protos)

    def event(self, split, epoch, step, event, **details):
        """Writes down that something happened, in `metrics.jsonl` alone: a name for it, and texts, numbers or lists of them."""
        self._line(split=split, epoch=epoch, step=step, event=event, **details)

    def cycles(self, epoch, forward, backward, names):
        """Plots X -> G(X) -> F(G(X)) and Y -> F(Y) -> G(F(Y)), as figures, as single pictures and on the page.

        Args:
            forward, backward: three float arrays [N, H, W, C] in [-1, 1] each, in the order of the arrows. The C of X and Y may
                differ; of 2 channels the first is shown, of more than 3 the first three.
            names: two lists of N texts, what the pictures of X and Y are called.

        Returns:
            The path of the PNG that shows all of them.
        """
        for name, titles, pictures in zip(("X_cycle", "Y_cycle"), CYCLES, (forward, backward)):
            for i, row in enumerate(zip(*pictures)):
                tag = f"{name}/sample_{i + 1}"
                metadata = image_metadata(tag, "", converted_to_tensor=False)
                self._events["test"].add(
                    epoch, [Summary.Value(tag=tag, tensor=_image(*_png([row], titles)), metadata=metadata)]
                )
        path = self.folder / "samples" / f"epoch_{epoch:03d}.png"
        rows = [(*x_row, *y_row) for x_row, y_row in zip(zip(*forward), zip(*backward))]
        with self._pictures():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(_png(rows, CYCLES[0] + CYCLES[1])[0])
            sample_images.write(self.folder, epoch, forward, backward, names)
            sample_images.write_page(self.folder, self.say)
        gc.collect()  # figures hold themselves in circles; ten of them, not collected, are 13 MB more of memory in the end
        return path

    @contextlib.contextmanager
    def _pictures(self):
        """Training goes on without the pictures that can't be written."""
        try:
            yield
        except OSError as error:
            self.say(f"pictures could not be written ({error}); training goes on without them. Free some space")

    def _line(self, **values):
        self._metrics.append((json.dumps(values, allow_nan=False) + "\n").encode())


class NullSummaryWriter:
    """Takes what a `SummaryWriter` takes, and writes nothing: another worker's process does."""

    folder = None
    log_bytes = 0

    def rewind(self, log_bytes, epoch, step):
        """Does nothing, as all methods."""

    def flush(self):
        """Returns that all is written."""
        return True

    def scalars(self, split, epoch, step, values):
        """Does nothing."""

    def event(self, split, epoch, step, event, **details):
        """Does nothing."""


def _scalar(value):
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return TensorProto(dtype=tf.float32.as_datatype_enum, float_val=[value])


def _image(png, width, height):
    """The proto of a PNG, as TensorBoard's image plugin has it: width, height, and the encoded pictures."""
    shape = {"dim": [{"size": 3}]}
    texts = [str(width).encode(), str(height).encode(), png]
    return TensorProto(dtype=tf.string.as_datatype_enum, tensor_shape=shape, string_val=texts)


def _figure(rows, titles):
    """A matplotlib figure of rows of pictures in [-1, 1], a title above each column; see `samples.colours`."""
    from matplotlib.figure import Figure  # takes a third of a second to import

    height, width = rows[0][0].shape[:2]
    gap = max(1, width // 32)
    # One picture of them all: axes of their own for each would take ten times as long to draw.
    whole = np.ones((len(rows) * (height + gap) - gap, len(titles) * (width + gap) - gap, 3), np.float32)
    for i, j in np.ndindex(len(rows), len(titles)):
        picture = np.clip(sample_images.colours(rows[i][j]) / 2 + 0.5, 0, 1)
        top, left = i * (height + gap), j * (width + gap)
        whole[top : top + height, left : left + width] = picture if picture.ndim == 3 else picture[..., None]
    side, margin = 1.6, 0.3  # in inches: of a picture, for the titles
    across = side * whole.shape[1] / width
    down = side * whole.shape[0] / width + margin
    figure = Figure(figsize=(across, down), dpi=max(100, width / side))
    axis = figure.add_axes((0, 0, 1, 1 - margin / down))
    axis.imshow(whole, aspect="auto")
    axis.set_axis_off()
    for j, title in enumerate(titles):
        centre = (j * (width + gap) + width / 2) / whole.shape[1]
        figure.text(centre, 1 - margin / down / 2, title, fontsize=9, ha="center", va="center")
    return figure


def _png(rows, titles):
    """(the bytes, width, height) of a figure as a PNG."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"font.family": "DejaVu Sans"}):
        figure = _figure(rows, titles)
        figure.savefig(buffer, format="png")
    width, height = figure.canvas.get_width_height()
    return buffer.getvalue(), width, height
