"""Warnings about settings that change the training of a resumed run."""

from __future__ import annotations

import math

from cyclegan.config.sections import OptimizationConfig
from cyclegan.training import schedule


def batch_size_warnings(
    before: int, now: int, replicas: int, pairs: float = math.inf, has_pools: bool = False
) -> list[str]:
    """Describe the effect of a global batch that is larger than an epoch, or that differs from the batch so far.

    Args:
        before: Global batch of the run so far; 0 before its first step.
        now: Global batch from here on.
        replicas: Number of replicas.
        pairs: Training pairs of an epoch.
        has_pools: Whether training uses image pools.
    """
    idle = f"the global batch of {now} is larger than an epoch of {pairs} pairs: most of each step is idle"
    warnings = [idle] if now > pairs else []
    if before in (0, now):
        return warnings
    devices = max(n for n in range(1, replicas + 1) if before % n == 0)
    pools = " image pools are redistributed and may drop images," if has_pools else ""
    fewer = f"--devices {devices} " if devices < replicas else ""
    return [
        *warnings,
        f"the global batch is {now} pairs instead of {before} from here on: an epoch has"
        f" {'fewer' if now > before else 'more'} steps, the noise in their gradients changes,{pools}"
        " so the result will differ from a run with the former batch, and --lr may have to change, too. For the same batch use"
        f" {fewer}--batch_size {before // devices}",
    ]


def learning_rate_warnings(saved: OptimizationConfig, present: OptimizationConfig, epochs_done: int) -> list[str]:
    """Describe the jump of the learning rate, if a run is resumed with other --epochs that cause one.

    Args:
        saved: Settings of the run so far.
        present: Settings from here on.
        epochs_done: Whole epochs done.
    """
    before, now = (each.decay_factor(epochs_done) for each in (saved, present))
    if present.epochs == saved.epochs or math.isclose(before, now, abs_tol=1e-6):
        return []
    rate, rate_as_saved = (schedule.learning_rates(each, epochs_done)[0] for each in (present, saved))
    return [
        f"epochs {saved.epochs} -> {present.epochs}: after epoch {epochs_done} the learning rate is {rate:.3g} from here on;"
        f" with the saved settings it would have been {rate_as_saved:.3g}"
    ]
