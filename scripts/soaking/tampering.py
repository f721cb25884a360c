"""Damage to the folder of a run between two starts, from which the program promises to recover."""

from __future__ import annotations

import pathlib
import random
import shutil
from collections.abc import Callable

from cyclegan.run.run_directory import saved_checkpoints
from scripts.soaking.comparison import is_whole, read_state


def _rewrite(path: pathlib.Path, content: bytes) -> None:
    """Replace a file, but not the other links to it."""
    path.unlink()
    path.write_bytes(content)


def _newest(run: pathlib.Path) -> pathlib.Path | None:
    """Return the newest checkpoint, which may be damaged already, if another one can take its place."""
    *older, newest = saved_checkpoints(run / "checkpoints") or [None]
    return newest if any(map(is_whole, older)) else None


def _file_of_newest(run: pathlib.Path, rng: random.Random) -> pathlib.Path | None:
    newest = _newest(run)
    found = [path for path in sorted(newest.iterdir()) if path.stat().st_size] if newest else []
    return rng.choice(found) if found else None


def cut_file(run: pathlib.Path, rng: random.Random) -> bool:
    """Cut a file of the newest checkpoint."""
    if path := _file_of_newest(run, rng):
        _rewrite(path, path.read_bytes()[: rng.randrange(path.stat().st_size)])
    return path is not None


def flip_bit(run: pathlib.Path, rng: random.Random) -> bool:
    """Flip a bit in a file of the newest checkpoint."""
    if path := _file_of_newest(run, rng):
        content = bytearray(path.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        _rewrite(path, bytes(content))
    return path is not None


def remove_file(run: pathlib.Path, rng: random.Random) -> bool:
    """Remove a file of the newest checkpoint."""
    if path := _file_of_newest(run, rng):
        path.unlink()
    return path is not None


def leave_partial(run: pathlib.Path, rng: random.Random) -> bool:
    """Leave what a kill during a save leaves: incomplete files."""
    saved, partial = saved_checkpoints(run / "checkpoints"), run / "checkpoints" / "partial"
    if not saved:
        return False
    if not partial.exists():
        shutil.copytree(rng.choice(saved), partial)
        rng.choice(sorted(partial.iterdir())).unlink()
    (run / "config.json.partial").write_text('{"config": ')
    return True


def change_end_of_log(run: pathlib.Path, rng: random.Random) -> bool:
    """Cut what metrics.jsonl got since the newest checkpoint, or add half a line."""
    log, saved = run / "metrics.jsonl", saved_checkpoints(run / "checkpoints")
    complete = [path for path in saved if is_whole(path)]
    if not log.exists() or not complete:
        return False
    needed = read_state(complete[-1]).log_bytes
    content = log.read_bytes()
    if len(content) > needed and rng.random() < 0.5:
        log.write_bytes(content[: rng.randint(needed, len(content))])
    else:
        log.write_bytes(content + b'{"split": "steps", "epo')
    return True


TAMPERINGS: dict[str, Callable[[pathlib.Path, random.Random], bool]] = {
    "cut checkpoint": cut_file,
    "flipped bit": flip_bit,
    "missing file": remove_file,
    "leftovers": leave_partial,
    "end of log": change_end_of_log,
}
