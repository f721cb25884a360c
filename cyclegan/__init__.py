"""CycleGAN on every GPU there is.

>>> import cyclegan
>>> model = cyclegan.load("runs/horse2zebra")
>>> model.x2y("horse.jpg").save("zebra.png")
>>> cyclegan.translate("runs/horse2zebra", "horses/", "zebras/")
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclegan.inference import Model
    from cyclegan.translation import Report

    Path = str | os.PathLike[str]

# TensorFlow's own notices at start ("Unable to register cuDNN factory", without any GPU) say nothing that `distribute`
# does not say better. Errors that matter come as exceptions. TF_CPP_MIN_LOG_LEVEL=0 brings the notices back.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# TensorFlow, which takes seconds to start, is imported by those who call these, not by all who import a part of the package.


def load(run: Path, checkpoint: str | None = None, precision: str | None = None) -> Model:
    """The generators of a run, to translate with: an `inference.Model`.

    Args:
        run: the run's folder.
        checkpoint: the name of one of its checkpoints, "epoch_0010" say; by default the newest that can be read.
        precision: "float32", "bfloat16" or "float16"; by default what the run was trained in.

    Raises:
        UserError: it is no run's folder, or one of the other TensorFlow, or without such a checkpoint.
    """
    from cyclegan.inference import Model

    return Model(run, checkpoint, precision)


def translate(run: Path | Model, source: Path, target: Path, direction: str = "x2y", **options: Any) -> Report:
    """Translates pictures from files to files.

    Args:
        run: the run's folder, or what `load` returned.
        source, target, direction: see `translation.translate`; `options` are its others.

    Returns:
        A `translation.Report`: what was done, and what failed.

    Raises:
        UserError: what was asked for can't be; nothing is written.
    """
    from cyclegan import inference, translation

    model = run if isinstance(run, inference.Model) else load(run)
    return translation.translate([model], source, target, direction, **options)
