#!/usr/bin/env python
"""Disturb small runs at random and check that they end like undisturbed ones: `scripts/soak.py --help`.

Each run has random settings, on one to three replicas or two workers. It is trained once undisturbed. Then it is trained again
while it is killed, signalled and paused, the size of its files is limited as on a full disk, and the files of its folder are
damaged between its starts. Every variable of the last checkpoint and every line of metrics.jsonl must be equal bit for bit,
except for the times in the lines. The exit code is 0 if they are, and if no start printed a traceback or ended in a way that no
fault explains.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import pathlib
import random
import re
import shutil
import signal
import time
from collections.abc import Sequence

from cyclegan import terminal, whole_file
from cyclegan.config.command_line import ArgumentParser
from cyclegan.errors import UserError
from cyclegan.run.run_directory import saved_checkpoints
from scripts.soaking import settings
from scripts.soaking.comparison import differences, is_whole
from scripts.soaking.process import DEADLY, END_SECONDS, FAULTS, MOMENTS, Start
from scripts.soaking.scoreboard import Scoreboard
from scripts.soaking.tampering import TAMPERINGS

TRACES = ("Traceback (most recent call last)", "Exception ignored", "Fatal Python error")


class Failure(Exception):
    """A run that did not end as it should."""


class Pair:
    """An undisturbed run and a disturbed one of the same settings.

    Args:
        folder: Folder for both; it must be new.
        seed: Seed of the settings and the faults.
        board: Scoreboard of all runs.
    """

    def __init__(self, folder: pathlib.Path, seed: int, board: Scoreboard) -> None:
        self.folder, self.seed, self.board = folder, seed, board
        self._output = ""
        self.settings = settings.draw(random.Random(seed))
        settings.write_images(folder / "data", self.settings, seed)
        devices = (
            self.settings.flags[self.settings.flags.index("--devices") + 1]
            if "--devices" in self.settings.flags
            else "1"
        )
        self.replicas = "2 workers" if self.settings.workers > 1 else f"{devices} replica{'s' * (devices != '1')}"
        text = " ".join(["train.py --dataset data", *self.settings.flags, f"(workers: {self.settings.workers})"])
        (folder / "settings.txt").write_text(text + "\n")

    def compare(self) -> None:
        """Train both runs, and compare their ends.

        Raises:
            Failure: The disturbed run ended differently, or a start went wrong.
        """
        self.board.replicas[self.replicas] += 1
        self._train_undisturbed()
        last = random.Random(f"{self.seed} starts").randint(2, 5)
        for number in range(1, last + 1):
            if self._train_disturbed(number, is_last=number == last):
                break
        try:
            unsaved = re.findall(r"checkpoints/epoch_(\d+) could not be written", self._output)
            ends = self.folder / "whole", self.folder / "parts"
            found = differences(*ends, self.settings.epochs, set(map(int, unsaved)))
        except Exception as error:  # whatever a missing or damaged file leads to
            found = [f"the ends cannot be compared: {type(error).__name__}: {error}"]
        if found:
            self.board.differences += 1
            raise Failure("; ".join(found))
        if left := os.listdir(self.folder / "tmp"):
            raise Failure(f"left in TMPDIR: {left}")

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
            start.wait_for_training()
            self._start_seconds = time.monotonic() - begin
            self._end(start)
        finally:
            start.kill()
        self._training_seconds = time.monotonic() - begin - self._start_seconds

    def _train_disturbed(self, number: int, is_last: bool) -> bool:
        """Start the run; disturb it except for the last time; return whether it has reached its end."""
        rng = random.Random(f"{self.seed} start {number}")
        parts = self.folder / "parts"
        if number > 1 and rng.random() < 0.6:
            name = rng.choice(sorted(TAMPERINGS))
            if TAMPERINGS[name](parts, rng):
                self.board.faults[name] += 1
                self._note(f"damage: {name}")
        flags = settings.draw_per_start(rng)
        has_checkpoint = any(map(is_whole, saved_checkpoints(parts / "checkpoints")))
        self._note(f"start {number}: {' '.join(flags)}")
        start = self._start("parts", flags)
        self.board.starts += 1
        seconds = None
        try:
            while not is_last:
                moment, fault, share = rng.choice(MOMENTS), rng.choice(FAULTS), rng.random()
                details = random.Random(rng.random())
                if not start.wait_for_moment(moment, share, self._start_seconds, self._training_seconds):
                    break
                self._note(f"{moment}: {fault}")
                in_training = moment == "steps" and start.is_training()
                start.disturb(fault, details, together=moment == "start" or details.random() < 0.5)
                if in_training and not start.has_logged(self.settings.epochs - 1):  # so another epoch followed
                    start.demand_stop(fault)
                self.board.faults[fault] += 1
                self.board.moments[moment] += 1
                if fault in DEADLY:
                    seconds = END_SECONDS
                    break
            return self._end(start, seconds, has_checkpoint)
        finally:
            start.kill()

    def _end(self, start: Start, seconds: float | None = None, has_checkpoint: bool = False) -> bool:
        """Wait for the end of a start, and check it; return whether the run has reached its end."""
        codes = start.wait(seconds) if seconds else start.wait()
        output = start.output()
        self._output += output
        self.board.resumes += "Resumed from" in output
        if has_checkpoint and start.is_training() and "Resumed from" not in output:
            raise Failure("it began from nothing though there was a checkpoint")
        if any(text in output for text in TRACES):
            self.board.tracebacks += 1
            raise Failure("a traceback")
        if codes is None or not start.allowed.issuperset(codes):
            self.board.wrong_ends += 1
            raise Failure(f"exit codes {codes}, expected one of {sorted(start.allowed)}" if codes else "it did not end")
        return not any(codes)


def main(argv: Sequence[str] | None = None) -> int:
    """Disturb runs for the time that the command line asks for; return the exit code."""
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5, help="time; 0 makes one run (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the first run; each run adds 1 (default: %(default)s)"
    )
    parser.add_argument(
        "--output_dir", default="runs/soak", help="folder for the runs; failed runs are kept (default: %(default)s)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the scoreboard to this file after each run")
    arguments = parser.parse_args(argv)
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:  # as under nohup; the runs would inherit this
            signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the runs end, too
    board = Scoreboard(arguments.seed)
    begin = time.monotonic()
    try:
        while not board.runs or board.minutes < arguments.minutes:
            seed = arguments.seed + board.runs
            folder = pathlib.Path(arguments.output_dir).absolute() / f"seed_{seed}"
            if folder.exists():
                raise UserError(f"{folder}: holds a run that has failed; expected another --output_dir, or remove it")
            pair = Pair(folder, seed, board)
            try:
                pair.compare()
                shutil.rmtree(folder)
            except Exception as failure:  # a defect of this script must not end the runs that follow
                reason = str(failure) if isinstance(failure, Failure) else f"{type(failure).__name__}: {failure}"
                board.failures.append({"seed": seed, "folder": str(folder), "reason": reason})
                repeat = f"--seed {seed} --minutes 0 --output_dir {arguments.output_dir}_again"
                print(f"FAILED: {reason}; see {folder}, or repeat it with {repeat}", flush=True)
            board.runs += 1
            board.minutes = (time.monotonic() - begin) / 60
            print(f"{board.minutes:5.1f} min  seed {seed}, {pair.replicas}: {board.line()}", flush=True)
            if arguments.json:
                whole_file.write(arguments.json, board.to_json())
    finally:  # also after Ctrl-C
        print(board.table(), flush=True)
    return 1 if board.failures else 0


if __name__ == "__main__":
    sys.exit(terminal.run(main))
