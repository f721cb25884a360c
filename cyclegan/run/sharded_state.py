"""State that is divided between the replicas."""

from __future__ import annotations

import abc
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf


class ShardedState(tf.train.experimental.PythonState):
    """State whose parts lie on different replicas; a checkpoint holds all parts as arrays."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    @abc.abstractmethod
    def read(self) -> Mapping[str, np.ndarray]:
        """Return the parts of all replicas, by name; collective: all workers call it at the same step."""

    @abc.abstractmethod
    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Give each replica of this worker its part of `arrays`, which a checkpoint holds.

        Raises:
            ValueError: The arrays do not fit.
        """

    def before_save(self) -> None:
        """Collect the parts of all replicas; call it on all workers before the chief saves."""
        self._arrays = dict(self.read())

    def after_save(self) -> None:
        """Free the memory of the collected parts."""
        self._arrays = {}

    def after_restore(self) -> None:
        """Give each replica its part of the restored arrays, if the checkpoint has this state."""
        if self._arrays:
            self.write(self._arrays)
        self._arrays = {}

    def serialize(self) -> bytes:
        """Return the collected parts as the bytes of an .npz file."""
        file = io.BytesIO()
        arrays: dict[str, Any] = self._arrays  # NumPy's options are keywords, too
        np.savez(file, **arrays)
        return file.getvalue()

    def deserialize(self, string_value: bytes) -> None:
        """Read the parts from the bytes of an .npz file."""
        with np.load(io.BytesIO(string_value), allow_pickle=False) as arrays:
            self._arrays = dict(arrays)
