"""HTML page of an inspection: the statistics and the images concerned, for current browsers, without a network or script."""

from __future__ import annotations

import contextlib
import html
import os
import pathlib
from collections.abc import Iterator

from cyclegan.data.sources import SPLITS
from cyclegan.errors import UserError, printable
from cyclegan.images import reader
from cyclegan.inspection import measure, table
from cyclegan.inspection.findings import UNREADABLE, Finding
from cyclegan.inspection.inspection import Inspection
from cyclegan.run import html_report

TEMPLATE = pathlib.Path(__file__).with_name("page.html")  # page.css lies beside it
MAX_IMAGES = 60  # that are shown for a finding; the names of all others are listed
SIDE = 192  # pixels of the images of the page at most


def check_folder(folder: str | os.PathLike[str], dataset: str | os.PathLike[str]) -> None:
    """Make the folder of a page, and check that training will not take its images for images of the dataset.

    Raises:
        UserError: The folder cannot be made, or lies in trainA, trainB, testA or testB of the dataset.
    """
    path = pathlib.Path(folder).expanduser().resolve()
    for split in SPLITS:
        if (pathlib.Path(dataset).expanduser() / split).resolve() in (path, *path.parents):
            raise UserError(f"--html {folder}: lies among the images; expected a folder outside of {split}")
    try:
        (path / "images").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--html {folder}: {error.strerror}; expected a folder that can be written to") from error


def write(folder: str | os.PathLike[str], inspection: Inspection) -> pathlib.Path:
    """Write `index.html`, with reduced copies of the images concerned in `images/`; return its path.

    Raises:
        OSError: A file cannot be written.
    """
    folder = pathlib.Path(folder).expanduser()
    style = (html_report.SOURCE.with_suffix(".css")).read_text(encoding="utf-8")
    style += TEMPLATE.with_suffix(".css").read_text(encoding="utf-8")
    name = inspection.folder.resolve().name
    findings = list(enumerate(inspection.findings, 1))
    parts = {
        "table": _table(inspection),
        "notes": "".join(f"<li>{_escape(note)}</li>" for note in (table.LEGEND, *inspection.notes)),
        "contents": "".join(
            f'<li><a href="#finding-{i}">{_escape(finding.kind.title)}</a>: {_escape(finding.count)}</li>'
            for i, finding in findings
        ),
        "sections": "".join(part for i, finding in findings for part in _section(folder, inspection, i, finding)),
    }
    title = f"{name}: {len(findings) or 'no'} finding{'s'[: len(findings) != 1]}"
    return html_report.write_page(folder, TEMPLATE, title, parts, style)


def _escape(text: str) -> str:
    return html.escape(printable(text))


def _table(inspection: Inspection) -> str:
    title, *rows = table.statistics(inspection)
    head = "".join(f'<th scope="col">{_escape(cell)}</th>' for cell in title)
    body = (
        f'<tr><th scope="row">{_escape(first)}</th>{"".join(f"<td>{_escape(cell)}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    )
    return f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody>"


def _section(folder: pathlib.Path, inspection: Inspection, number: int, finding: Finding) -> Iterator[str]:
    """Yield the parts of the section of a finding."""
    kind = finding.kind
    yield f'<section id="finding-{number}"><h2>{_escape(kind.title)}: {_escape(finding.count)}</h2>'
    yield f"<p>{_escape(kind.meaning)}</p><p>{_escape(kind.advice)}</p>"
    shown = 0
    rest: list[int] = []
    yield '<div class="groups">'
    for group in finding.groups:
        part = group[: 0 if kind is UNREADABLE else max(0, MAX_IMAGES - shown)]
        if part:
            yield f'<div class="group">{"".join(_figure(folder, inspection, finding, i) for i in part)}</div>'
        shown += len(part)
        rest += group[len(part) :]
    yield "</div>"
    if rest:
        names = "\n".join(f"<li>{_escape(_describe(inspection, finding, i))}</li>" for i in rest)
        listed = f"<ul>{names}</ul>"
        yield listed if kind is UNREADABLE else f"<details><summary>{len(rest)} not shown</summary>{listed}</details>"
    yield "</section>"


def _describe(inspection: Inspection, finding: Finding, index: int) -> str:
    return table.describe(inspection.names, finding, index)


def _figure(folder: pathlib.Path, inspection: Inspection, finding: Finding, index: int) -> str:
    """Write a reduced copy of an image; return its figure."""
    file = f"images/{index}.png"
    with contextlib.suppress(ValueError, SyntaxError, OSError):
        domain = inspection.splits[index] % 2
        channels, value_range = inspection.channels[domain], inspection.value_ranges[domain]
        pixels = reader.decode(inspection.path(index), channels, value_range=value_range)
        measure.thumbnail(pixels, SIDE).save(folder / file)
    name = _escape(_describe(inspection, finding, index))
    return f'<figure><img loading="lazy" src="{html_report.url(file)}" alt="{name}"><figcaption>{name}</figcaption></figure>'
