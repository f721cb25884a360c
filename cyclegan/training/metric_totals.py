"""Sums of the metrics over the samples of a pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from cyclegan.methods.metric_names import SAMPLES


class MetricTotals:
    """Sums of the metrics over the samples of a pass, kept on the device.

    Args:
        names: Names of all metrics.
        sums: Sums at the start of the pass, or where it was interrupted; empty for a new pass. Only metrics that have been summed
            from the beginning of the pass are kept, so that every mean covers all samples.

    Attributes:
        tensors: The sums by name, float64 scalars. They include the metrics that are not kept, because otherwise the train
            function would be traced again in the next epoch, when all metrics are kept.
    """

    def __init__(self, names: Sequence[str], sums: Mapping[str, float]) -> None:
        names = (*names, SAMPLES)
        sums = sums or dict.fromkeys(names, 0.0)
        self._kept = tuple(sums)
        self.tensors: dict[str, tf.Tensor] = {name: tf.constant(sums.get(name, 0.0), tf.float64) for name in names}

    def to_host(self) -> dict[str, float]:
        """Wait for the device and return the sums that are kept."""
        return {name: float(self.tensors[name]) for name in self._kept}


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Return the means over the samples, given sums that include the number of samples; empty if there are none."""
    samples = sums.get(SAMPLES)
    return {name: value / samples for name, value in sums.items() if name != SAMPLES} if samples else {}
