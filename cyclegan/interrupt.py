"""Report Ctrl-C in one line while the modules of an entry point are imported; entry points import this module before others."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Optional


def _report(kind: type[BaseException], error: BaseException, traceback: Optional[TracebackType]) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
    elif sys.stderr:
        sys.stderr.write(f"\n{sys.argv[0].rpartition('/')[2]}: stopped\n")


sys.excepthook = _report
