"""Sample images of a run as a grid and as separate files, and the HTML report that shows them by epoch.

The folder `samples` of the run holds the grid `epoch_010.png`, and `inputs/x_1.png`, `epoch_010/fake_y_1.png` (G(x)),
`epoch_010/cycle_x_1.png` (F(G(x))), and the same for Y. `epoch_010/frames.json` has the names and scores of the samples
and is written last. The report shows the epochs that have this file, so it follows from the files alone.
"""

from __future__ import annotations

import io
import json
import logging
import math
import pathlib
import re
import shutil
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from cyclegan import whole_file
from cyclegan.run import html_report

logger = logging.getLogger(__name__)

# Images of a domain, their translations and, with two generators, their cycle images (translations back to the domain):
# float32 [N, H, W, C] in [-1, 1] each. Empty without translations. The number of channels of X and Y may differ.
Cycle = Sequence[np.ndarray]

DOMAINS = {"x": ("X → Y", "fake_y", "cycle_x"), "y": ("Y → X", "fake_x", "cycle_y")}
TITLES = (("X", "G(X)", "F(G(X))"), ("Y", "F(Y)", "G(F(Y))"))  # of the columns of a grid
COLUMN = 160  # least width of an image in a grid, in pixels
NOTES = (
    "Held-out images, their translation (output) and its translation back (cycle), by epoch.",
    "change: mean absolute difference of input and output in gray levels (0 to 255); 0 if the generator does nothing.",
    "cycle error: the same between input and cycle.",
)
ONE_WAY = "This run has a generator X → Y only: there is no cycle, and there are no translations of Y."


def write(
    folder: pathlib.Path, epoch: int, forward: Cycle, backward: Cycle, names: Sequence[Sequence[str]]
) -> pathlib.Path:
    """Write the sample images of an epoch, a grid of them, and the HTML report of the run; return the path of the grid.

    Args:
        folder: Folder of the run.
        epoch: Epochs done.
        forward: Images of X, their translations, and their cycle images if there are any.
        backward: The same for images of Y.
        names: Names of the images of X, then of the images of Y.

    Raises:
        OSError: A file cannot be written. The report then does not show the epoch.
    """
    inputs, outputs = folder / "samples" / "inputs", folder / "samples" / f"epoch_{epoch:03d}"
    for path in (inputs.parent, inputs, outputs):
        path.mkdir(exist_ok=True)
    grid = outputs.with_suffix(".png")
    titles = [title for cycle, domain in zip((forward, backward), TITLES) for title in domain[: len(cycle)]]
    whole_file.write(grid, _png(draw_grid([*zip(*forward, *backward)], titles)))
    samples: dict[str, list[tuple[str, dict[str, float]]]] = {}
    for (domain, (_, *kinds)), images, domain_names in zip(DOMAINS.items(), (forward, backward), names):
        samples[domain] = []
        for i, (name, (image, *translations)) in enumerate(zip(domain_names, zip(*images)), 1):
            whole_file.write(inputs / f"{domain}_{i}.png", _png(_to_levels(image)))
            for kind, translated in zip(kinds, translations):
                whole_file.write(outputs / f"{kind}_{i}.png", _png(_to_levels(translated)))
            samples[domain].append((name, _scores(image, *translations)))
    whole_file.write(outputs / "frames.json", json.dumps(samples, allow_nan=False))
    write_report(folder)
    return grid


def remove_after(folder: pathlib.Path, epoch: int) -> None:
    """Remove the samples and the grids of later epochs, also from the report."""
    later = [path for number, path in _epochs(folder) if number > epoch]
    for path in later:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if later:
        write_report(folder)


def grids(folder: pathlib.Path) -> list[tuple[int, pathlib.Path]]:
    """Return (epoch, path) of all grids of a run, by increasing epoch."""
    return [(epoch, path) for epoch, path in _epochs(folder) if path.suffix == ".png"]


def write_report(folder: pathlib.Path) -> None:
    """Write `index.html` in the folder of a run, with all epochs whose samples are there."""
    items: dict[tuple[str, int], html_report.Item] = {}
    for epoch, path in _epochs(folder):
        try:
            samples = json.loads((path / "frames.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            continue  # a grid, or an epoch that was written in part
        except ValueError as error:
            logger.warning("%s is damaged (%s); the report leaves out epoch %d", path / "frames.json", error, epoch)
            continue
        for domain, (direction, *kinds) in DOMAINS.items():
            for i, (name, scores) in enumerate(samples[domain], 1):
                item = html_report.Item(name, direction, f"samples/inputs/{domain}_{i}.png", [])
                output, back = (f"samples/{path.name}/{kind}_{i}.png" for kind in kinds)
                frame = html_report.Frame(output, back if (folder / back).exists() else "", scores, epoch)
                items.setdefault((domain, i), item).frames.append(frame)
    is_one_way = items and not any(frame.cycle for item in items.values() for frame in item.frames)
    notes = [*NOTES, ONE_WAY] if is_one_way else NOTES
    html_report.write(folder, folder.resolve().name, [items[key] for key in sorted(items)], notes)


def _epochs(folder: pathlib.Path) -> list[tuple[int, pathlib.Path]]:
    """Return (epoch, path) of the folders and the grids of all epochs, in order."""
    matches = ((re.fullmatch(r"epoch_(\d+)(\.png)?", path.name), path) for path in (folder / "samples").glob("epoch_*"))
    return sorted((int(match.group(1)), path) for match, path in matches if match)


def _scores(image: np.ndarray, translated: np.ndarray, back: np.ndarray | None = None) -> dict[str, float]:
    """Return the finite scores of a sample by name, in gray levels; all images are float [h, w, C] in [-1, 1]."""
    scores = {} if back is None else {"cycle error": np.abs(image - back).mean()}
    if image.shape == translated.shape:
        scores["change"] = np.abs(image - translated).mean()
    return {name: 127.5 * float(score) for name, score in scores.items() if math.isfinite(score)}


def draw_grid(rows: Sequence[Sequence[np.ndarray]], titles: Sequence[str]) -> Image.Image:
    """Draw rows of images, float [H, W, C] in [-1, 1] with the same H and W, with a title above each column."""
    height, width = rows[0][0].shape[:2]
    scale = math.ceil(COLUMN / width)
    height, width = height * scale, width * scale
    gap, font_size = width // 32, max(14, width // 20)
    margin = 2 * font_size
    size = len(titles) * (width + gap) - gap, margin + len(rows) * (height + gap) - gap
    grid = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(grid), ImageFont.load_default(font_size)
    for column, title in enumerate(titles):
        left = column * (width + gap)
        draw.text((left + width / 2, margin / 2), title, "black", font, anchor="mm")
        for row, images in enumerate(rows):
            image = _to_levels(images[column]).resize((width, height), Image.Resampling.NEAREST)
            grid.paste(image, (left, margin + row * (height + gap)))
    return grid


def _to_levels(image: np.ndarray) -> Image.Image:
    """Convert the first channels of a float image [h, w, C] in [-1, 1] to gray or RGB; not-a-number becomes black."""
    shown = image[..., :3] if image.shape[-1] >= 3 else image[..., 0]
    return Image.fromarray(np.nan_to_num(np.clip(np.round((shown + 1) * 127.5), 0, 255)).astype(np.uint8))


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "png")
    return buffer.getvalue()
