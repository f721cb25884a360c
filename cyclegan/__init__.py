"""CycleGAN on every GPU there is.

>>> import cyclegan
>>> model = cyclegan.load("runs/horse2zebra")
>>> model.x2y("horse.jpg").save("zebra.png")
>>> cyclegan.translate("runs/horse2zebra", "horses/", "zebras/")

`load` is `inference.Model`, `translate` is `translation.translate`.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclegan.inference.translate_files import translate
    from cyclegan.inference.translator import load

__all__ = ["load", "translate"]

# TensorFlow's own notices at start ("Unable to register cuDNN factory", without any GPU) say nothing that `distribute`
# does not say better. Errors that matter come as exceptions. TF_CPP_MIN_LOG_LEVEL=0 brings the notices back.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def __getattr__(name):
    """Imports TensorFlow, which takes seconds to start, for those who want these, and not for all who import a part."""
    if name == "load":
        from cyclegan.inference.translator import load

        return load
    if name == "translate":
        from cyclegan.inference.translate_files import translate

        return translate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
