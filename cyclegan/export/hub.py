"""Export as a folder for a model hub: generators as Keras and ONNX files, settings, samples, scores, a model card."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import cyclegan
from cyclegan.config import Config, serialization
from cyclegan.config.command_line import flags_of
from cyclegan.config.config import SETTINGS_OF_A_WORKER
from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import counted, printable
from cyclegan.export import MARKERS, exporter
from cyclegan.export.exporter import INPUT, OUTPUT, ExportOptions
from cyclegan.inference.model import Model
from cyclegan.run import metrics_log

HELD_OUT = ("test/error/", "test/score/")  # beginnings of the names of metrics on held-out images
HIGHER_IS_BETTER = ("PSNR", "SSIM")
GRID = "![Held-out images and their translations](samples.png)\n\n"
CARD = """\
---
license: unknown
pipeline_tag: image-to-image
tags: [image-to-image, unpaired-image-translation, {objective}, keras, onnx]
---

# {name}

Networks that translate between two sets of images, learned without pairs of matching images: {directions}.
Trained by version {version} of the program CycleGAN on every GPU.

![Held-out images and their translations](samples.png)

## Use

`*.onnx` needs ONNX Runtime 1.12 or newer, `*.keras` needs Keras {keras} of TensorFlow {tensorflow}. Images are float32
[N, H, W, channels] in [-1, 1], with sides that are multiples of {multiple} pixels.{ranges}

```python
import numpy as np, onnxruntime
from PIL import Image

{read}
(y,) = onnxruntime.InferenceSession("{direction}.onnx").run(["{output}"], {{"{input}": x}})
{write}
```

## Training

Data: `{dataset}`. {images}

Settings: `{flags}`. `config.json` has all of them.{changes}

## Scores

{scores}

{chosen}Errors are of values in [-1, 1].{meaning}

## Limits

- The networks know images like those of the training data, of {width} x {height} pixels, and nothing else.
- They invent what the target domain usually shows. Translations are no measurements, no evidence and no diagnoses.
- They were trained for {epochs}.{masks}{warnings}

## License

