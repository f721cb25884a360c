"""Inspection of a dataset as text, in short at the start of training, and as an HTML page without a script."""

from __future__ import annotations

import collections
import html
import os
import pathlib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from PIL import Image

from cyclegan import terminal
from cyclegan.config.data import DataConfig
from cyclegan.data import loading
from cyclegan.data.sources import SPLITS, Domains
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import UserError, counted, printable
from cyclegan.images import reader
from cyclegan.inspection import findings
from cyclegan.inspection.findings import DUPLICATES, UNREADABLE_FILES, Finding
from cyclegan.inspection.inspection import BINS, FLAGS, Inspection, outlined, thumbnail
from cyclegan.run import html_report

FINDINGS = '<nav aria-label="Findings">'  # in each page
TEMPLATE = pathlib.Path(__file__).with_name("page.html")  # page.css lies beside it
MAX_IMAGES = 12  # images shown for a finding; the page lists the names of all others
IMAGE_SIDE = 192  # pixels of the images of the page at most
CROPS = 12  # random crops of each domain on the page
MAX_GROUPS = 3  # groups named for a finding
MAX_NAMES = 4  # images named in a group
MAX_SHORT_LINES = 5
MAX_KINDS = 3  # kinds of files, or profiles, of a split
WIDTH, HEIGHT = 256, 90  # of a histogram, whose heights are roots, so that small shares are visible
TICKS = (0.01, 0.05, 0.2, 0.5)  # shares at which it has lines
LEGEND = "Sizes: smallest, median, largest. Mean and standard deviation: by channel, of levels 0 to 255."
STATISTICS = (
    "readable images",
    "width, pixels",
    "height, pixels",
    "width / height",
    "bands",
    "color profiles",
    "mean",
    "deviation",
)


def statistics(inspection: Inspection) -> list[list[str]]:
    """Return the rows of a table: a title row with the splits, then those of `STATISTICS` that are known, by split."""
    columns = [_statistics(inspection.measures[inspection.splits == split]) for split in range(len(SPLITS))]
    return [["", *SPLITS], *([title, *cells] for title, *cells in zip(STATISTICS, *columns) if any(cells))]


def lines(inspection: Inspection) -> Iterator[str]:
    """Yield the lines of both tables: the statistics, and the findings with their meaning and advice."""
    rows = statistics(inspection)
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
    yield LEGEND
    yield from inspection.notes
    for number, finding in enumerate(inspection.findings, 1):
        yield ""
        yield f"{number}. {finding.kind.title}: {finding.count}"
        yield from (f"     {line}" for line in _examples(inspection.names, finding))
        yield f"   {finding.kind.meaning}"
        yield f"   {finding.advice or finding.kind.advice}"
    if not inspection.findings:
        yield "Nothing was found that harms training."


def _statistics(measures: np.ndarray) -> list[str]:
    """Return the cells of a column."""
    measures = measures[measures["readable"]]
    if not len(measures):
        return ["0", *[""] * (len(STATISTICS) - 1)]
    height, width = measures["height"], measures["width"]
    mean = measures["mean"].mean(axis=0, dtype=np.float64)
    squares = (np.square(measures["mean"], dtype=np.float64) + np.square(measures["deviation"])).mean(axis=0)
    deviation = np.sqrt(np.maximum(squares - mean**2, 0))
    return [
        str(len(measures)),
        *(_range(values) for values in (width, height, width / height)),
        _counts(measures["kind"]),
        _counts(measures["profile"]),
        *(" ".join(f"{value:.0f}" for value in values) for values in (mean, deviation)),
    ]


def _counts(names: np.ndarray) -> str:
    """Return the most frequent names with their numbers, or the only one."""
    kinds = collections.Counter(names.tolist()).most_common()
    named = [f"{kind or 'none'} {count}" if len(kinds) > 1 else kind for kind, count in kinds[:MAX_KINDS]]
    return ", ".join(named + ["..."] * (len(kinds) > MAX_KINDS))


def _range(values: np.ndarray) -> str:
    """Return the smallest, median and largest value, or the only one."""
    shown = (values[0],) if (values == values[0]).all() else (values.min(), np.median(values), values.max())
    return " ".join(f"{value:.0f}" if value >= 1000 else f"{value:.4g}" for value in shown)


def _examples(names: Sequence[str], finding: Finding) -> Iterator[str]:
    for group in finding.groups[:MAX_GROUPS]:
        named = [finding.describe(names, index) for index in group[:MAX_NAMES]]
        yield ", ".join([*named, "..."] if len(group) > MAX_NAMES else named)
    if (more := len(finding.groups) - MAX_GROUPS) > 0:
        yield f"and {more} more: --html FOLDER writes a page of all of them"


