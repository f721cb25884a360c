"""Sample images of a run as separate files, and the HTML report that shows them by epoch.

The folder of the run holds `samples/inputs/x_1.png`, `samples/epoch_010/fake_y_1.png` (G(x)), `samples/epoch_010/cycle_x_1.png`
(F(G(x))), and the same for Y. `samples/epoch_010/frames.json` has the names and scores of the samples and is written last. The
report shows the epochs that have this file, so it follows from the files alone.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import pathlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from PIL import Image

from cyclegan import whole_file
from cyclegan.run import html_report
from cyclegan.run.image_grid import visible_channels

logger = logging.getLogger(__name__)

# Images of a domain, their translations, and the translations back, if there are any: float32 [N, H, W, C] in [-1, 1] each. Empty
# without translations. The number of channels of X and Y may differ.
Cycle = Sequence[np.ndarray]

DOMAINS = {"x": ("X → Y", "fake_y", "cycle_x"), "y": ("Y → X", "fake_x", "cycle_y")}
EPOCH_FILES = ("frames.json", "fake_[xy]_*.png", "cycle_[xy]_*.png")
EPOCH_NAME = re.compile(r"epoch_(\d{1,15})(\.png)?")  # the folder and the grid of an epoch
ONE_WAY = "This run has a generator X → Y only: there is no cycle, and there are no translations of Y."


def write(folder: pathlib.Path, epoch: int, forward: Cycle, backward: Cycle, names: Sequence[Sequence[str]]) -> None:
    """Write the samples of an epoch.

    Args:
        folder: Folder of the run.
        epoch: Epochs done.
        forward: Images of X, their translations, and the translations back, if there are any; or nothing.
        backward: The same for images of Y.
        names: Names of the images of X, and names of the images of Y.

    Raises:
        OSError: The files cannot be written; the report does not show the epoch.
    """
    inputs, outputs = folder / "samples" / "inputs", folder / "samples" / f"epoch_{epoch:03d}"
    for path in (inputs.parent, inputs, outputs):
        whole_file.make_folder(path)
    samples: dict[str, list[tuple[str, dict[str, float]]]] = {}
    for (domain, (_, *kinds)), images, domain_names in zip(DOMAINS.items(), (forward, backward), names):
        samples[domain] = []
        for i, (name, (image, *translations)) in enumerate(zip(domain_names, zip(*images)), 1):
            whole_file.write(inputs / f"{domain}_{i}.png", _png(image))
            for kind, translated in zip(kinds, translations):
                whole_file.write(outputs / f"{kind}_{i}.png", _png(translated))
            samples[domain].append((name, _scores(image, *translations)))
    whole_file.write(outputs / "frames.json", json.dumps(samples, allow_nan=False))


def remove_after(folder: pathlib.Path, epoch: int) -> bool:
    """Remove the samples and the grids of later epochs; return whether there were any.

    Raises:
        OSError: They cannot be removed.
    """
    later = [path for number, path in _epochs(folder) if number > epoch]
    for path in later:
        files = [file for pattern in EPOCH_FILES for file in path.glob(pattern)] if path.is_dir() else [path]
        for file in files:
            file.unlink()
        with contextlib.suppress(OSError):  # a grid is no folder; a folder may hold files of the user
            path.rmdir()
    return bool(later)


def write_report(folder: pathlib.Path) -> None:
    """Write `index.html` in the folder of a run, with all epochs whose samples are there.

    A damaged `frames.json` is removed with a warning, so that the warning comes once.

    Raises:
        OSError: The report cannot be written.
    """
    items: dict[tuple[str, int], html_report.Item] = {}
    for epoch, path in _epochs(folder):
        try:
            samples = _read_samples(path / "frames.json")
        except (FileNotFoundError, NotADirectoryError):
            continue  # a grid, or an epoch that was written in part
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            logger.warning(
                "%s is damaged (%s) and was removed; the report leaves out epoch %d", path / "frames.json", error, epoch
            )
            (path / "frames.json").unlink()
            continue
        for domain, i, name, scores in samples:
            direction, fake, cycle = DOMAINS[domain]
            item = html_report.Item(name, direction, f"samples/inputs/{domain}_{i}.png", [])
            output, back = (f"samples/{path.name}/{kind}_{i}.png" for kind in (fake, cycle))
            frame = html_report.Frame(output, back if (folder / back).exists() else "", scores, epoch)
            items.setdefault((domain, i), item).frames.append(frame)
    html_report.write(folder, folder.resolve().name, [items[key] for key in sorted(items)], [*_notes(items.values())])


def _notes(items: Collection[html_report.Item]) -> Iterator[str]:
    """Yield what the report says about these items."""
    frames = [frame for item in items for frame in item.frames]
    has_cycles = any(frame.cycle for frame in frames)
    parts = (
        "their translation (output) and its translation back (cycle)"
        if has_cycles
        else "and their translation (output)"
    )
    slider = " The slider chooses the epoch." if len({frame.epoch for frame in frames}) > 1 else ""
    yield f"Held-out images, {parts}.{slider}"
    yield "change: mean absolute difference between input and output in gray levels (0 to 255); near 0, the generator does nothing."
    if has_cycles:
        yield "cycle error: the same between input and cycle."
    elif items:
        yield ONE_WAY


def _epochs(folder: pathlib.Path) -> list[tuple[int, pathlib.Path]]:
    """Return (epoch, path) of the folders and the grids of all epochs, in order."""
    matches = ((EPOCH_NAME.fullmatch(path.name), path) for path in (folder / "samples").glob("epoch_*"))
    return sorted((int(match.group(1)), path) for match, path in matches if match)


def _read_samples(path: pathlib.Path) -> list[tuple[str, int, str, Mapping[str, float]]]:
    """Return (domain, number of the sample from 1, name, scores) of each sample in a `frames.json`.

    Raises:
        ValueError, TypeError, AttributeError, ArithmeticError, RecursionError: The file is damaged.
    """
    domains = json.loads(whole_file.read_text(path))
    samples = [(domain, i, *sample) for domain, part in domains.items() for i, sample in enumerate(part, 1)]
    for domain, _, name, scores in samples:
        if domain not in DOMAINS or not isinstance(name, str) or not all(map(math.isfinite, scores.values())):
            raise ValueError(f"an unexpected sample of {domain}")
    return samples


def _scores(image: np.ndarray, translated: np.ndarray, back: np.ndarray | None = None) -> dict[str, float]:
    """Return the finite scores of a sample by name, in gray levels; all images are float [h, w, C] in [-1, 1]."""
    scores = {} if back is None else {"cycle error": np.abs(image - back).mean()}
    if image.shape == translated.shape:
        scores["change"] = np.abs(image - translated).mean()
    return {name: 127.5 * float(score) for name, score in scores.items() if math.isfinite(score)}


def _png(image: np.ndarray) -> bytes:
    """Encode a float image [h, w, C] in [-1, 1] as PNG; not-a-number becomes black."""
    levels = np.nan_to_num(np.clip(np.round((visible_channels(image) + 1) * 127.5), 0, 255)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(levels).save(buffer, "png")
    return buffer.getvalue()
