"""Checkpoints during training and at its end."""

from __future__ import annotations

from collections.abc import Mapping

from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks.base import Call, Callback, Epoch
from cyclegan.training.checkpoint_policy import CheckpointPolicy
from cyclegan.training.divergence import DivergencePolicy


class CheckpointCallback(Callback):
    """Save a checkpoint whenever the policy asks for it, every few epochs, after the best epochs, and at the end.

    Args:
        policy: Policy that saves, and stops training on a signal.
        every: Epochs between checkpoints.
        divergence: The policy that knows whether the weights are good.
    """

    def __init__(self, policy: CheckpointPolicy, every: int, divergence: DivergencePolicy) -> None:
        self._policy = policy
        self._every = every
        self._divergence = divergence

    def is_due_after(self, call: Call) -> bool:
        """Return whether the policy asks for a checkpoint."""
        return self._policy.is_due()

    def on_call_end(self, call: Call) -> None:
        """Save a checkpoint, and stop if a signal asked for it."""
        self._save(call.state)

    def on_epoch_end(self, epoch: Epoch) -> None:
        """Save a checkpoint if one is due, and stop if a signal asked for it."""
        state = epoch.state
        if epoch.is_last:
            self._policy.save_final(state, self._divergence.is_sound, epoch.best_kid)
        elif epoch.is_best or state.epoch % self._every == 0 or self._policy.is_due():
            self._save(state, epoch.best_kid)

    def _save(self, state: TrainState, best_kid: Mapping[str, float] | None = None) -> None:
        if self._policy.save_and_obey(state, self._divergence.is_sound, best_kid):
            self._divergence.note_checkpoint(state)
