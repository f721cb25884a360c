"""Settings that make training fast, or show how fast it is."""

from __future__ import annotations

import dataclasses
import re
from typing import ClassVar, Literal, Optional

from cyclegan.config.argument_types import count_or_auto
from cyclegan.config.fields import FREE, WARN, Section, flag, refuse

PROFILE = re.compile(r"(\d{1,12}):(\d{1,12})", re.ASCII)
CALL_SECONDS = 0.1  # upper bound on the time of a call of several steps
MAX_STEPS_PER_CALL = 10


def choose_steps_per_call(seconds: float, log_every: int) -> int:
    """Return the largest number of steps, at least 1, with which a call takes at most `CALL_SECONDS`.

    Args:
        seconds: Measured time of a step.
        log_every: Steps between logged losses; the result divides it.
    """
    steps = range(1, MAX_STEPS_PER_CALL + 1)
    return max(n for n in steps if n == 1 or (n * seconds <= CALL_SECONDS and log_every % n == 0))


@dataclasses.dataclass(frozen=True)
class PerformanceConfig(Section):
    """Precision, compilation, and the profile."""

    TITLE: ClassVar[str] = "performance"

    precision: Literal["auto", "float32", "bfloat16", "float16"] = flag(
        "type in which the networks compute; variables, statistics and losses are always float32; auto: bfloat16 if the"
        " device multiplies it natively, else float32",
        "auto",
        WARN,
    )
    tf32: Literal["on", "off"] = flag(
        "on: GPUs of compute capability 8.0 or higher round the factors of float32 products to 10 bits (TF32), which is faster;"
        " without effect on CPUs and older GPUs",
        "on",
        WARN,
    )
    xla: Literal["auto", "on", "off"] = flag(
        "compile training steps with XLA; auto: on GPUs, time some steps with and without, and keep the faster; off on CPUs,"
        " where XLA is slower, and with --deterministic, --dropout or --norm batch",
        "auto",
        FREE,
    )
    deterministic: bool = flag(
        "make every operation give the same bits each time, on GPUs, too, where training becomes slower", False, FREE
    )
    recompute: bool = flag(
        "compute the residual blocks of the generators again in the backward pass, which takes less memory and more time;"
        " without --norm batch and --dropout",
        False,
        FREE,
    )
    steps_per_call: Optional[int] = flag(
        "training steps per call of the compiled train function, a divisor of --log_every; a run stops and saves only between"
        " calls (default: auto, several if a step is short at half of the peak speed; 1 with --no_peak)",
        on_resume=FREE,
        metavar="N",
        type=count_or_auto,
    )
    no_peak: bool = flag("do not measure the device's peak speed at start; the share of it is not shown", False, FREE)
    profile: Optional[str] = flag(
        "write TensorFlow's profile of the steps after START up to END, counted over the whole run, for TensorBoard; it covers"
        " whole calls of --steps_per_call, and the validation between them",
        None,
        FREE,
        metavar="START:END",
    )

    @property
    def profile_steps(self) -> Optional[tuple[int, int]]:
        """(START, END) of `profile`; `None` if there is none, or it makes no sense."""
        numbers = PROFILE.fullmatch(self.profile or "")
        start, end = map(int, numbers.groups()) if numbers else (0, 0)
        return (start, end) if start < end else None

    def check(self) -> None:
        """Raise `UserError` if a value cannot work."""
        self.check_at_least(1, "steps_per_call")
        if self.profile is not None and not self.profile_steps:
            refuse("profile", self.profile, "START:END, two numbers of steps with START < END")
