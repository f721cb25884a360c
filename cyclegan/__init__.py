"""CycleGAN on every GPU of the machine.

>>> import cyclegan
>>> run = cyclegan.train(dataset="my_images", epochs=100, output_dir="runs/mine")
>>> run = cyclegan.load("runs/mine")  # later, or in another program
>>> run.x2y("horse.jpg").save("zebra.png")
>>> run.evaluate(features="random")
>>> run.export("horse2zebra.onnx")
>>> cyclegan.translate(run, "horses/", "zebras/")

`load` is the class `api.Run`; `train` and `translate` are functions of `api`.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from cyclegan.errors import UserError

if TYPE_CHECKING:
    from cyclegan.api import Run, load, train, translate

__version__ = "0.1.0"

__all__ = ["Run", "UserError", "__version__", "load", "train", "translate"]

if sys.version_info < (3, 9):  # noqa: UP036  where the other modules are syntax errors
    sys.exit(f"This is Python {sys.version.split()[0]}; expected 3.9 to 3.13: PYTHON=python3.11 scripts/setup.sh")

# Hides TensorFlow's notices at start, such as "Unable to register cuDNN factory". Errors still come as exceptions, and
# `distribution.strategy` reports GPUs that TensorFlow does not see. TF_CPP_MIN_LOG_LEVEL=0 shows the notices.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The Keras of `tf.keras` is decided here, whatever other programs need, because the networks are made for it.
os.environ.update({"TF_USE_LEGACY_KERAS": "0", "KERAS_BACKEND": "tensorflow"})

# Without them, modules would end in tracebacks before an entry point can explain it.
for _name in ("numpy", "PIL", "imagecodecs", "psutil", "tifffile"):
    if importlib.util.find_spec(_name) is None:
        from cyclegan import terminal

        sys.exit(terminal.run(functools.partial(importlib.import_module, _name)))

_LAZY = ("Run", "load", "train", "translate")


def __getattr__(name: str) -> object:
    """Import the public functions when they are first used, because importing TensorFlow takes seconds."""
    if name in _LAZY:
        importlib.import_module("cyclegan.lazy_tensorflow").load()
        return getattr(importlib.import_module("cyclegan.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, also before their first use."""
    return __all__
