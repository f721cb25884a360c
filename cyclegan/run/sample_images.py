"""Sample images of a run as a grid and as separate files, and the HTML report that shows them by epoch.

The folder `samples` of the run holds the grid `epoch_010.png`, and `inputs/x_1.png`, `epoch_010/fake_y_1.png` (G(x)),
`epoch_010/cycle_x_1.png` (F(G(x))), and the same for Y. `epoch_010/frames.json` has the names, paths and scores of the
samples and is written last. The report shows the epochs that have this file, so it follows from the files alone. The
folder `now` holds the samples of the epoch that runs, without a grid.
"""

from __future__ import annotations

import io
import json
import logging
import math
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from cyclegan import whole_file
from cyclegan.errors import printable
from cyclegan.run import html_report

logger = logging.getLogger(__name__)

# Images of a domain, their translations and, with two generators, their cycle images (translations back to the domain):
# float32 [N, H, W, C] in [-1, 1] each. Empty without translations. The number of channels of X and Y may differ.
Cycle = Sequence[np.ndarray]

# Direction, names of the translations and of the cycle images, titles of the columns of a grid.
DOMAINS = {
    "X": ("X → Y", "fake_y", "cycle_x", ("X", "G(X)", "F(G(X))")),
    "Y": ("Y → X", "fake_x", "cycle_y", ("Y", "F(Y)", "G(F(Y))")),
}
NOW = "now"
COLUMN = 192  # least width of an image in a grid, in pixels
NOTES = (
    "Held-out images, their translation (output) and its translation back (cycle), by epoch.",
    "change: mean absolute difference of input and output in gray levels (0 to 255); 0 if the generator does nothing.",
    "cycle error: the same between input and cycle.",
)
ONE_WAY = "This run has a generator X → Y only: there is no cycle, and there are no translations of Y."


def write(
    folder: pathlib.Path, epoch: float, forward: Cycle, backward: Cycle, names: Sequence[Sequence[str]]
) -> pathlib.Path:
    """Write the sample images of an epoch, and a grid of them; return the path of the grid.

    Args:
        folder: Folder of the run.
        epoch: Epochs done. With a fraction, the images stay until the next ones are written.
        forward: Images of X, their translations, and their cycle images if there are any.
        backward: The same for images of Y.
        names: Names of the images of X, then of the images of Y.

    Raises:
        OSError: A file cannot be written. The report then does not show the epoch.
    """
    samples = folder / "samples"
    remove(samples / NOW)
    outputs = samples / (f"epoch_{epoch:03.0f}" if epoch % 1 == 0 else NOW)
    for path in (samples, samples / "inputs", outputs):
        path.mkdir(exist_ok=True)
    cycles: dict[str, Cycle] = {"X": forward, "Y": backward}
    grid = outputs.with_suffix(".png")
    if outputs.name != NOW:
        rows = [[_to_levels(image) for image in row] for row in zip(*forward, *backward)]
        titles = [title for domain, cycle in cycles.items() for title in DOMAINS[domain][-1][: len(cycle)]]
        whole_file.write(grid, png(draw_grid(rows, titles)))
    records = []
    for (domain, images), domain_names in zip(cycles.items(), names):
        _, *kinds, _ = DOMAINS[domain]
        for i, (name, parts) in enumerate(zip(domain_names, zip(*images)), 1):
            paths = [samples / "inputs" / f"{domain.lower()}_{i}.png", *(outputs / f"{kind}_{i}.png" for kind in kinds)]
            for path, image in zip(paths, parts):
                whole_file.write(path, png(_to_levels(image)))
            urls = [path.relative_to(folder).as_posix() for path in paths[: len(parts)]]
            records.append({"domain": domain, "number": i, "name": name, "images": urls, "scores": _scores(*parts)})
    whole_file.write(outputs / "frames.json", json.dumps({"epoch": epoch, "samples": records}, allow_nan=False))
    return grid


