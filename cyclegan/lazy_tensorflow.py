"""TensorFlow, imported at its first use, so that programs read their command lines without waiting for it."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from cyclegan.errors import first_line


@functools.cache
def load() -> Any:
    """Import TensorFlow and its Keras, and return TensorFlow.

    Raises:
        ImportError: One of them, or a package that they need, is missing or has a version that does not fit.
    """
    try:
        tensorflow = importlib.import_module("tensorflow")
        _ = tensorflow.keras.layers  # TensorFlow imports Keras at its first use
        return tensorflow
    except Exception as error:  # other versions of NumPy or protobuf cause errors of many types
        raise ImportError(f"TensorFlow can't be imported ({type(error).__name__}: {first_line(error)})") from error


class _LazyTensorFlow:
    def __getattr__(self, name: str) -> Any:
        return getattr(load(), name)


if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = _LazyTensorFlow()
