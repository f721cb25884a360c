"""A page that shows pictures before and after translation: one HTML file beside them, for current browsers, without a network."""

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

from PIL import Image

from cyclegan.errors import printable

TEMPLATE = pathlib.Path(__file__).with_name("report.html")
HARMLESS = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}  # in JSON inside of HTML


@dataclasses.dataclass(frozen=True)
class Frame:
    """What came out of one picture at one time.

    `output`, `cycle`: of the translation and of its translation back ("" where there is none), paths of pictures that browsers
    show, relative to the page's folder. `scores`: finite floats by name; less is better unless the name says otherwise. `epoch`:
    of training, 0 where it does not matter.
    """

    output: str
    cycle: str = ""
    scores: dict = dataclasses.field(default_factory=dict)
    epoch: int = 0


@dataclasses.dataclass(frozen=True)
class Item:
    """One picture and what came out of it.

    `name`: shown, any text. `direction`: "X → Y" or "Y → X". `input`: a path, as those of `Frame`. `frames`: of `Frame`, at least
    one, by rising epoch.
    """

    name: str
    direction: str
    input: str
    frames: list


def write(folder, title, items, notes=()):
    """Writes `index.html`, whole or not at all.

    Args:
        folder: where the page goes, and from where the items' paths are relative.
        title: of the page, any text.
        items: list of `Item`, in the order that they are shown in.
        notes: texts shown on top.

    Returns:
        The page's path.

    Raises:
        OSError: it can't be written.
        ValueError: a score is not finite, or a path is not relative.
    """
    folder = pathlib.Path(folder)
    template = TEMPLATE.read_text(encoding="utf-8")
    parts = {
        "policy": _policy(template),
        "title": html.escape(printable(title)),
        "notes": "".join(f"<li>{html.escape(printable(note))}</li>" for note in notes),
        "data": _json({"aspect": _aspect(folder, items), "items": [_plain(item) for item in items]}),
    }
    text = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found.group(1)], template)
    path, partial = folder / "index.html", folder / "index.html.partial"
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    return path


def _policy(template):
    """A Content-Security-Policy: only the template's own style and script, only pictures from where the page is."""

    def source(element):
        (content,) = re.findall(rf"<{element}>(.*?)</{element}>", template, re.DOTALL)
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; img-src 'self' file:; style-src {source('style')}; script-src {source('script')};"
        " base-uri 'none'; form-action 'none'"
    )


def _json(values):
    """As JSON that no HTML parser mistakes for markup; all that is not ASCII is escaped too."""
    return json.dumps(values, allow_nan=False, separators=(",", ":")).translate(HARMLESS)


def _plain(item):
    """An `Item` as what the page's script reads."""
    frames = [
        {
            "output": _url(frame.output),
            "cycle": _url(frame.cycle),
            "scores": {printable(name): float(score) for name, score in frame.scores.items()},
            "epoch": int(frame.epoch),
        }
        for frame in item.frames
    ]
    return {
        "name": printable(item.name),
        "direction": printable(item.direction),
        "input": _url(item.input),
        "frames": frames,
    }


def _url(path):
    """A relative path as a relative URL, whatever bytes the names are made of."""
    if os.path.isabs(path):
        raise ValueError(f"{path}: expected a path relative to the page's folder")
    return urllib.parse.quote(os.fsencode(str(path).replace(os.sep, "/")))


def _aspect(folder, items):
    """Width over height of the first picture, and so of the place that each one gets before it is loaded; in [0.5, 2]."""
    try:
        with Image.open(folder / items[0].input) as picture:
            width, height = picture.size
    except Exception:  # Pillow raises almost anything on a damaged file, and a missing one is the browser's to show
        return 1.0
    return min(max(width / height, 0.5), 2.0)
