#!/usr/bin/env python
"""Compare settings of train.py: `python scripts/ablation.py --minutes 10`.

Each setting is trained with several seeds for as many steps as fit into the same time, at a constant learning rate.
Times of a step are measured first, in turns, so that a busy machine slows all settings alike; seconds.json in the
output folder keeps them. Then scripts/score_stripes.py scores each run: the last checkpoint and, if `--evaluate_every`
is among the flags for train.py, the one with the lowest KID of each direction. Each finished run adds a line to
runs.jsonl, and ablation.md is written anew. The same command resumes: finished runs are kept, and an unfinished one
starts over. Processes may share the folder. Words after `--` are flags of train.py for all runs. For a folder of label
maps and photographs:

    python scripts/ablation.py --dataset FOLDER --minutes 60 -- --preprocess crop --image_size 64 --evaluate_every 1
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import argparse
import itertools
import json
import logging
import multiprocessing
import pathlib
import shlex
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cyclegan import terminal, whole_file
from cyclegan.data.loading import available_cores
from cyclegan.errors import TrainingError, UserError, printable
from cyclegan.run.run_directory import saved_checkpoints
from scripts.score_stripes import TITLES

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRAIN, SCORE = ROOT / "train.py", ROOT / "scripts" / "score_stripes.py"
EPOCHS = 5  # of each run
TURNS = 15  # of the timing, each with one step of each setting
PROTOCOL = ("dataset", "minutes", "features", "flags")  # fields of a result that all runs of a folder share
BEST = {"best-x2y": "X -> Y", "best-y2x": "Y -> X"}  # direction in which a checkpoint is the best
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
    "paper": "--variant paper",
    "CUT": "--objective cut --variant paper",
    "CUT, antialias": "--objective cut --variant paper --antialias",
    "FastCUT": "--objective fastcut --variant paper --antialias",
    "hDCE + SRC": "--objective cut --variant paper --antialias --nce hdce",
    "DCLGAN": "--objective dclgan --variant paper --antialias",
}
COMMON = f"--lr_schedule constant --epochs {EPOCHS} --plot_every {EPOCHS + 1} --no_peak --keep 1"

logger = logging.getLogger("cyclegan.ablation")
# Of a run: fields of `PROTOCOL`, "setting", "seed", "command", "commit", "cores", "epoch", "step", and "scores" by
# direction and checkpoint ("X -> Y", "X -> Y, best KID") and by name.
Result = dict[str, Any]


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    text = "Train a list of settings with several seeds for equal wall times, and compare their scores."
    parser = argparse.ArgumentParser(description=text)
    text = "scenes, stripes, or a folder whose held-out images of equal names show the same scene (default: scenes)"
    parser.add_argument("--dataset", default="scenes", help=text)
    parser.add_argument("--minutes", type=float, default=10.0, help="time of the steps of a run (default: 10)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N - 1 (default: 3)")
    text = f"some of: {', '.join(SETTINGS)} (default: all)"
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=[*SETTINGS], metavar="NAME", help=text)
    text = "features that FID and KID compare, as for scripts/evaluate.py (default: random)"
    parser.add_argument("--features", default="random", metavar="KIND", help=text)
    output = pathlib.Path("runs", "ablation")
    parser.add_argument("--output", type=pathlib.Path, default=output, help="(default: runs/ablation)")
    parser.add_argument("flags", nargs="*", metavar="FLAG", help="after --: flags of train.py for all runs")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> list[Result]:
    """Train and score the unfinished runs, write the table, and return the results of all runs.

    Raises:
        UserError: The output folder holds runs of another protocol.
        TrainingError: A run failed; all others were finished.
    """
    arguments = parse_args(argv)
    terminal.configure_logging(1)
    protocol = {**vars(arguments), "flags": shlex.join(arguments.flags)}
    protocol = {name: protocol[name] for name in PROTOCOL}
    output = arguments.output.expanduser()
    output.mkdir(parents=True, exist_ok=True)
    file, failed = output / "runs.jsonl", []
    for name, value in protocol.items():
        if other := [result[name] for result in read_results(file) if result[name] != value]:
            raise UserError(
                f"{output} holds runs with {name} {other[0]!r}; expected {value!r}: repeat the command of these runs,"
                " or choose a new folder with --output"
            )
    seconds = seconds_per_step(output / "seconds.json", arguments)
    for seed, setting in itertools.product(range(arguments.seeds), arguments.settings):
        if any((result["setting"], result["seed"]) == (setting, seed) for result in read_results(file)):
            continue
        try:
            result = {**protocol, **train_and_score(output, setting, seed, seconds[setting], arguments)}
        except TrainingError as error:
            failed.append(str(error))
            logger.warning(printable(error))
            continue
        with open(file, "a", encoding="utf-8") as lines:  # of all processes that share the folder
            lines.write(json.dumps(result) + "\n")
        whole_file.write(output / "ablation.md", "\n".join(table(read_results(file))) + "\n")
    print(*table(read_results(file)), sep="\n")
    if failed:
        raise TrainingError(f"{len(failed)} of {arguments.seeds * len(arguments.settings)} runs failed: {failed[0]}")
    return read_results(file)


def read_results(file: pathlib.Path) -> list[Result]:
    """Return the results of the finished runs of a folder."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def seconds_per_step(file: pathlib.Path, arguments: argparse.Namespace) -> Mapping[str, float]:
    """Return the seconds per step of each setting, from a file; measure missing ones in turns with the baseline."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if missing := [setting for setting in arguments.settings if setting not in known]:
        settings = [BASELINE, *(setting for setting in missing if setting != BASELINE)]
        flags = [*COMMON.split(), *arguments.flags, "--dataset", arguments.dataset]
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # gives the memory back
            times = pool.apply(measure_steps, [[[*flags, *SETTINGS[setting].split()] for setting in settings]])
        baseline = known.setdefault(BASELINE, statistics.median(times[0]))
        for setting, each in zip(settings[1:], times[1:]):
            known[setting] = baseline * statistics.median(a / b for a, b in zip(each, times[0]))
        whole_file.write(file, json.dumps(known, indent=2) + "\n")
    return known


def measure_steps(command_lines: Sequence[Sequence[str]]) -> list[list[float]]:
    """Return the seconds of a step with the flags of each command line, in each of `TURNS`."""
    import numpy as np
    import tensorflow as tf

    from cyclegan.config.command_line import parse_args as parse_flags
    from cyclegan.distribution.strategy import make_strategy
    from scripts.benchmark.steps import make_default

    calls, times = [], [[] for _ in command_lines]
    for flags in command_lines:
        config = parse_flags(flags)
        batch, data = config.optimization.batch_size, config.data
        shapes = [(1, batch, *data.image_shape, channels) for channels in (data.channels_x, data.channels_y)]
        images = [np.random.default_rng(0).integers(0, 256, shape, np.uint8) for shape in shapes]
        step = make_default(make_strategy(1), batch, config, 1)
        calls.append((step, (*map(tf.constant, images), tf.ones([1, batch]))))
    for turn in range(-2, TURNS):
        for (step, batches), mine in zip(calls, times):
            began = time.perf_counter()
            step(batches).numpy()
            if turn >= 0:
                mine.append(time.perf_counter() - began)
    return times


def train_and_score(
    output: pathlib.Path, setting: str, seed: int, seconds: float, arguments: argparse.Namespace
) -> Result:
    """Train and score a run whose steps take this time; return its result without the fields of the protocol.

    Raises:
        TrainingError: Training or scoring failed.
    """
    logger.info(f"{setting}, seed {seed}")
    run = output / f"{setting.replace(' ', '_')}-{seed}"
    flags = [*COMMON.split(), *arguments.flags, *SETTINGS[setting].split(), "--dataset", arguments.dataset]
    flags += ["--epoch_size", str(max(1, round(60 * arguments.minutes / seconds / EPOCHS)))]
    command = [str(TRAIN), *flags, "--seed", str(seed), "--output_dir", str(run), "--clear_output_dir"]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    result = {"setting": setting, "seed": seed, "command": shlex.join(command[1:]), "commit": commit.stdout.strip()}
    log = run.with_suffix(".log")
    with open(log, "wb") as lines:
        code = subprocess.run([sys.executable, *command], stdout=lines, stderr=subprocess.STDOUT).returncode
    if code:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] or ["no output"]
        raise TrainingError(f"{shlex.join(command)} ended with code {code}: {last[0]}; see {log}")
    last = score(run, saved_checkpoints(run / "checkpoints")[-1].name, arguments.features)
    scores = last["scores"]
    for name, direction in BEST.items():
        if saved_checkpoints(run / "checkpoints", name):
            scores[f"{direction}, best KID"] = score(run, name, arguments.features)["scores"][direction]
    cores = available_cores()
    return {**result, "cores": cores, "epoch": last["epoch"], "step": last["step"], "scores": scores}


def score(run: pathlib.Path, checkpoint: str, features: str) -> dict[str, Any]:
    """Return the scores of a checkpoint, and its position in training.

    Raises:
        TrainingError: Scoring failed.
    """
    file = run.with_suffix(".scores")
    command = [str(SCORE), str(run), "--checkpoint", checkpoint, "--features", features, "--json", str(file)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    if done.returncode:
        raise TrainingError(f"{shlex.join(command)} failed: {done.stderr.strip()[-300:]}")
    return json.loads(file.read_text(encoding="utf-8"))


def table(results: Sequence[Result]) -> list[str]:
    """Return the lines of the Markdown table: for each setting the mean and the standard deviation over the seeds.

    Bold scores differ from the baseline by more than the sum of both deviations.
    """
    columns = dict.fromkeys((part, name) for run in results for part in run["scores"] for name in run["scores"][part])
    titles = [f"{part}: {TITLES[name]}" for part, name in columns]
    rows = {setting: [run for run in results if run["setting"] == setting] for setting in SETTINGS}
    lines = ["| " + " | ".join(["setting", "flags", "runs", "steps", *titles]) + " |", "|" + "---|" * (4 + len(titles))]
    for setting, runs in rows.items():
        if runs:
            steps = round(statistics.mean(run["step"] for run in runs))
            cells = [_cell(runs, rows[BASELINE], *column) for column in columns]
            lines.append(f"| {' | '.join([setting, f'`{SETTINGS[setting]}`', str(len(runs)), str(steps), *cells])} |")
    facts = {name: dict.fromkeys(str(run[name]) for run in results) for name in (*PROTOCOL, "commit", "cores")}
    return [*lines, "", ", ".join(f"{name}: {' and '.join(values)}" for name, values in facts.items())]


def _cell(runs: Sequence[Result], baseline: Sequence[Result], part: str, name: str) -> str:
    mine, theirs = (_mean_and_deviation(each, part, name) for each in (runs, baseline))
    if not mine:
        return "-"  # the setting trains one direction
    text = f"{mine[0]:.2f} ± {mine[1]:.2f}" if len(runs) > 1 else f"{mine[0]:.2f}"
    differs = theirs and min(len(runs), len(baseline)) > 1 and abs(mine[0] - theirs[0]) > mine[1] + theirs[1]
    return f"**{text}**" if differs else text


def _mean_and_deviation(runs: Sequence[Result], part: str, name: str) -> tuple[float, float] | None:
    values = [run["scores"][part][name] for run in runs if part in run["scores"]]
    return (statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0) if values else None


if __name__ == "__main__":
    sys.exit(terminal.run(main, "stopped; the same command resumes"))
