"""Report Ctrl-C in one line while the modules of an entry point are imported; entry points import this module before others."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all else here
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any


def _report(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
    elif sys.stderr:
        sys.stderr.write(f"\n{sys.argv[0].rpartition('/')[2]}: stopped\n")


def _report_ignored(ignored: Any) -> None:
    """Ignore a Ctrl-C inside a destructor, where Python cannot raise it; the next Ctrl-C counts."""
    if ignored.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(ignored)


sys.excepthook = _report
sys.unraisablehook = _report_ignored
