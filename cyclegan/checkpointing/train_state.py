"""Where a run is, beyond its networks and optimizers: plain numbers that a checkpoint keeps as JSON."""

import dataclasses
import math

from cyclegan.errors import UserError

LATER = {"best", "best_by"}  # fields that runs from before have not: these begin with the defaults


@dataclasses.dataclass
class PassState:
    """How far a pass over the training or the test pairs has come."""

    pairs: int = 0  # done
    sums: dict = dataclasses.field(default_factory=dict)  # of every figure, over the samples so far
    seconds: float = 0.0  # spent on it, over all starts of the program
    skipped: int = 0  # steps whose figures or gradients were not finite


@dataclasses.dataclass
class TrainState:
    """A place in training; with the state of `gan.CycleGAN` it is all that a run needs to go on as if it had never stopped.

    Places are counted in pairs, not in steps, so that a run can go on with another batch size.
    """

    epoch: int = 0  # whole epochs done
    step: int = 0  # global steps done, skipped ones included
    draw: int = 0  # which draw of the order of the pictures; a new one is taken when training had to go back
    global_batch: int = 0  # pairs per step; 0 before the first one
    log_bytes: int = 0  # the size of metrics.jsonl; what comes after is from a future that is gone
    train: PassState = dataclasses.field(default_factory=PassState)  # of the epoch after `epoch`
    test: PassState = dataclasses.field(default_factory=PassState)
    logged: dict = dataclasses.field(default_factory=dict)  # train.sums at the last line about steps
    warned: list = dataclasses.field(
        default_factory=list
    )  # what was warned of already, see `guard.find_silent_failures`
    bad_train: list = dataclasses.field(
        default_factory=list
    )  # the steps in a row, up to here, that were not finite: texts
    bad_test: list = dataclasses.field(default_factory=list)
    tested: bool = False  # a test step was finite since the last training step, so the weights are sound
    best: dict = dataclasses.field(default_factory=dict)  # the lowest KID so far, by direction ("x2y")
    best_by: str = ""  # the name of the features that `best` was measured by

    def to_dict(self):
        """As JSON takes it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values):
        """The place that `to_dict` wrote.

        Raises:
            UserError: a field is missing, unknown, or of another type; it is named.
        """
        return cls(
            **{**_checked(cls, values), **{k: PassState(**_checked(PassState, values[k])) for k in ("train", "test")}}
        )

    def batch_warnings(self, replicas, global_batch, pairs=math.inf):
        """What it means to go on from here with `global_batch` pairs per step on `replicas` replicas: a list of texts.

        An epoch has `pairs` pairs.
        """
        idle = f"the global batch of {global_batch} is larger than an epoch of {pairs} pairs: most of each step is idle"
        warnings = [idle] if global_batch > pairs else []
        if self.global_batch in (0, global_batch):
            return warnings
        devices = max(n for n in range(1, replicas + 1) if self.global_batch % n == 0)
        fewer = f"--devices {devices} " if devices < replicas else ""
        advice = f"{fewer}--batch_size {self.global_batch // devices}"
        return [
            *warnings,
            f"the global batch is {global_batch} pairs instead of {self.global_batch} from here on: the steps of an epoch become"
            f" {'fewer' if global_batch > self.global_batch else 'more'}, each with another noise in its gradient, so the result"
            f" will not be that of the run as it began, and --lr may want to change with it. For the same batch use {advice}",
        ]

    def next_epoch(self):
        """One more epoch is done."""
        self.epoch += 1
        self.train, self.test, self.logged = PassState(), PassState(), {}


def _checked(cls, values):
    """`values` if they are a dict of just the fields of a dataclass, each of its type."""
    if not isinstance(values, dict):
        raise UserError(f"{cls.__name__} is {values!r:.80}, expected its fields")
    fields = {field.name: field.type for field in dataclasses.fields(cls)}
    missing = set(fields) - set(values) - LATER
    for problem, names in (("unknown", set(values) - set(fields)), ("missing", missing)):
        if names:
            raise UserError(f"{problem} fields of a place in training: {', '.join(sorted(map(repr, names)))}")
    for name, value in values.items():
        kind = fields[name]
        wanted = (dict,) if kind is PassState else (int, float) if kind is float else (kind,)
        if type(value) not in wanted or (kind in (int, float) and not 0 <= value < math.inf):
            raise UserError(f"{name} is {value!r:.80}, expected {kind.__name__} of at least 0")
    for name in {"sums", "logged", "best"} & set(values):
        if not all(type(value) in (int, float) and math.isfinite(value) for value in values[name].values()):
            raise UserError(f"{name} holds something else than finite numbers")
    for name in {"warned", "bad_train", "bad_test"} & set(values):
        if not all(type(value) is str for value in values[name]):
            raise UserError(f"{name} holds something else than texts")
    return values