def short_lines(data: DataConfig, multiple: int, domains: Domains) -> list[str]:
    """Return the few lines for the start of training, about findings that need no decoding; none if there are none."""
    parts = [domains.files[split] for split in SPLITS]
    names = [name for part in parts for name in part.names]
    facts = np.concatenate([part.facts for part in parts])
    splits = np.repeat(np.arange(len(SPLITS)), [len(part) for part in parts])
    known = np.flatnonzero(facts["end"])
    keys = facts["length"][known].astype(np.uint64) << np.uint64(32) | facts["end"][known]
    copies = findings.of_copies(DUPLICATES, [known[group].tolist() for group in findings.equal_groups(keys)], splits)
    sizes = findings.of_sizes(data, multiple, loading.sizes_of(facts), splits, np.arange(len(facts)))
    found = []
    for finding in (*copies, *sizes, findings.of_counts(splits)):
        if finding.count:
            example = f", for example {' and '.join(names[i] for i in finding.groups[0][:2])}" if finding.groups else ""
            found.append(f"Data: {finding.kind.title}: {finding.count}{example}")
    if found and not (data.is_tfds or data.is_embedded):
        flags = _flags_of_inspection(data, domains.value_ranges)
        command = " ".join([terminal.command("inspect"), shlex.quote(data.dataset), *flags])
        found = [*found[: MAX_SHORT_LINES - 1], f"Data: {command} explains these findings and looks for more"]
    return found[:MAX_SHORT_LINES]


def _flags_of_inspection(data: DataConfig, value_ranges: Mapping[str, str | None]) -> list[str]:
    """Return the flags that give an inspection these settings, with value ranges as measured."""
    flags = {**{name: getattr(data, name) for name in FLAGS}, **value_ranges}
    usual = {name: getattr(DataConfig, name) for name in FLAGS} | {"image_width": data.image_size}
    return [f"--{name} {value}" for name, value in flags.items() if value != usual[name]]


def check_folder(folder: str | os.PathLike[str], dataset: str | os.PathLike[str]) -> None:
    """Make the folder of a page.

    Raises:
        UserError: Training would take its images for images of the dataset, or it holds another page or a run.
    """
    path = pathlib.Path(os.path.realpath(os.path.expanduser(folder)))
    for split in SPLITS:
        if pathlib.Path(os.path.realpath(os.path.join(os.path.expanduser(dataset), split))) in (path, *path.parents):
            raise UserError(f"--html {folder}: lies among the images; expected a folder outside of {split}")
    page = path / "index.html"
    is_own = page.is_file() and FINDINGS in page.read_text(encoding="utf-8", errors="replace")
    found = ["a run"] * (path / "config.json").is_file() + ["another index.html"] * (page.is_file() and not is_own)
    if not is_own and (path / "images").is_dir() and any((path / "images").iterdir()):
        found.append("files in images/")
    if found:
        raise UserError(
            f"--html {folder}: holds {' and '.join(found)}; expected a new folder, or one of an earlier inspection"
        )
    try:
        (path / "images").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--html {folder}: {error.strerror}; expected a folder that can be written to") from error


def write(folder: str | os.PathLike[str], inspection: Inspection) -> pathlib.Path:
    """Write `index.html`, with reduced copies of the images concerned in `images/`; return its path."""
    folder = pathlib.Path(folder).expanduser()
    style = "".join(page.with_suffix(".css").read_text(encoding="utf-8") for page in (html_report.SOURCE, TEMPLATE))
    found = list(enumerate(inspection.findings, 1))
    head, *rows = statistics(inspection)
    parts = {
        "head": _elements("th", head),
        "rows": "".join(f"<tr>{_elements('th', cells[:1])}{_elements('td', cells[1:])}</tr>" for cells in rows),
        "notes": _elements("li", (LEGEND, *inspection.notes)),
        "histograms": "".join(_histogram(inspection, split) for split in range(len(SPLITS))),
        "crops": _crops(folder, inspection),
        "contents": "".join(
            f'<li><a href="#finding-{i}">{_escape(each.kind.title)}</a>: {_escape(each.count)}</li>'
            for i, each in found
        ),
        "sections": "".join(_section(folder, inspection, i, finding) for i, finding in found),
    }
    title = f"{os.path.basename(os.path.realpath(inspection.folder))}: {counted(len(found), 'finding')}"
    return html_report.write_page(folder, TEMPLATE, title, parts, style)


def _escape(text: str) -> str:
    return html.escape(printable(text))


