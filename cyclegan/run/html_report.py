"""HTML report of images before and after translation: one file beside the images, for use offline."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import html
import json
import os
import pathlib
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from cyclegan import whole_file
from cyclegan.errors import printable

SOURCE = pathlib.Path(__file__).with_name("report.html")  # report.css and report.js lie beside it
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{policy}}">
<meta name="viewport" content="width=device-width">
<title>{{title}}</title>
<style>{{style}}</style>
</head>
"""
JSON_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}


@dataclasses.dataclass(frozen=True)
class Frame:
    """Translations of one image at one epoch.

    Attributes:
        output: Path of the translation, in a format that browsers show, relative to the folder of the report.
        cycle: Path of the cycle image (the translation back); "" if there is none.
        scores: Finite floats by name.
        epoch: Epochs of training, with a fraction within an epoch; 0 if it does not matter.
    """

    output: str
    cycle: str = ""
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    epoch: float = 0


@dataclasses.dataclass(frozen=True)
class Item:
    """One image and its translations.

    Attributes:
        name: Name on the page, any text.
        direction: "X → Y" or "Y → X".
        input: Path of the image, relative to the folder of the report.
        frames: At least one frame, by increasing epoch.
    """

    name: str
    direction: str
    input: str
    frames: list[Frame]


def write(
    folder: str | os.PathLike[str],
    title: str,
    items: Sequence[Item],
    notes: Sequence[str] = (),
    run: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Write `index.html` in a folder atomically, with a title, notes below it, and items in order; return its path.

    Args:
        folder: The folder, which has the images.
        title: Title of the page.
        items: The images.
        notes: Remarks about them.
        run: Progress, curves, settings, their changes and log of a run, see `SummaryWriter.write_page`.

    Raises:
        OSError: The report cannot be written.
        ValueError: A score is not finite, or a path is not relative.
    """
    folder = pathlib.Path(folder)
    style, script = (SOURCE.with_suffix(suffix).read_text(encoding="utf-8") for suffix in (".css", ".js"))
    data = {"items": [_item_values(item) for item in items], "run": run}
    # ASCII that no HTML parser mistakes for markup.
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).translate(JSON_ESCAPES)
    parts = {"notes": "".join(f"<li>{html.escape(printable(note))}</li>" for note in notes), "data": text}
    return write_page(folder, SOURCE, title, parts, style, script)


def log_of_page(folder: pathlib.Path, part: str = "log") -> list[str]:
    """Return the log or the "warnings" of the run on the page in a folder; none if there is no page, or it has none."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        _, text = (folder / "index.html").read_text(encoding="utf-8").split('<script type="application/json">')
        return [str(line) for line in json.loads(text.partition("</script>")[0])["run"][part]]
    return []


def write_page(
    folder: pathlib.Path, body: pathlib.Path, title: str, parts: Mapping[str, str], style: str, script: str = ""
) -> pathlib.Path:
    """Write `index.html` atomically, with `parts` (HTML by name) in the template of its body; return its path."""
    # The policy allows this style, this script, and images beside the page.
    hashes = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in (style, script))
    policy = "default-src 'none'; img-src 'self' file:; style-src 'sha256-{}'; script-src 'sha256-{}';".format(*hashes)
    policy += " base-uri 'none'; form-action 'none'"
    head = {"policy": policy, "title": html.escape(printable(title)), "style": style, "script": script}
    template = HEAD + body.read_text(encoding="utf-8")
    page = re.sub(r"\{\{(\w+)\}\}", lambda match: {**parts, **head}[match.group(1)], template)
    whole_file.write(folder / "index.html", page)
    return folder / "index.html"


def url(path: str) -> str:
    """Convert a relative path, whose names may be any bytes, to a relative URL."""
    if os.path.isabs(path):
        raise ValueError(f"{path}: expected a path relative to the folder of the report")
    return urllib.parse.quote(os.fsencode(path))


def _item_values(item: Item) -> dict[str, object]:
    """Return the values of an item that the script of the page reads."""
    frames = []
    for frame in item.frames:
        scores = {printable(name): float(score) for name, score in frame.scores.items()}
        urls = {"output": url(frame.output), "cycle": url(frame.cycle)}
        frames.append({**urls, "scores": scores, "epoch": frame.epoch})
    return {"name": printable(item.name), "direction": item.direction, "input": url(item.input), "frames": frames}
