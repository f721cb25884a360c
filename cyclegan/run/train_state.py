"""State of training besides networks and optimizers: plain numbers, which a checkpoint keeps as JSON; no TensorFlow."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NamedTuple

from cyclegan.config import Config
from cyclegan.config.fields import FREE, WARN
from cyclegan.config.serialization import changed_settings
from cyclegan.errors import UserError

BYTES = " bytes"  # suffix of the entries of `TrainState.images` that may change within a run


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


class Changes(NamedTuple):
    """Changes of a resumed run, each as a text such as "lr 0.1 -> 0.2".

    Attributes:
        settings: Settings of the training that changed, without those that follow from others.
        epochs: The number of epochs.
        images: The lengths of image files with the same names.
        batch: The global batch.
    """

    settings: list[str]
    epochs: list[str]
    images: list[str]
    batch: list[str]


@dataclasses.dataclass
class TrainState:
    """Position in training and running sums, saved with every checkpoint.

    Positions are counted in pairs, not in steps, so that a run can resume with another batch size.

    Attributes:
        epoch: Whole epochs done.
        step: Global steps done, skipped ones included.
        reshuffles: Times the images were shuffled anew after training went back to a checkpoint.
        global_batch_size: Pairs per step; 0 before the first step.
        log_bytes: Length of metrics.jsonl at this position; resuming truncates the file to it.
        settings: Settings of the training so far, see `settings_of_training`; empty in a run that was imported.
        images: Images that it was trained with last, see `data.sources.Domains.fingerprint`.
        train: Progress of the training pass of the current epoch.
        test: Progress of the test pass of the current epoch.
        logged_sums: `train.sums` at the last logged step.
        failing: For how many epochs in a row a silent failure shows, by its name.
        warned: Names of the silent failures that the user was warned of.
        nonfinite_train: Descriptions of the non-finite training steps since the last finite one.
        nonfinite_test: Descriptions of the non-finite test steps since the last finite one.
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
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    images: dict[str, str] = dataclasses.field(default_factory=dict)
    train: PassState = dataclasses.field(default_factory=PassState)
    test: PassState = dataclasses.field(default_factory=PassState)
    logged_sums: dict[str, float] = dataclasses.field(default_factory=dict)
    failing: dict[str, int] = dataclasses.field(default_factory=dict)
    warned: list[str] = dataclasses.field(default_factory=list)
    nonfinite_train: list[str] = dataclasses.field(default_factory=list)
    nonfinite_test: list[str] = dataclasses.field(default_factory=list)
    best_kid: dict[str, float] = dataclasses.field(default_factory=dict)
    best_kid_features: str = ""
    best_epoch: dict[str, float] = dataclasses.field(default_factory=dict)
    evaluations_since_best: int = 0

    def to_json(self) -> str:
        """Return the fields as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> TrainState:
        """Return the state that `to_json` described.

        Raises:
            UserError: The text is no state of training.
        """
        try:
            values = json.loads(text)
            passes = {name: PassState(**values[name]) for name in ("train", "test")}
            known = {field.name for field in dataclasses.fields(cls)}  # earlier versions had more
            return cls(**{**{name: values[name] for name in values if name in known}, **passes})
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"its training state can't be used ({error}); expected a checkpoint of this version of the program"
            ) from error

    @property
    def name(self) -> str:
        """Name of this position: `epoch_0012`, `epoch_0012_pair_00345`, or `epoch_0012_pair_01067_test_0008`."""
        pairs = f"_pair_{self.train.pairs_done:05d}" if self.train.pairs_done else ""
        tests = f"_test_{self.test.pairs_done:04d}" if self.test.pairs_done else ""
        return f"epoch_{self.epoch:04d}{pairs}{tests}"

    def changes(self, now: TrainState) -> Changes:
        """Return what changes in training from this position on, given the `settings` and so on from here on."""
        before, after = (Config.from_settings(**state.settings) for state in (self, now))
        sizes = {name: self.images.get(name, size) for name, size in now.images.items() if name.endswith(BYTES)}
        batches = self.global_batch_size, now.global_batch_size
        return Changes(
            changed_settings(before, after, WARN),
            [text for text in changed_settings(before, after, FREE) if text.startswith("epochs ")],
            [
                f"images of {name[: -len(BYTES)]} {size} -> {now.images[name]}"
                for name, size in sizes.items()
                if size != now.images[name]
            ],
            [f"global batch {batches[0]} -> {batches[1]}"] * (0 != batches[0] != batches[1]),
        )

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
