"""Settings of the run: its folder, its checkpoints, its output."""

from __future__ import annotations

import dataclasses
import os
import re
from typing import ClassVar, Literal, Optional

from cyclegan.config.fields import FREE, Section, flag, refuse
from cyclegan.errors import UserError

# In a URI: a user, with or without a password, or a secret among the parameters.
SECRET = re.compile(
    r"^(?!file:|sqlite:)[\w+.-]+:.*@|[?&;]\w*(pass|pwd|token|secret|key)\w*=", re.IGNORECASE | re.DOTALL
)


@dataclasses.dataclass(frozen=True)
class RunConfig(Section):
    """Folder of a run, and the intervals of its output."""

    TITLE: ClassVar[str] = "run"

    preset: Optional[Literal["paper", "tutorial", "fast", "demo"]] = flag(
        "a named set of flags, printed when used; flags given by hand win", None, FREE
    )
    output_dir: str = flag(
        "folder of the run; if it already holds a run, training resumes it (default: runs/NAME)",
        os.path.join("runs", "horse2zebra"),
        FREE,
    )
    clear_output_dir: bool = flag("remove the run in --output_dir and start over", False, FREE)
    verbose: Literal[0, 1, 2] = flag(
        "0: only warnings; 1: progress bars and errors per epoch; 2: all losses too", 1, FREE
    )
    plot_every: int = flag("epochs between sample images, which are also written at the end", 10, FREE)
    checkpoint_every: int = flag("epochs between checkpoints; the end of training always has one", 1, FREE)
    checkpoint_minutes: float = flag(
        "minutes between checkpoints within an epoch; 0 saves after every call, which then has one step by default",
        10.0,
        FREE,
    )
    log_every: int = flag("training steps between logged losses within an epoch", 100, FREE)
    wandb: Optional[str] = flag(
        "project, or ENTITY/PROJECT, of Weights & Biases that also gets metrics, sample images and settings;"
        " needs: pip install wandb (default: none)",
        None,
        FREE,
        metavar="PROJECT",
    )
    mlflow: Optional[str] = flag(
        "MLflow server or store that also gets metrics, sample images and settings;"
        " needs: pip install mlflow, or mlflow-skinny for a server (default: none)",
        None,
        FREE,
        metavar="URI",
    )
    keep: int = flag("number of checkpoints to keep, the newest ones", 3, FREE)

    def check(self) -> None:
        """Raise `UserError` if a value cannot work."""
        if not self.output_dir:
            refuse("output_dir", self.output_dir, "a folder (is a shell variable not set?)")
        for name in ("wandb", "mlflow"):
            if getattr(self, name) == "":
                refuse(name, "", "a name (is a shell variable not set?)")
        if SECRET.search(self.mlflow or ""):  # the text does not repeat it
            raise UserError(
                "--mlflow: the URI has a user, a password or a token, which config.json and MLflow would show; expected a URI"
                " without: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, or use the"
                " database's own password file"
            )
        self.check_at_least(1, "plot_every", "checkpoint_every", "log_every", "keep")
        self.check_finite("checkpoint_minutes")
