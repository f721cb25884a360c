"""Counts of what a soak test has done and found."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any


@dataclasses.dataclass
class Scoreboard:
    """Counts of what was done and found.

    Attributes:
        seed: Seed of the first run; each run adds one.
        minutes: Time so far.
        runs: Disturbed runs compared with an undisturbed one.
        starts: Starts of disturbed runs.
        resumes: Starts that resumed from a checkpoint.
        replicas: Runs by the number of their replicas and workers.
        faults: Faults by kind: signals, full disks, damaged folders.
        moments: Faults by moment: at the start, while training begins, between steps, during a save.
        differences: Runs that ended differently.
        tracebacks: Starts that printed a traceback.
        wrong_ends: Starts that ended with an exit code that no fault explains, or not at all.
        failures: What failed: seed, folder and reason.
    """

    seed: int
    minutes: float = 0.0
    runs: int = 0
    starts: int = 0
    resumes: int = 0
    replicas: Counter[str] = dataclasses.field(default_factory=Counter)
    faults: Counter[str] = dataclasses.field(default_factory=Counter)
    moments: Counter[str] = dataclasses.field(default_factory=Counter)
    differences: int = 0
    tracebacks: int = 0
    wrong_ends: int = 0
    failures: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def kills(self) -> int:
        """Number of faults by SIGKILL."""
        return sum(count for fault, count in self.faults.items() if "SIGKILL" in fault)

    @property
    def signals(self) -> int:
        """Number of faults by other signals."""
        return sum(count for fault, count in self.faults.items() if "SIG" in fault) - self.kills

    def to_json(self) -> str:
        """Return all counts as JSON."""
        return json.dumps({**vars(self), "kills": self.kills, "signals": self.signals}, indent=2) + "\n"

    def line(self) -> str:
        """Return the main counts as one line."""
        names = ("runs", "starts", "resumes", "kills", "signals", "differences", "tracebacks", "wrong_ends")
        return ", ".join(f"{getattr(self, name)} {name.replace('_', ' ')}" for name in names)

    def table(self) -> str:
        """Return all counts as a table."""
        rows = [f"{self.minutes:.1f} minutes from seed {self.seed}: {self.line()}"]
        for name in ("replicas", "faults", "moments"):
            counts = getattr(self, name)
            rows.append(f"{name + ':':10}" + ", ".join(f"{counts[key]} {key}" for key in sorted(counts)))
        rows += [f"FAILED: seed {each['seed']}: {each['reason']}; see {each['folder']}" for each in self.failures]
        return "\n".join(rows)
