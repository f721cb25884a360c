"""The sample pictures of a run as files of their own, and `index.html`, the page that shows them by epoch.

In the run's folder: `samples/inputs/x_1.png`, `samples/epoch_010/fake_y_1.png` (G(x)), `samples/epoch_010/cycle_x_1.png` (F(G(x)))
and the same of Y; and `samples/epoch_010/frames.json`, written last, with the samples' names and scores. An epoch without one is no
part of the page, so that what is on the page follows from the files alone.
"""

import contextlib
import io
import json
import math
import re

import numpy as np
from PIL import Image

from cyclegan.reporting import html_report

DOMAINS = {"x": ("X → Y", "fake_y", "cycle_x"), "y": ("Y → X", "fake_x", "cycle_y")}
OF_EPOCH = ("frames.json", "fake_[xy]_*.png", "cycle_[xy]_*.png")  # what an epoch's folder holds
NAME = re.compile(r"epoch_(\d+)(\.png)?")  # of an epoch's folder, and of its figure
NOTES = (
    "Test pictures, translated there (output) and back (cycle) after each of the epochs that the slider goes through.",
    "cycle error: mean absolute difference of input and cycle, in grey levels (0 to 255). change: that of input and output;"
    " near 0, the generator does nothing.",
)


def write(folder, epoch, forward, backward, names):
    """Writes the samples of an epoch.

    Args:
        folder: the run's, a path.
        epoch: how many are done.
        forward, backward, names: see `summaries.SummaryWriter.cycles`.

    Raises:
        OSError: they can't be written; the epoch is no part of the page then.
    """
    inputs, outputs = folder / "samples" / "inputs", folder / "samples" / f"epoch_{epoch:03d}"
    for path in (inputs.parent, inputs, outputs):
        path.mkdir(exist_ok=True)
    rows = {}
    for (domain, (_, fake, cycle)), pictures, called in zip(DOMAINS.items(), (forward, backward), names):
        rows[domain] = []
        for i, (name, before, translated, back) in enumerate(zip(called, *pictures), 1):
            (inputs / f"{domain}_{i}.png").write_bytes(_png(before))
            (outputs / f"{fake}_{i}.png").write_bytes(_png(translated))
            (outputs / f"{cycle}_{i}.png").write_bytes(_png(back))
            rows[domain].append((name, _scores(before, translated, back)))
    (outputs / "frames.json").write_text(json.dumps(rows, allow_nan=False), encoding="utf-8")


def rewind(folder, epoch):
    """Removes the samples of later epochs, and their figures. Returns whether there were any.

    Raises:
        OSError: they can't be removed.
    """
    later = [path for number, path in _epochs(folder) if number > epoch]
    for path in later:
        files = [file for pattern in OF_EPOCH for file in path.glob(pattern)] if path.is_dir() else [path]
        for file in files:
            file.unlink()
        with contextlib.suppress(OSError):  # something else lies there too
            path.rmdir()
    return bool(later)


def write_page(folder, say):
    """Writes `index.html` in a run's folder, of all epochs whose samples are there.

    Args:
        say: called with a text for each epoch whose `frames.json` is damaged. It is removed, so that this is said once.

    Raises:
        OSError: the page can't be written.
    """
    items = {}
    for epoch, path in _epochs(folder):
        try:
            rows = _read(path / "frames.json")
        except (FileNotFoundError, NotADirectoryError):
            continue  # a figure, or half of an epoch
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            say(f"{path / 'frames.json'} is damaged ({error}) and removed; the page goes without epoch {epoch}")
            (path / "frames.json").unlink()
            continue
        for domain, i, name, scores in rows:
            direction, fake, cycle = DOMAINS[domain]
            item = html_report.Item(name, direction, f"samples/inputs/{domain}_{i}.png", [])
            below = f"samples/{path.name}"
            frame = html_report.Frame(f"{below}/{fake}_{i}.png", f"{below}/{cycle}_{i}.png", scores, epoch)
            items.setdefault((domain, i), item).frames.append(frame)
    html_report.write(folder, folder.resolve().name, [items[key] for key in sorted(items)], NOTES)


def colours(picture):
    """[h, w, C] -> what is shown of it: the first three channels as RGB [h, w, 3], or the first as gray [h, w]."""
    return picture[..., :3] if picture.shape[-1] >= 3 else picture[..., 0]


def _epochs(folder):
    """Pairs (epoch, path) of the folders and of the figures, by rising epoch."""
    found = ((NAME.fullmatch(path.name), path) for path in (folder / "samples").glob("epoch_*"))
    return sorted((int(name.group(1)), path) for name, path in found if name)


def _read(path):
    """What `frames.json` says: tuples (domain, number of the sample from 1, name, scores).

    Raises:
        ValueError, TypeError, AttributeError: it is damaged.
    """
    domains = json.loads(path.read_text(encoding="utf-8"))
    rows = [(domain, i, *row) for domain, part in domains.items() for i, row in enumerate(part, 1)]
    for domain, _, name, scores in rows:
        if domain not in DOMAINS or not isinstance(name, str) or not all(map(math.isfinite, scores.values())):
            raise ValueError(f"an unexpected sample of {domain}")
    return rows


def _scores(before, translated, back):
    """The page's scores of a sample by name, of float arrays [h, w, C] in [-1, 1]; without those that are not finite."""
    scores = {"cycle error": np.abs(before - back).mean()}
    if before.shape == translated.shape:
        scores["change"] = np.abs(before - translated).mean()
    return {name: 127.5 * float(score) for name, score in scores.items() if math.isfinite(score)}


def _png(picture):
    """The PNG of a float array [h, w, C] in [-1, 1]; what is not a number becomes black."""
    levels = np.nan_to_num(np.clip(np.round((colours(picture) + 1) * 127.5), 0, 255)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(levels).save(buffer, "png")
    return buffer.getvalue()
