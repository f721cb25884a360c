"""Short form of the inspection at the start of training, from facts that are known without decoding an image."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

import numpy as np

from cyclegan import terminal
from cyclegan.config import Config
from cyclegan.config.data import DataConfig
from cyclegan.data import loading
from cyclegan.data.sources import SPLITS, Domains
from cyclegan.inspection import findings, inspection
from cyclegan.inspection.findings import Finding

MAX_LINES = 5


def lines(data: DataConfig, multiple: int, domains: Domains) -> list[str]:
    """Return at most `MAX_LINES` lines about findings; none if nothing was found."""
    sets = [part for part in (domains.train_x, domains.train_y, domains.test_x, domains.test_y) if part is not None]
    names = [name for part in sets for name in part.names]
    found = []
    for finding in _find(data, multiple, [part.facts for part in sets]):
        if finding.count:
            example = f", for example {' and '.join(names[i] for i in finding.groups[0][:2])}" if finding.groups else ""
            found.append(f"Data: {finding.kind.title}: {finding.count}{example}")
    if found and not (data.is_tfds or data.is_embedded):
        command = " ".join(
            [terminal.command("inspect"), shlex.quote(data.dataset), *_flags(data, domains.value_ranges)]
        )
        found = [*found[: MAX_LINES - 1], f"Data: {command} explains these findings and looks for more"]
    return found[:MAX_LINES]


def _flags(data: DataConfig, value_ranges: Mapping[str, str | None]) -> list[str]:
    """Return the flags that give an inspection these settings, with value ranges as measured."""
    sizes = {name: getattr(data, name) for name in ("preprocess", "image_size", "image_width")}
    usual = {"load_size": Config.from_settings(**sizes).data.load_size, "image_width": data.image_size}
    flags = {name: getattr(data, name) for name in inspection.FLAGS}
    flags.update(value_ranges)
    return [f"--{name} {value}" for name, value in flags.items() if value != usual.get(name, getattr(DataConfig, name))]


def _find(data: DataConfig, multiple: int, facts: list[np.ndarray]) -> Iterator[Finding]:
    """Yield findings, empty ones included; `facts` has `reader.FACTS_DTYPE` [N] of each split."""
    merged = np.concatenate(facts)
    splits = np.repeat(np.arange(len(SPLITS)), [len(part) for part in facts])
    known = np.flatnonzero(merged["end"])
    keys = merged["length"][known].astype(np.uint64) << np.uint64(32) | merged["end"][known]
    groups = [known[group].tolist() for group in findings.equal_groups(keys)]
    yield from findings.of_copies(findings.DUPLICATES, groups, splits)
    sizes = loading.sizes_of(merged)
    yield findings.of_sizes(data, multiple, sizes, splits, np.arange(len(sizes)))
    yield findings.of_counts(splits)
