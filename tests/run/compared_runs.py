"""Files of runs to compare."""

import json

from cyclegan.config import Config, serialization

STACK = {"tensorflow": "2.15.1", "keras": "2.15.0"}


def make_run(folder, errors, scores=(), **settings):
    """Make the files of a run with an error and a score in each epoch."""
    folder.mkdir(parents=True)
    serialization.save(folder / "config.json", Config.from_settings(**settings), STACK, {"trainA": 3})
    lines = [{"split": "steps", "epoch": 1, "step": 1, "error/MAE": 99.0}]
    for epoch, error in enumerate(errors, 1):
        lines.append({"split": "train", "epoch": epoch, "step": epoch, "error/MAE": 99.0, "epoch_seconds": 1.5})
        lines.append({"split": "test", "epoch": epoch, "step": epoch, "error/MAE": error, "loss_X/loss": 0.25})
    for epoch, score in scores:
        lines.append({"split": "test", "epoch": epoch, "step": epoch, "score/x2y/PSNR": score})
    lines.append({"split": "train", "epoch": 1, "step": 1, "event": "skipped", "losses": {}})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"split": "te')
    return folder


def two_runs(folder):
    """Make two runs that differ in their settings; return their folders."""
    return [
        make_run(folder / "a", [3.0, 1.0, 2.0], [(2, 20.0), (3, 10.0)], lr=1e-3),
        make_run(folder / "b", [0.5], lr=1e-4, objective="cut", epochs=7),
    ]
