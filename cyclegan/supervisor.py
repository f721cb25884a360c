"""Training under limits on memory or threads, in a process of its own.

When they run out, C++ code ends a process by SIGABRT, which Python cannot handle. Another process then has to explain it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Callable

from cyclegan.errors import TrainingError

FEW_PROCESSES = 4096  # a lower limit on processes and threads (ulimit -u) may matter
CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
PR_SET_PDEATHSIG = 1  # of Linux's prctl


def is_limited() -> bool:
    """Return whether this process has a limit on its address space, or a low one on threads."""
    address_space, threads = (resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_NPROC))
    return address_space != resource.RLIM_INFINITY or 0 <= threads < FEW_PROCESSES


def supervise(last_checkpoint: Callable[[], str]) -> None:
    """Return in a new process, and wait for its end in this one. Call this before any thread or TensorFlow starts.

    Args:
        last_checkpoint: Function that describes the last checkpoint.

    Raises:
        SystemExit: In this process, with the exit code of the other one.
        TrainingError: In this process, if the other one has crashed.
    """
    # If SIGCHLD was ignored, the end of the other process would not be noticed.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    parent, child = os.getpid(), os.fork()
    if not child:
        with contextlib.suppress(OSError, AttributeError):  # not on macOS
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        return
    code = _wait(child)
    signal.pthread_sigmask(signal.SIG_SETMASK, previous)
    if -code in CRASHES:
        raise TrainingError(
            f"training was ended by {signal.Signals(-code).name}, which happens when memory or threads run out;"
            f" {last_checkpoint()}."
            " ulimit -a shows the limits of the process"
        )
    raise SystemExit(code if code >= 0 else 128 - code)


def _wait(child: int) -> int:
    """Forward signals to a process until it ends; return its exit code, or minus the signal that ended it."""
    while True:
        info = signal.sigwaitinfo({*FORWARDED, signal.SIGCHLD})
        if info.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
        elif info.si_code <= 0:  # a terminal sends its signals to both processes, as others may; see `training.signals`
            os.kill(child, info.si_signo)
