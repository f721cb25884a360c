#!/usr/bin/env python
"""Compare settings of train.py on an embedded dataset: `python scripts/ablation.py --minutes 10`.

Each setting is trained with several seeds, one run after the other, each for the same wall time from its first step,
at a constant learning rate. Then it is scored against the ground truth. The same command resumes: finished runs are
kept, and an unfinished one starts over; all runs of a folder have the same code. After each run, ablation.md and
ablation.json are written anew, with all finished runs of the folder. Words after `--` are flags of train.py for all
runs.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import argparse
import itertools
import json
import logging
import pathlib
import shlex
import signal
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cyclegan import terminal, whole_file
from cyclegan.config.data import EMBEDDED
from cyclegan.data.loading import available_cores
from cyclegan.errors import TrainingError, UserError, printable
from cyclegan.run.run_directory import saved_checkpoints
from cyclegan.run.train_state import TrainState
from scripts.score_stripes import TITLES

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRAIN, SCORE = ROOT / "train.py", ROOT / "scripts" / "score_stripes.py"
CODE = ("cyclegan", "scripts", "train.py", "requirements.txt")
POLL_SECONDS = 0.1
RESULT = "{}-{}.json"  # file with the result of a run, by setting and seed
BASELINE = "default"
SETTINGS = {  # flags of train.py
    BASELINE: "",
    "no identity": "--lambda_identity 0",
    "no pool": "--pool_size 0",
    "EMA": "--ema 0.999",
    "DiffAugment": "--diffaugment color,translation,cutout",
    "R1": "--r1 1",
    "spectral norm": "--discriminator_norm spectral",
    "hinge": "--adversarial hinge",
    "SSIM": "--lambda_ssim 1",
    "TTUR": "--lr 0.0005 --lr_discriminator 0.002",
    "paired share 0.1": "--lambda_paired 10 --paired_names --paired_share 0.1",
    "CUT": "--objective cut",
    "FastCUT": "--objective fastcut",
}
COMMON = "--lr_schedule constant --epochs 1000000 --plot_every 1000000 --checkpoint_every 1000000 --no_peak --keep 1"
LAST = "--verbose 1"  # the clock starts with the line of the first epoch

logger = logging.getLogger("cyclegan.ablation")
Result = dict[str, Any]  # of a run: "setting", "seed", "epochs", "steps", "seconds" and "scores" by direction and name


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    text = "Train a list of settings with several seeds for equal wall times, and compare their errors."
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--dataset", choices=EMBEDDED, default="scenes", help="embedded dataset (default: scenes)")
    parser.add_argument("--minutes", type=float, default=10.0, help="wall time of each run (default: 10)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N - 1 (default: 3)")
    text = f"some of: {', '.join(SETTINGS)} (default: all)"
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=[*SETTINGS], metavar="NAME", help=text)
    output = pathlib.Path("runs", "ablation")
    parser.add_argument("--output", type=pathlib.Path, default=output, help="(default: runs/ablation)")
    parser.add_argument("flags", nargs="*", metavar="FLAG", help="after --: flags of train.py for all runs")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> list[Result]:
    """Train and score the unfinished runs, write the tables, and return the results of all runs.

    Raises:
        UserError: The output folder holds runs with other flags or another wall time.
        TrainingError: A run failed; all others were finished.
    """
    arguments = parse_args(argv)
    terminal.configure_logging(1)
    output = arguments.output.expanduser()
    output.mkdir(parents=True, exist_ok=True)
    protocol = {
        **{"dataset": arguments.dataset, "minutes": arguments.minutes, "flags": shlex.join(arguments.flags)},
        "commit": code_version(),
    }
    path = output / "protocol.json"
    if not path.exists():
        whole_file.write(path, json.dumps(protocol, indent=2) + "\n")
    elif json.loads(path.read_text(encoding="utf-8")) != protocol:
        raise UserError(
            f"{output} holds runs of another dataset, wall time, commit or flags; expected the same protocol:"
            " repeat its values, or choose a new folder with --output"
        )
    failed = []
    # The inner loop has the settings, so that slow changes of the machine hit all of them.
    for seed, setting in itertools.product(range(arguments.seeds), arguments.settings):
        try:
            finish_run(output, setting, seed, arguments)
        except TrainingError as error:
            failed.append(str(error))
            logger.warning(printable(error))
        write_tables(output, load_results(output), protocol)
    print((output / "ablation.md").read_text(encoding="utf-8"))
    if failed:
        raise TrainingError(f"{len(failed)} of {arguments.seeds * len(arguments.settings)} runs failed: {failed[0]}")
    return load_results(output)


def code_version() -> str:
    """Return the commit that last changed the code, and whether the code differs from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words, "--", *CODE], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    return (git("log", "-1", "--format=%h") or "unknown") + ("-dirty" if git("status", "--porcelain") else "")


