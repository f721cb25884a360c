"""Reports for the tests of the HTML report."""

import json
import os
import re

import numpy as np
from PIL import Image

from cyclegan.run.html_report import Frame, Item

MARKUP = "<img src=x onerror=alert(1)>\"'&#%?.png"
ODD = [MARKUP, "</script><script>alert(1)</script>", "two\nlines", "caf\udce9"]
ODD += ["\u2028<!--", "a:b\\c", "größe 馬.png"]


def image_file(folder, name, value=128, size=(32, 32)):
    """Write a flat PNG; return its name."""
    path = os.path.join(os.fsencode(folder), os.fsencode(name))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        Image.fromarray(np.full((*size, 3), value, np.uint8)).save(file, "png")
    return name


def sample(folder, name, errors, direction="X → Y", epochs=(10, 20, 30)):
    """Return an item with a frame for each cycle error."""
    frames = []
    for epoch, error in zip(epochs, errors):
        output, back = (image_file(folder, f"{epoch}/{name} {kind}") for kind in ("out", "back"))
        frames.append(Frame(output, back, {"cycle error": error}, epoch))
    return Item(name, direction, image_file(folder, f"in/{name}"), frames)


def report_data(page):
    """Return the data of a report."""
    (found,) = re.findall(
        r'<script type="application/json">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL
    )
    return json.loads(found)


def shown_epochs(folder):
    """Return the epochs that the report of a run shows."""
    return sorted({frame["epoch"] for item in report_data(folder / "index.html")["items"] for frame in item["frames"]})