The program has the license Apache-2.0. The training images decide which license these weights can have: set
`license` above before you upload the folder.
"""

# Code of the card that reads an image and writes its translation, without and with a value range.
READ = """\
image = Image.open("image.jpg").convert("{mode}").resize(({width}, {height}))
x = np.asarray(image, np.float32).reshape(1, {height}, {width}, {channels}) / 127.5 - 1"""
READ_RANGE = """\
values = np.asarray(Image.open("image.png"), np.float32)  # from {low:g} to {high:g}
x = np.clip((values - {low:g}) / {span:g}, 0, 1).reshape(1, *values.shape[:2], {channels}) * 2 - 1"""
WRITE = 'Image.fromarray(np.rint((y[0] + 1) * 127.5).astype(np.uint8).squeeze()).save("translation.png")'
WRITE_RANGE = 'np.save("translation.npy", (y[0] + 1) / 2 * {span:g} + {low:g})  # from {low:g} to {high:g}'
MASKED = "The networks were trained with masks: outside of a mask, keep the pixels of the input"


def export(
    model: Model,
    generators: Mapping[str, tf.keras.Model],
    out: pathlib.Path,
    images: Mapping[str, Sequence[np.ndarray]],
) -> float:
    """Export generators of a run, by direction, into a folder for a model hub; see `web_page.export`.

    The settings name no folder of this machine and no tracker.
    """
    with exporter.new_file(out) as made:
        made.mkdir()
        differences = [
            exporter.write_checked(generator, made / f"{direction}.{format}", images[direction], ExportOptions(format))
            for direction, generator in generators.items()
            for format in ("keras", "onnx")
        ]
        saved = serialization.load(model.path / "config.json")
        run, data = saved.config.run, saved.config.data
        paths = {"output_dir": run.output_dir, "init_from": run.init_from}
        paths.update({} if data.is_tfds else {"dataset": data.dataset})
        kind, colon, weights = saved.config.evaluation.evaluate_features.rpartition(":")
        features = f"{kind}{colon}{os.path.basename(weights)}"  # a file of weights without its folder
        names = {name: path and printable(os.path.basename(os.path.normpath(path))) for name, path in paths.items()}
        state = model.train_state  # its settings are those of this checkpoint, which a resumed run may have changed
        config = Config.from_settings(saved.config.settings(), **state.settings)
        config = config.replace(**names, evaluate_features=features, data_dir=None, wandb=None, mlflow=None)
        serialization.save(made / "config.json", config, saved.stack, saved.data, saved.imported)
        grids = sorted(model.path.glob("samples/epoch_*.png"))
        if grids:
            shutil.copyfile(grids[-1], made / "samples.png")
        has_best = not serialization.few_held_out(saved.data)
        log = model.path / "metrics.jsonl"
        scores = best_and_last(metrics_log.epochs(log), state.epoch, has_best)
        changes = metrics_log.changes(metrics_log.read(log, logging.DEBUG))  # `epochs` warns of damaged lines
        changes = [each for each in changes if each[0] < state.epoch + bool(state.train.pairs_done)]
        (made / MARKERS["hub"]).write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
        card = write_card(saved._replace(config=config), model, [*generators], scores, changes)
        card = card if grids else card.replace(GRID, "")
        card = card.replace("license: unknown", f"license: {license_of(out)}", 1)
        (made / "README.md").write_text(card, encoding="utf-8")
    return max(differences)


def license_of(card: pathlib.Path) -> str:
    """Return the license that the model card in a folder names; "unknown" without a card."""
    text = (card / "README.md").read_text(encoding="utf-8") if (card / "README.md").is_file() else ""
    found = re.search(r"^license: (.+)$", text, re.MULTILINE)
    return found[1] if found else "unknown"


def best_and_last(epochs: Sequence[Mapping[str, Any]], last: int, has_best: bool) -> dict[str, dict[str, float]]:
    """Return the last and, if there is one, the best value of each held-out metric, with their epochs, up to `last`.

    A deviation has no best value.
    """
    found: dict[str, dict[str, float]] = {}
    for row in (row for row in epochs if row["epoch"] <= last):
        for name, value in ((name, value) for name, value in row.items() if name.startswith(HELD_OUT)):
            sign = -1 if name.endswith(HIGHER_IS_BETTER) else 1
            before = found.get(name[5:])
            if before is None or sign * value < sign * before["best"]:
                before = {"best": value, "best_epoch": row["epoch"]}
            found[name[5:]] = {**before, "last": value, "last_epoch": row["epoch"]}
    for metric, row in found.items():
        if not has_best or metric.endswith("_std"):
            del row["best"], row["best_epoch"]
    return found


def write_card(
    saved: serialization.SavedConfig,
    model: Model,
    directions: Sequence[str],
    scores: Mapping[str, Mapping[str, float]],
    changes: Sequence[tuple[float, Sequence[str]]],
) -> str:
    """Return the model card in Markdown; see `best_and_last` for scores, and `metrics_log.changes`."""
    config, data, state = saved.config, saved.config.data, model.train_state
    height, width = data.image_shape
    channels = model.channels(directions[0])[0]
    settings = {name: value for name, value in config.unusual_settings().items() if name not in SETTINGS_OF_A_WORKER}
    few = serialization.few_held_out(saved.data)
    kinds = ["last"] if few else ["best", "last"]
    rows = [["metric on held-out images", *kinds], ["---"] * (1 + len(kinds))]
    for name, row in scores.items():
        cells = (f"{row[kind]:.4g} (epoch {row[f'{kind}_epoch']})" if kind in row else "-" for kind in kinds)
        rows.append([name, *cells])
    chosen = f"{few[0].upper()}{few[1:]}. " if few else "The same images chose the best epoch. "
    ranges = {domain: value_range for domain in "XY" if (value_range := data.value_range(domain))}
    changed = "".join(f"\n- {printable(metrics_log.describe_change(*change))}" for change in changes)
    counts = (f"{split} has {text.partition(' (')[0]}." for split, text in saved.data.items() if "(" in text)
    source, target = (ranges.get(DIRECTIONS[directions[0]][i]) for i in (0, 1))
    size = {"width": width, "height": height, "channels": channels, "mode": "L" if channels == 1 else "RGB"}
    return CARD.format(
        read=_with_range(READ, READ_RANGE, source, size),
        write=_with_range(WRITE, WRITE_RANGE, target, size),
        masks=f"\n- {MASKED}." if is_masked(saved.data) else "",
        **{"name": printable(model.path.resolve().name), "objective": config.objective.objective},
        **{"width": width, "height": height, "direction": directions[0], "input": INPUT},
        **{"output": OUTPUT, "multiple": config.networks.multiple},
        **saved.stack,
        directions=" and ".join(f"`{each}` from {' to '.join(DIRECTIONS[each])}" for each in directions),
        version=cyclegan.__version__,
        ranges="".join(f" In {each}, -1 and 1 stand for {low:g} and {high:g}." for each, (low, high) in ranges.items()),
        dataset=data.dataset,
        images=" ".join(text for text in counts if "bytes" not in text),
        flags=flags_of(settings),
        changes=f" These are those of the checkpoint; changes before it:\n{changed}" if changed else "",
        scores="\n".join(f"| {' | '.join(row)} |" for row in rows),
        chosen=chosen,
        meaning=f" {config.evaluation.meaning}." if any("/FID" in name for name in scores) else "",
        epochs=f"{state.epoch} of {counted(config.optimization.epochs, 'epoch')}",
        warnings="".join(f"\n- Training warned: {text}." for text in state.warned),
    )


def is_masked(data: Mapping[str, Any]) -> bool:
    """Return whether a run was trained with masks, given `SavedConfig.data`."""
    return any(name.startswith("masks of ") for name in data)


def _with_range(code: str, code_of_range: str, limits: tuple[float, float] | None, size: Mapping[str, Any]) -> str:
    if limits is None:
        return code.format(**size)
    return code_of_range.format(low=limits[0], high=limits[1], span=limits[1] - limits[0], **size)
