"""Export as a folder for a model hub: generators as Keras and ONNX files, settings, samples, scores, a model card."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import cyclegan
from cyclegan.config import serialization
from cyclegan.config.config import SETTINGS_OF_A_START, SETTINGS_OF_A_WORKER, all_settings
from cyclegan.config.sections import DIRECTIONS
from cyclegan.errors import printable
from cyclegan.export import exporter
from cyclegan.export.exporter import MARKERS, ExportOptions
from cyclegan.export.portable import INPUT, OUTPUT
from cyclegan.inference.model import Model
from cyclegan.run import metrics_log

SCORED = ("test/error/", "test/score/")  # beginnings of the metrics on held-out images
SPLITS = ("trainA", "trainB", "testA", "testB")
HIDDEN = {*SETTINGS_OF_A_START, *SETTINGS_OF_A_WORKER}  # settings that do not change the result
HIGHER_IS_BETTER = ("PSNR", "SSIM")
CARD = """\
---
license: unknown
pipeline_tag: image-to-image
tags: [image-to-image, unpaired-image-translation, {objective}, keras, onnx]
---

# {name}

Networks that translate between two sets of images, learned from images without pairs: {directions}. Trained
with version {version} of the program CycleGAN on every GPU.

{samples}
## Use

`*.onnx` needs ONNX Runtime 1.12 or newer, `*.keras` needs Keras {keras} of TensorFlow {tensorflow}. Images are float32
[N, H, W, channels] in [-1, 1], with sides that are multiples of {multiple} pixels.{ranges}

```python
import numpy as np, onnxruntime
from PIL import Image

image = Image.open("image.jpg").convert("{mode}").resize(({width}, {height}))
x = np.asarray(image, np.float32).reshape(1, {height}, {width}, {channels}) / 127.5 - 1
(y,) = onnxruntime.InferenceSession("{direction}.onnx").run(["{output}"], {{"{input}": x}})
Image.fromarray(np.rint((y[0] + 1) * 127.5).astype(np.uint8).squeeze()).save("translation.png")
```

## Training data

`{dataset}`: {images}.

## Settings

`{flags}`

`config.json` has all settings.

## Scores

{scores}

On held-out images after each epoch. The best epoch was chosen with the same images. Errors are of values in
[-1, 1]; scores are those of `{features}`.

## Limits

- The networks know images like those of the training data, of {width} x {height} pixels, and nothing else.
- They invent what the target domain usually shows. Translations are no measurements, no evidence and no diagnoses.
- {epochs} epochs were trained.{warnings}

## License

The program has the license Apache-2.0. The license of these weights depends on that of the training images: set
`license` above before you upload the folder.
"""


def export(
    model: Model,
    generators: Mapping[str, tf.keras.Model],
    out: pathlib.Path,
    images: Mapping[str, Sequence[np.ndarray]],
) -> float:
    """Write the folder of a run for a model hub, as `exporter.export` does.

    Args:
        model: The run at a checkpoint, in float32.
        generators: Those of its generators to export, by direction.
        out: Folder to make.
        images: uint8 images [H, W, C] to compare on, by direction.

    Returns:
        The largest difference of the files from the networks, in gray levels of 255.
    """
    with exporter.new_file(out) as made:
        made.mkdir()
        differences = [
            exporter.write_checked(generator, made / f"{direction}.{format}", images[direction], ExportOptions(format))
            for direction, generator in generators.items()
            for format in ("keras", "onnx")
        ]
        saved = serialization.load(model.path / "config.json")
        run, dataset = saved.config.run, saved.config.data.dataset
        names = {"output_dir": run.output_dir, "init_from": run.init_from}
        if not saved.config.data.is_tfds:
            names["dataset"] = dataset
        private = {name: path and _without_folders(path) for name, path in names.items()}
        config = saved.config.replace(**private, data_dir=None, wandb=None, mlflow=None)
        serialization.save(made / "config.json", config, saved.stack, saved.data, saved.imported)
        if samples := sorted(model.path.glob("samples/epoch_*.png")):
            shutil.copyfile(samples[-1], made / "samples.png")
        scores = best_and_last(metrics_log.epochs(model.path / "metrics.jsonl"), model.train_state.epoch)
        (made / MARKERS["hub"]).write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
        card = write_card(saved._replace(config=config), model, list(generators), scores, bool(samples))
        (made / "README.md").write_text(card, encoding="utf-8")
    return max(differences)


def best_and_last(epochs: Sequence[Mapping[str, Any]], last: int) -> dict[str, dict[str, float]]:
    """Return the best value, its epoch and the value at the epoch `last` of each metric on held-out images."""
    found: dict[str, dict[str, float]] = {}
    for row in (row for row in epochs if row["epoch"] <= last):
        for name in (name for name in row if name.startswith(SCORED)):
            sign = -1 if name.endswith(HIGHER_IS_BETTER) else 1
            best = found.setdefault(name.partition("/")[2], {"best": row[name], "best_epoch": row["epoch"]})
            if sign * row[name] < sign * best["best"]:
                best.update(best=row[name], best_epoch=row["epoch"])
            best.update(last=row[name], last_epoch=row["epoch"])
    return found


def write_card(
    saved: serialization.SavedConfig,
    model: Model,
    directions: Sequence[str],
    scores: Mapping[str, Mapping[str, float]],
    has_samples: bool = True,
) -> str:
    """Return the model card in Markdown; `scores` is the result of `best_and_last`."""
    config, data, state = saved.config, saved.config.data, model.train_state
    height, width = data.image_shape
    channels = model.channels(directions[0])[0]
    shown = {name: value for name, value in config.chosen_settings().items() if name not in HIDDEN}
    flags = [f"--{name} {value}" for name, value in shown.items() if value != all_settings()[name].field.default]
    rows = [
        f"| {name} | {row['best']:.4g} (epoch {row['best_epoch']}) | {row['last']:.4g} (epoch {row['last_epoch']}) |"
        for name, row in scores.items()
    ]
    ranges = {domain: value_range for domain in "XY" if (value_range := data.value_range(domain))}
    counts = [f"{split} has {text.partition(' (')[0]}" for split, text in saved.data.items() if split in SPLITS]
    return CARD.format(
        name=printable(model.path.resolve().name),
        objective=config.objective.objective,
        directions=" and ".join(f"`{each}` from {' to '.join(DIRECTIONS[each])}" for each in directions),
        samples="![Held-out images and their translations](samples.png)\n" if has_samples else "",
        version=cyclegan.__version__,
        **saved.stack,
        multiple=config.networks.multiple,
        ranges="".join(f" In {each}, -1 and 1 stand for {low:g} and {high:g}." for each, (low, high) in ranges.items()),
        mode={1: "L", 3: "RGB"}.get(channels, "RGB"),
        **{"width": width, "height": height, "channels": channels, "direction": directions[0]},
        **{"input": INPUT, "output": OUTPUT},
        dataset=data.dataset,
        images="; ".join(counts) or "the number of images is not known, because the networks were imported",
        flags=" ".join(flags),
        scores="\n".join(["| metric | best | last |", "|---|---|---|", *rows]) if rows else "No scores were computed.",
        features=state.best_kid_features or "none",
        epochs=f"{state.epoch} of {config.optimization.epochs}",
        warnings="".join(f"\n- Training warned: {text}." for text in state.warned),
    )


def _without_folders(path: str | os.PathLike[str]) -> str:
    return printable(os.path.basename(os.path.normpath(path)))