def remove(path: pathlib.Path) -> None:
    """Remove a folder or a file, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_after(folder: pathlib.Path, epoch: int) -> None:
    """Remove the samples and the grids of later epochs."""
    for number, path in _epochs(folder):
        if number > epoch:
            remove(path)
    remove(folder / "samples" / NOW)


def grids(folder: pathlib.Path) -> list[tuple[int, pathlib.Path]]:
    """Return (epoch, path) of all grids of a run, by increasing epoch."""
    return [(epoch, path) for epoch, path in _epochs(folder) if path.suffix == ".png"]


def _read(outputs: pathlib.Path) -> tuple[float, list[dict[str, Any]]]:
    """Return the epoch and the samples that `write` has described in a folder; none for a part of an epoch."""
    path = outputs / "frames.json"
    try:
        content = json.loads(path.read_bytes())
        return content["epoch"], content["samples"]
    except (FileNotFoundError, NotADirectoryError):
        pass  # a grid, or an epoch that was written in part
    except (ValueError, KeyError) as error:
        logger.warning("%s is damaged (%s); its images are left out", path, error)
    return 0, []


def strips(grid: pathlib.Path) -> Iterator[tuple[str, Image.Image]]:
    """Yield each sample of an epoch, given the path of its grid, as (name, image): a row of its images with titles."""
    for sample in _read(grid.with_suffix(""))[1]:
        images = [Image.open(grid.parents[1] / path) for path in sample["images"]]
        titles = DOMAINS[sample["domain"]][-1][: len(images)]
        yield f"{sample['domain']} {sample['number']}: {printable(sample['name'])}", draw_grid([images], titles)


def write_report(folder: pathlib.Path, run: Mapping[str, Any] | None = None) -> None:
    """Write `index.html` in the folder of a run, with all epochs whose samples are there; see `html_report.write`."""
    items: dict[str, html_report.Item] = {}
    for outputs in (*(path for _, path in _epochs(folder)), folder / "samples" / NOW):
        epoch, samples = _read(outputs)
        for sample in samples:
            source, output, *cycle = sample["images"]
            item = html_report.Item(sample["name"], DOMAINS[sample["domain"]][0], source, [])
            frame = html_report.Frame(output, "".join(cycle), sample["scores"], epoch)
            items.setdefault(source, item).frames.append(frame)
    is_one_way = items and not any(frame.cycle for item in items.values() for frame in item.frames)
    notes = [*NOTES, ONE_WAY] if is_one_way else NOTES
    html_report.write(folder, folder.resolve().name, [*items.values()], notes, run)


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


def draw_grid(rows: Sequence[Sequence[Image.Image]], titles: Sequence[str]) -> Image.Image:
    """Draw rows of images of the same size, with a title above each column that is readable in a small view."""
    width, height = rows[0][0].size
    scale = math.ceil(COLUMN / width)
    height, width = height * scale, width * scale
    gap, font_size = width // 32, min(len(titles) * width // 18, width // 5)
    margin = 3 * font_size // 2
    size = len(titles) * (width + gap) - gap, margin + len(rows) * (height + gap) - gap
    grid = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(grid), ImageFont.load_default(font_size)
    for column, title in enumerate(titles):
        left = column * (width + gap)
        draw.text((left + width / 2, margin / 2), title, "black", font, anchor="mm")
        for row, images in enumerate(rows):
            image = images[column].resize((width, height), Image.Resampling.NEAREST)
            grid.paste(image, (left, margin + row * (height + gap)), image if image.mode == "RGBA" else None)
    return grid


def _to_levels(image: np.ndarray) -> Image.Image:
    """Convert a float image [h, w, C] in [-1, 1] to gray, RGB or, of four channels, RGBA; not-a-number becomes black.

    Of two channels, the first one is shown; of more than four, the first three.
    """
    channels = image.shape[-1]
    shown = image[..., 0] if channels < 3 else image[..., : 4 if channels == 4 else 3]
    return Image.fromarray(np.nan_to_num(np.clip(np.round((shown + 1) * 127.5), 0, 255)).astype(np.uint8))


def png(image: Image.Image, level: int = 6) -> bytes:
    """Return an image as a PNG; a lower level is faster and larger."""
    buffer = io.BytesIO()
    image.save(buffer, "png", compress_level=level)
    return buffer.getvalue()
