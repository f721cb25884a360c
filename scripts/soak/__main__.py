"""Disturb small runs at random and check that they end like undisturbed ones: `python scripts/soak --help`.

Each run has random settings, on one to three replicas or two workers. It is trained once undisturbed. Then it is
trained again while it is killed, signalled and paused, the size of its files is limited as on a full disk, and its
newest checkpoint and its log are damaged between its starts. Every value of the last and the best checkpoints and
every line of metrics.jsonl must be equal bit for bit, except for times. The exit code is 0 if they are, and if no
start printed a traceback or ended in a way that no fault explains.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from cyclegan import terminal
from cyclegan.errors import UserError
from scripts.soak.comparison import checkpoints, damage, differences, is_readable
from scripts.soak.process import DEADLY, END_SECONDS, FAULTS, LIMIT_SECONDS, MOMENTS, Start
from scripts.soak.settings import Settings, per_start

TRACES = ("Traceback (most recent call last)", "Exception ignored", "Fatal Python error")


class Failure(Exception):
    """A run that did not end as it should."""


class Pair:
    """An undisturbed run and a disturbed one of the same settings.

    Args:
        folder: Folder for both; it must be new.
        seed: Seed of the settings and the faults.
        counts: Counters of starts, replicas, faults and moments; the pair adds to them.
    """

    def __init__(self, folder: pathlib.Path, seed: int, counts: Counter[str]) -> None:
        self.folder, self.counts = folder, counts
        self.rng = random.Random(seed)
        self.settings = Settings.random(self.rng)
        self.settings.write_images(folder / "data", seed)
        self._is_best_lost = False
        workers, devices = self.settings.workers, self.settings.devices
        self._note(f"{workers} workers, {devices} devices each: {' '.join(self.settings.flags)}")
        counts["2 workers" if workers > 1 else f"{devices} replicas"] += 1

    def compare(self) -> None:
        """Train both runs, and compare their ends.

        Raises:
            Failure: The disturbed run ended differently, or a start went wrong.
        """
        self._train_undisturbed()
        last = self.rng.randint(2, 5)
        for number in range(1, last + 1):
            if self._train_disturbed(is_last=number == last):
                break
        found = differences(self.folder / "whole", self.folder / "parts", self._is_best_lost)
        if found:
            raise Failure("; ".join(found))

    def _start(self, name: str, flags: Sequence[str]) -> Start:
        flags = ["--dataset", str(self.folder / "data"), *self.settings.flags, *flags]
        return Start(self.folder / name, flags, self.settings.workers, self.folder / f"{name}.txt")

    def _note(self, text: str) -> None:
        with open(self.folder / "parts.txt", "a") as log:
            log.write(f"\n== {time.strftime('%H:%M:%S')} {text}\n")

    def _train_undisturbed(self) -> None:
        begin = time.monotonic()
        start = self._start("whole", ["--plot_every", "99"])
        try:
            start.wait_for_progress()
            self._start_seconds = time.monotonic() - begin
            self._end(start)
        finally:
            start.kill()
        self._training_seconds = time.monotonic() - begin - self._start_seconds

    def _train_disturbed(self, is_last: bool) -> bool:
        """Start the run; disturb it except for the last time; return whether it has reached its end."""
        parts = self.folder / "parts"
        if (parts / "metrics.jsonl").exists() and self.rng.random() < 0.6 and (kind := damage(parts, self.rng)):
            self._note(f"damage: {kind}")
            self.counts[kind] += 1
        has_checkpoint = any(map(is_readable, checkpoints(parts)))
        flags = per_start(self.rng)
        self._note(f"start: {' '.join(flags)}")
        start = self._start("parts", flags)
        self.counts["starts"] += 1
        try:
            while not is_last:
                moment, fault = self.rng.choice(MOMENTS), self.rng.choice(FAULTS)
                if not start.wait_for_moment(moment, self.rng, self._start_seconds, self._training_seconds):
                    break
                self._note(f"{moment}: {fault}")
                start.disturb(fault, self.rng)
                self._is_best_lost |= "full disk" in fault
                self.counts.update((fault, f"faults at {moment}"))
                if fault in DEADLY:
                    return self._end(start, has_checkpoint, END_SECONDS)
            return self._end(start, has_checkpoint)
        finally:
            start.kill()

    def _end(self, start: Start, has_checkpoint: bool = False, seconds: float = LIMIT_SECONDS) -> bool:
        """Wait for the end of a start, and check it; return whether the run has reached its end."""
        codes, output = start.wait(seconds), start.output()
        self.counts["resumes"] += "Resumed from" in output
        if any(text in output for text in TRACES):
            raise Failure("a traceback")
        if codes is None:
            raise Failure("it did not end")
        if not start.allowed.issuperset(codes):
            raise Failure(f"exit codes {codes}, expected one of {sorted(start.allowed)}")
        if has_checkpoint and "Epoch " in output and "Resumed from" not in output:
            raise Failure("it began from nothing though there was a checkpoint")
        return not any(codes)


def main(argv: Sequence[str] | None = None) -> int:
    """Disturb runs for the time that the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5, help="time; 0 makes one run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; each adds 1 (default: %(default)s)")
    parser.add_argument("--output_dir", default="runs/soak", help="failed runs stay there (default: %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the counts to this file, too")
    arguments = parser.parse_args(argv)
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:  # as under nohup; the runs would inherit this
            signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the runs end, too
    counts: Counter[str] = Counter()
    failures: list[dict[str, object]] = []
    begin, minutes = time.monotonic(), 0.0
    try:
        while not counts["runs"] or minutes < arguments.minutes:
            seed = arguments.seed + counts["runs"]
            folder = pathlib.Path(arguments.output_dir).absolute() / f"seed_{seed}"
            if folder.exists():
                raise UserError(
                    f"{folder}: holds a failed run; expected no such folder: remove it, or change --output_dir"
                )
            folder.mkdir(parents=True)
            try:
                Pair(folder, seed, counts).compare()
                shutil.rmtree(folder)
            except Exception as failure:  # also a file that is missing, or a defect of this script
                reason = str(failure) if isinstance(failure, Failure) else f"{type(failure).__name__}: {failure}"
                failures.append({"seed": seed, "folder": str(folder), "reason": reason})
                print(f"FAILED: {reason}; see {folder}", flush=True)
            counts["runs"] += 1
            minutes = (time.monotonic() - begin) / 60
            print(f"{minutes:5.1f} min, seed {seed}: {counts['runs']} runs, {len(failures)} failed", flush=True)
            if arguments.json:
                content = {"minutes": minutes, "seed": arguments.seed, "counts": counts, "failures": failures}
                arguments.json.write_text(json.dumps(content, indent=2) + "\n")
    finally:  # also after Ctrl-C
        text = ", ".join(f"{counts[name]} {name}" for name in sorted(counts))
        print(f"{minutes:.1f} minutes from seed {arguments.seed}: {len(failures)} failed; {text}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(terminal.run(main))
