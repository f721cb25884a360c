"""Settings of the steps that the benchmark times, and their combinations."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from cyclegan.config import Config
from cyclegan.methods import OBJECTIVES

LEVERS = {"steps": ("few", "norm", "both", "adam", "packed"), "data": ("ahead", "prefetch")}  # of --without, by part
PLAIN = {
    **{"form": "plain", "precision": "float32", "xla": "off", "replicas": 1, "steps_per_call": 1},
    "objective": "cyclegan",
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """A step to time.

    Attributes:
        form: "default", "plain" or "without LEVER", see `benchmarking.levers`.
        size: Height and width of the images in pixels.
        batch: Global batch in pairs.
        precision: "float32", "bfloat16" or "float16"; "" for a simulated step.
        xla: "on" or "off"; "" for a simulated step.
        replicas: Devices that share the batch.
        identity: Weight of the identity loss; `None` for a simulated step or an objective without one.
        steps_per_call: Steps of a call of the train function.
        filters: Filters of the first layers.
        residual_blocks: Residual blocks of the generators.
        cache: "ram" for decoded images, "none" for JPEGs that are decoded each time.
        elsewhere: Milliseconds of a simulated step, which leaves the processor free, as a GPU does; 0 for a real step.
        variant: "keras" or "paper".
        architecture: Compute capability of the GPU for which a census counts; "" for a step that is timed.
        objective: Objective of the training.
    """

    form: str
    size: int
    batch: int
    precision: str
    xla: str
    replicas: int
    identity: float | None
    steps_per_call: int
    filters: int
    residual_blocks: int
    cache: str = "ram"
    elsewhere: float = 0.0
    variant: str = "keras"
    architecture: str = ""
    objective: str = "cyclegan"

    @property
    def lever(self) -> str:
        """The lever that the form leaves out, or ""."""
        return self.form.partition("without ")[2]

    def without_step(self) -> Setting:
        """Return the setting without the fields that have no meaning for a simulated step."""
        return dataclasses.replace(self, precision="", xla="", identity=None)

    def config(self) -> Config:
        """Return the configuration of the training."""
        names = ("precision", "xla", "filters", "residual_blocks", "variant", "objective")
        values = {name: getattr(self, name) for name in names}
        return Config.from_settings(lambda_identity=self.identity, image_size=self.size, **values)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Rows of one table: values whose combinations are timed, and the number of turns.

    Attributes:
        part: "steps", "data", "scaling" or "census".
        values: Values by name of a field of `Setting`.
        filters: Filters of the first layers.
        residual_blocks: Residual blocks of the generators; `None` for the default of the size.
        without: Levers to leave out, one at a time.
        has_plain: Whether the plain form is timed, too.
        runs: Turns that count.
        warmup: Turns before them that do not count.
    """

    part: str
    values: dict[str, list[Any]]
    filters: int
    residual_blocks: int | None
    without: tuple[str, ...]
    has_plain: bool
    runs: int
    warmup: int

    @property
    def turns(self) -> range:
        """All turns; turns below 0 do not count."""
        return range(-self.warmup, self.runs)

    @property
    def forms(self) -> list[str]:
        """The default form, and the forms without one lever of this part."""
        return ["default", *(f"without {name}" for name in self.without if name in LEVERS[self.part])]

    def resolve_precision(self, best: str) -> Plan:
        """Return the plan with the precision "auto" replaced by `best`."""
        names = dict.fromkeys(best if name == "auto" else name for name in self.values["precision"])
        return dataclasses.replace(self, values={**self.values, "precision": list(names)})

    def settings(self, **chosen: list[Any]) -> Iterator[Setting]:
        """Yield the settings of all combinations; lists in `chosen` replace the values of the plan."""
        values = {"form": ["default"], **self.values, **chosen}
        made = (self._setting(dict(zip(values, combination))) for combination in itertools.product(*values.values()))
        yield from dict.fromkeys(made)

    def _setting(self, chosen: dict[str, Any]) -> Setting:
        blocks = self.residual_blocks
        if blocks is None:
            blocks = Config.from_settings(image_size=chosen["size"]).settings()["residual_blocks"]
        if not hasattr(OBJECTIVES[chosen.get("objective", Setting.objective)].Settings, "lambda_identity"):
            chosen["identity"] = None
        return Setting(**chosen, filters=self.filters, residual_blocks=blocks)