def _elements(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{_escape(text)}</{tag}>" for text in texts)


def _section(folder: pathlib.Path, inspection: Inspection, number: int, finding: Finding) -> str:
    """Return the section of a finding; write the images that it shows."""
    is_readable = finding.kind is not UNREADABLE_FILES
    groups, others, left = "", [], MAX_IMAGES * is_readable
    for group in finding.groups:
        shown, left = group[:left], max(0, left - len(group))
        figures = "".join(_figure(folder, inspection, finding, index) for index in shown)
        groups += f'<div class="group">{figures}</div>' if shown else ""
        others += [finding.describe(inspection.names, index) for index in group[len(shown) :]]
    is_open = "" if is_readable else " open"
    details = (
        f"<details{is_open}><summary>{len(others)} not shown</summary><ul>{_elements('li', others)}</ul></details>"
    )
    return (
        f'<section id="finding-{number}"><h2>{_escape(finding.kind.title)}: {_escape(finding.count)}</h2>'
        f"{_elements('p', (finding.kind.meaning, finding.advice or finding.kind.advice))}"
        f'<div class="groups">{groups}</div>{details if others else ""}</section>'
    )


def _figure(folder: pathlib.Path, inspection: Inspection, finding: Finding, index: int) -> str:
    """Write a reduced copy of an image; return its figure."""
    data, split = inspection.data, SPLITS[inspection.splits[index]]
    source, channels, value_range = inspection.sources[index], data.channels(split), data.value_range(split)
    pixels = reader.decode(source, channels, value_range=value_range, nodata=data.nodata)
    return _show(
        folder, f"images/{index}.png", thumbnail(pixels, IMAGE_SIDE), finding.describe(inspection.names, index)
    )


def _show(folder: pathlib.Path, file: str, image: Image.Image, name: str) -> str:
    """Write an image; return its figure."""
    image.save(folder / file)
    shown = f'<img loading="lazy" src="{html_report.url(file)}" alt="{_escape(name)}">'
    return f"<figure>{shown}<figcaption>{_escape(name)}</figcaption></figure>"


def _crops(folder: pathlib.Path, inspection: Inspection) -> str:
    """Return a section with random training images as the networks see them; write these images."""
    if not (domains := inspection.domains):
        return ""
    x, y, section = domains.files["trainA"], domains.files["trainB"], ""
    dataset = UnpairedDataset(x, y, 1, domains.size, seed=0, epoch_size=f"{CROPS}")
    for number, split in enumerate(SPLITS[:2]):
        figures = ""
        for pair in range(CROPS):
            image, mask = (read("XY"[number], 0, pair) for read in (dataset.image, dataset.mask))
            name = dataset.batch_names(0, pair)[number]
            figures += _show(folder, f"images/{split}-{pair}.png", outlined(image, mask > 0), name)
        section += f'<h3>{split}</h3><div class="groups">{figures}</div>'
    text = f"Random crops of {domains.size[1]} x {domains.size[0]} pixels, mirrored at random."
    text += " Red lines show the borders of masks." * dataset.has_masks
    return f"<section><h2>What the networks will see</h2><p>{text}</p>{section}</section>"


def _histogram(inspection: Inspection, split: int) -> str:
    """Return a drawing of the levels of a split, as a part of the page; "" without readable images."""
    chosen = inspection.measures[inspection.measures["readable"] & (inspection.splits == split)]
    if not len(chosen):
        return ""
    shares = chosen["levels"].mean(axis=0)
    is_gray = (shares == shares[0]).all()
    x, y = np.linspace(0, WIDTH, BINS + 1), HEIGHT * (1 - np.sqrt(shares / shares.max()))
    drawing = ""
    for name, row in zip("krgb"[0 if is_gray else 1 :], y[: 1 if is_gray else 3]):
        steps = " ".join(f"{left:.1f},{top:.1f} {right:.1f},{top:.1f}" for left, right, top in zip(x, x[1:], row))
        drawing += f'<polyline class="{name}" points="0,{HEIGHT} {steps} {WIDTH},{HEIGHT}"/>'
    for share in (share for share in TICKS if share < shares.max()):
        top = HEIGHT * (1 - np.sqrt(share / shares.max()))
        drawing += f'<path d="M0 {top:.1f}H{WIDTH}"/><text x="-4" y="{top + 4:.1f}" class="y">{share:.0%}</text>'
    value_range = inspection.data.value_range(SPLITS[split])
    low, high = value_range or (0, 255)
    for place, value in zip(np.linspace(0, WIDTH, 6), np.linspace(low, high, 6)):
        drawing += f'<text x="{place:.0f}" y="{HEIGHT + 14}">{value:.4g}</text>'
    caption = f"{SPLITS[split]}: share of the pixels by {'value' if value_range else 'level'}"
    box = f"-34 -8 {WIDTH + 54} {HEIGHT + 28}"
    return f'<figure><svg viewBox="{box}" role="img">{drawing}</svg><figcaption>{caption}</figcaption></figure>'
