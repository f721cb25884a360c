"""Report Ctrl-C in one line while the modules of an entry point are imported; entry points import this module before others."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all else here
if TYPE_CHECKING:
    from types import TracebackType


def _report(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
    elif sys.stderr:
        sys.stderr.write(f"\n{sys.argv[0].rpartition('/')[2]}: stopped\n")


sys.excepthook = _report