def finish_run(output: pathlib.Path, setting: str, seed: int, arguments: argparse.Namespace) -> None:
    """Train and score a run if it is not finished.

    Raises:
        TrainingError: Training or scoring failed.
    """
    file = output / RESULT.format(setting.replace(" ", "_"), seed)
    run = file.with_suffix("")
    if file.exists():
        return
    logger.info(f"{setting}, seed {seed}")
    flags = [*COMMON.split(), *arguments.flags, *SETTINGS[setting].split(), "--dataset", arguments.dataset]
    command = [str(TRAIN), *flags, *LAST.split(), "--seed", str(seed), "--output_dir", str(run), "--clear_output_dir"]
    train_for(command, file.with_suffix(".log"), 60 * arguments.minutes)
    state = read_state(saved_checkpoints(run / "checkpoints")[-1])
    scores = file.with_suffix(".scores")
    done = subprocess.run([sys.executable, str(SCORE), str(run), "--json", str(scores)], capture_output=True, text=True)
    if done.returncode:
        raise TrainingError(f"{setting}, seed {seed}: {SCORE.name} failed: {done.stderr.strip()[-300:]}")
    result = {
        **{"setting": setting, "seed": seed, "command": shlex.join(command[1:]), "seconds": 60 * arguments.minutes},
        **{"epochs": state.epoch, "steps": state.step, "scores": json.loads(scores.read_text(encoding="utf-8"))},
    }
    whole_file.write(file, json.dumps(result, indent=2) + "\n")


def read_state(checkpoint: pathlib.Path) -> TrainState:
    """Return the training state of a checkpoint."""
    with terminal.start():
        from cyclegan.run.checkpoints import read_train_state

    return read_train_state(checkpoint)


def load_results(output: pathlib.Path) -> list[Result]:
    """Return the results of all finished runs, by seed, in the order of the settings."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in output.glob(RESULT.format("*", "*"))]
    return sorted(found, key=lambda result: (result["seed"], list(SETTINGS).index(result["setting"])))


def train_for(command: Sequence[str], log: pathlib.Path, seconds: float) -> None:
    """Train for a wall time from the first epoch on, then stop training with a checkpoint.

    Args:
        command: Program and flags.
        log: File that gets the output.
        seconds: The wall time.

    Raises:
        TrainingError: Training failed.
    """
    with open(log, "wb") as output:
        process = subprocess.Popen([sys.executable, *command], stdout=output, stderr=subprocess.STDOUT)
    begin = None
    try:
        while process.poll() is None and (begin is None or time.monotonic() < begin + seconds):
            if begin is None and b"Epoch " in log.read_bytes():
                begin = time.monotonic()
            time.sleep(POLL_SECONDS)
    finally:
        if process.poll() is None:  # the time is over, or Ctrl-C
            process.terminate()
            process.wait()
    if begin is None or process.returncode != 128 + signal.SIGTERM:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] or ["no output"]
        raise TrainingError(f"{shlex.join(command)} ended with code {process.returncode}: {last[0]}; see {log}")


def write_tables(output: pathlib.Path, results: Sequence[Result], protocol: Mapping[str, Any]) -> None:
    """Write ablation.json and ablation.md."""
    facts = {**protocol, "cores": available_cores(), "command": shlex.join(sys.argv)}
    content = json.dumps({**facts, "results": results}, indent=2)
    whole_file.write(output / "ablation.json", content + "\n")
    lines = [
        *table(results, str(protocol["dataset"])),
        "",
        ", ".join(f"{name}: {value}" for name, value in facts.items()),
    ]
    whole_file.write(output / "ablation.md", "\n".join(lines) + "\n")


def table(results: Sequence[Result], dataset: str) -> list[str]:
    """Return the lines of the Markdown table: for each setting the mean and the standard deviation over the seeds.

    Bold scores differ from the baseline by more than the sum of both deviations.
    """
    columns = [(direction, name) for direction, names in TITLES[dataset].items() for name in names]
    titles = [f"{direction}: {TITLES[dataset][direction][name]}" for direction, name in columns]
    rows: dict[str, list[Result]] = {}
    for result in results:
        rows.setdefault(result["setting"], []).append(result)
    lines = ["| " + " | ".join(["setting", "flags", "runs", "steps", *titles]) + " |", "|" + "---|" * (4 + len(titles))]
    for setting, runs in rows.items():
        steps = round(statistics.mean(run["steps"] for run in runs))
        cells = [_cell(runs, rows.get(BASELINE, []), *column) for column in columns]
        lines.append(f"| {' | '.join([setting, f'`{SETTINGS[setting]}`', str(len(runs)), str(steps), *cells])} |")
    return lines


def _cell(runs: Sequence[Result], baseline: Sequence[Result], direction: str, name: str) -> str:
    mine, theirs = (_mean_and_deviation(each, direction, name) for each in (runs, baseline))
    if not mine:
        return "-"  # the setting trains one direction
    text = f"{mine[0]:.2f} ± {mine[1]:.2f}" if len(runs) > 1 else f"{mine[0]:.2f}"
    differs = theirs and min(len(runs), len(baseline)) > 1 and abs(mine[0] - theirs[0]) > mine[1] + theirs[1]
    return f"**{text}**" if differs else text


def _mean_and_deviation(runs: Sequence[Result], direction: str, name: str) -> tuple[float, float] | None:
    values = [run["scores"][direction][name] for run in runs if direction in run["scores"]]
    return (statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0) if values else None


if __name__ == "__main__":
    sys.exit(terminal.run(main, "stopped; the same command resumes"))
