"""State of training besides networks and optimizers: plain numbers that a checkpoint keeps as JSON."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Mapping
from typing import Any

from cyclegan.errors import UserError

LARGEST = 10**15  # numbers of a state are below: they fit into names, 64 bits and floats
ADDED = {"best_epoch", "evaluations_since_best"}  # fields that checkpoints of earlier versions lack


@dataclasses.dataclass
class PassState:
    """Progress of one pass over the training pairs or the test pairs.

    Attributes:
        pairs_done: Pairs done so far.
        sums: Sum of every metric over the samples so far, by name.
        seconds: Time spent on the pass, over all starts of the program.
        skipped_steps: Steps whose losses or gradients were not finite.
    """

    pairs_done: int = 0
    sums: dict[str, float] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    skipped_steps: int = 0


@dataclasses.dataclass
class TrainState:
    """Position in training and running sums, saved as JSON with every checkpoint.

    Positions are counted in pairs, not in steps, so that a run can resume with another batch size.

    Attributes:
        epoch: Whole epochs done.
        step: Global steps done, skipped ones included.
        reshuffles: Times the images were shuffled anew after training went back to a checkpoint.
        global_batch_size: Pairs per step; 0 before the first step.
        log_bytes: Length of metrics.jsonl at this position; resuming truncates the file to it.
        train: Progress of the training pass of the current epoch.
        test: Progress of the test pass of the current epoch.
        logged_sums: `train.sums` at the last logged step.
        warned: Names of the silent failures that the user was warned of.
        nonfinite_train: Descriptions of the non-finite training steps since the last finite one.
        nonfinite_test: Descriptions of the non-finite test steps since the last finite one.
        validated: Whether a finite test step since the last training step has shown that the weights are good.
        best_kid: Lowest KID so far, by direction ("x2y", "y2x").
        best_kid_features: Name of the features that `best_kid` was measured with.
        best_epoch: Epochs done when `best_kid` was measured, by direction.
        evaluations_since_best: Evaluations since a direction last reached its lowest KID so far.
    """

    epoch: int = 0
    step: int = 0
    reshuffles: int = 0
    global_batch_size: int = 0
    log_bytes: int = 0
    train: PassState = dataclasses.field(default_factory=PassState)
    test: PassState = dataclasses.field(default_factory=PassState)
    logged_sums: dict[str, float] = dataclasses.field(default_factory=dict)
    warned: list[str] = dataclasses.field(default_factory=list)
    nonfinite_train: list[str] = dataclasses.field(default_factory=list)
    nonfinite_test: list[str] = dataclasses.field(default_factory=list)
    validated: bool = False
    best_kid: dict[str, float] = dataclasses.field(default_factory=dict)
    best_kid_features: str = ""
    best_epoch: dict[str, float] = dataclasses.field(default_factory=dict)
    evaluations_since_best: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> TrainState:
        """Return the state that `to_dict` described.

        Raises:
            UserError: A field is missing, unknown or of another type; the text names it.
        """
        passes = {name: PassState(**_checked(PassState, _checked(cls, values)[name])) for name in ("train", "test")}
        return cls(**{**values, **passes})

    def is_done(self, epochs: int, patience: int = 0) -> bool:
        """Return whether training has ended: all epochs are done, or `is_stalled`."""
        return self.epoch >= epochs or self.is_stalled(patience)

    def is_stalled(self, patience: int) -> bool:
        """Return whether `patience` evaluations in a row were without a best one; False if `patience` is 0."""
        return 0 < patience <= self.evaluations_since_best

    def next_epoch(self) -> None:
        """Move to the beginning of the next epoch."""
        self.epoch += 1
        self.train, self.test, self.logged_sums = PassState(), PassState(), {}


def _checked(cls: type, values: Any) -> Mapping[str, Any]:
    """Return `values` if they are a dict of exactly the fields of a dataclass, each of its type."""
    if not isinstance(values, dict):
        raise UserError(f"{cls.__name__} is {values!r:.80}, expected its fields")
    types = typing.get_type_hints(cls)
    for problem, names in (("unknown", set(values) - set(types)), ("missing", set(types) - set(values) - ADDED)):
        if names:
            raise UserError(
                f"{problem} fields of a training state: {', '.join(sorted(map(repr, names)))}; expected a checkpoint of this"
                " version of the program"
            )
    for name, value in values.items():
        _check_field(name, value, types[name])
    return values


def _check_field(name: str, value: Any, expected: Any) -> None:
    """Raise UserError if a value does not have the type that a field expects."""
    kind = dict if expected is PassState else typing.get_origin(expected) or expected
    allowed = (int, float) if kind is float else (kind,)
    if type(value) not in allowed or (kind in (int, float) and not 0 <= value < LARGEST):
        raise UserError(f"{name} is {value!r:.80}, expected {kind.__name__} of at least 0 and below 10^15")
    if expected == dict[str, float] and not all(map(_is_finite_number, value.values())):
        raise UserError(f"{name} is {value!r:.80}, expected finite numbers")
    if expected == list[str] and not all(type(item) is str for item in value):
        raise UserError(f"{name} is {value!r:.80}, expected texts")


def _is_finite_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max
