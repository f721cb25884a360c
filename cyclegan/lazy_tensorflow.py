"""TensorFlow, imported at its first use, so that programs read their command lines without waiting for it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class _LazyTensorFlow:
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("tensorflow"), name)


if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = _LazyTensorFlow()
