"""Report Ctrl-C in one line while the modules of an entry point are imported; entry points import this module before others."""

from __future__ import annotations

import _signal  # without the enumerations of `signal`
import _thread
import os
import sys
import time

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all else here
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any, NoReturn

# The signal number of each Ctrl-C so far. Its exception may get lost: NumPy hides it while it is imported, and cleaning up may
# raise another one.
seen: list[int] = []


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    seen.append(signum)
    raise KeyboardInterrupt


def _report(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if hasattr(sys, "ps1") or not (seen or issubclass(kind, KeyboardInterrupt)):  # an interactive Python continues
        sys.__excepthook__(kind, error, traceback)
        return
    if sys.stderr:
        sys.stderr.write(f"\n{sys.argv[0].rpartition('/')[2]}: stopped\n")
        sys.stderr.flush()
    os._exit(130)


def _report_ignored(ignored: Any) -> None:
    """Repeat a Ctrl-C that came inside a destructor or a weak reference's callback, where Python cannot raise it."""
    if ignored.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(ignored)
        return
    try:  # noqa: SIM105  `contextlib` takes long to import
        _thread.start_new_thread(_interrupt_soon, ())
    except RuntimeError:  # the program is about to end
        pass


def _interrupt_soon() -> None:
    time.sleep(0.01)  # until the destructor or callback has ended
    _thread.interrupt_main()


try:
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _interrupt)
except ValueError:  # not the main thread
    pass
sys.excepthook = _report
sys.unraisablehook = _report_ignored
