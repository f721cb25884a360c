"""Settings of the distribution over devices and workers."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, Optional

from cyclegan.config.fields import FREE, Section, flag


@dataclasses.dataclass(frozen=True)
class DistributionConfig(Section):
    """Devices and workers that train."""

    TITLE: ClassVar[str] = "devices"

    devices: Optional[int] = flag(
        "use the first N GPUs; without a GPU, N logical CPU devices (default: every GPU, or the CPU once)",
        on_resume=FREE,
        metavar="N",
    )
    strategy: Literal["auto", "mirrored", "multiworker", "tpu", "one"] = flag(
        "one: one device; mirrored: all devices of this machine; multiworker: the devices of all workers that TF_CONFIG or"
        " Slurm's variables name (docs/scaling.md); tpu: a TPU; auto: multiworker if several workers are named, else mirrored",
        "auto",
        FREE,
    )
    start_timeout: int = flag("seconds that workers wait for each other at start", 300, FREE, metavar="SECONDS")
    step_timeout: Optional[int] = flag(
        "end training with exit code 1 if no step, evaluation or checkpoint ends for SECONDS, because a worker or its storage is"
        " stuck; the first step takes longer than others (default: no limit)",
        on_resume=FREE,
        metavar="SECONDS",
    )
    port: Optional[int] = flag(
        "first port of the workers that Slurm starts on a machine (default: 20000 + the job's number modulo 10000)",
        on_resume=FREE,
        metavar="N",
    )

    def check(self) -> None:
        """Raise `UserError` if a value cannot work."""
        self.check_at_least(1, "devices", unit="device")
        self.check_at_least(1, "start_timeout", "step_timeout", unit="second")
        self.check_at_least(1, "port")
