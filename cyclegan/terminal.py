"""Entry points in a terminal: logging, exit codes, a filter for TensorFlow's notices, the end of the process."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import logging
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NoReturn, TextIO

from cyclegan import program_name, stderr_filter
from cyclegan.errors import UserError, printable
from cyclegan.streams import open_closed_descriptors, outlive_the_terminal
from cyclegan.temporary_folder import temporary_files

# Lines that TensorFlow 2.21 writes while it is imported and looks for devices, whatever TF_CPP_MIN_LOG_LEVEL is.
NOTICE = re.compile(rb"I\d{4} |WARNING: All log messages before absl::InitializeLog")
ENVIRONMENT = "make the environment with scripts/setup.sh, then: . .venv/bin/activate"
REINSTALL = "install the package again with its dependencies: python -m pip install PATH_OF_THE_CLONE"
END_SECONDS = 5.0  # to print why the program ends, if stderr hangs
LOCK_SECONDS = 1.0  # to wait for a progress bar that is being drawn, before that
FILTER_SECONDS = 2.0  # to wait for the last lines of the stderr filter
LOG_SECONDS = 2.5  # between lines about a phase in a log: a program that is silent for longer seems to hang
PROBE = "import tensorflow as tf, mmap; tf.zeros(1) + 1; mmap.mmap(-1, 1 << 29)"  # with half a GB to work in
logger = logging.getLogger(__name__)
_FILTERS: list[subprocess.Popen[bytes]] = []  # still running, see `start`
ALL_WORKERS_KNOW = "cyclegan.training"  # loggers below it report the same on every worker


class _TerminalHandler(logging.Handler):
    """Write log records above the progress bars of the terminal: information to stdout, warnings and errors to stderr."""

    def __init__(self, level: int, worker: int) -> None:
        super().__init__(level)
        self._prefix = f"Warning: worker {worker}: " if worker else "Warning: "

    def emit(self, record: logging.LogRecord) -> None:
        """Write the message of a record as one line and flush it; a message that can't be written is lost."""
        from tqdm import tqdm  # not at import: most uses of this module print nothing

        try:
            text = printable(record.getMessage())
            warning = record.levelno >= logging.WARNING
            stream = getattr(record, "stream", sys.stderr if warning else sys.stdout)
            with contextlib.suppress(OSError):  # the terminal or the reader of a pipe is gone
                tqdm.write(self._prefix + text if warning else text, file=stream)
                stream.flush()
        except Exception as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # it came before tqdm had the lock that it releases
                raise KeyboardInterrupt from None
            self.handleError(record)


def configure_logging(verbosity: int = 1, worker: int | None = None) -> None:
    """Send the messages of this package to the terminal; for entry points only.

    Information goes to stdout as plain lines, warnings and errors go to stderr as "Warning: ...". A second call replaces the
    settings of the first.

    Args:
        verbosity: 0 shows only warnings.
        worker: Index of this worker if several train together. Only worker 0, the chief, shows information and the warnings of
            `cyclegan.training`, which are the same on all workers; the others begin their warnings with "worker N: ".
    """
    logger = logging.getLogger("cyclegan")
    for handler in [each for each in logger.handlers if isinstance(each, _TerminalHandler)]:
        logger.removeHandler(handler)
    handler = _TerminalHandler(logging.WARNING if worker or not verbosity else logging.INFO, worker or 0)
    if worker:
        handler.addFilter(lambda record: not f"{record.name}.".startswith(f"{ALL_WORKERS_KNOW}."))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    if not logging.root.handlers:
        # Otherwise libraries add a root handler while they are imported, which shows our messages twice.
        others = logging.StreamHandler()
        others.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        others.addFilter(lambda record: not record.name.startswith("cyclegan"))
        logging.root.addHandler(others)


@contextlib.contextmanager
def phase(text: str, visible: bool = True, if_slow: bool = False) -> Iterator[None]:
    """Log what the program does inside the context, and show for how long: on a terminal, or by a line every `LOG_SECONDS`.

    Args:
        text: What the program does.
        visible: Whether to log and show anything.
        if_slow: Whether to log and show nothing in the first second, for phases that are usually shorter.
    """
    if visible and not if_slow:
        logger.info(text)
    handlers = [each for each in logging.getLogger("cyclegan").handlers if isinstance(each, _TerminalHandler)]
    if not (visible and any(each.level <= logging.INFO for each in handlers)):
        yield
        return
    done = threading.Event()
    # `start` may put its filter before descriptor 2 meanwhile
    terminal = os.fdopen(os.dup(2), "w") if sys.stderr.isatty() else contextlib.nullcontext()
    thread = threading.Thread(target=_show_time, args=(text, terminal, sys.stdout, done, if_slow), daemon=True)
    with contextlib.suppress(RuntimeError):  # the system refuses new threads: continue without the time
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread.ident:
            thread.join(END_SECONDS)


def _show_time(
    text: str,
    terminal: contextlib.AbstractContextManager[TextIO | None],
    log: TextIO,
    done: threading.Event,
    if_slow: bool,
) -> None:
    """Show the time since the call until `done`: on the terminal, where it is removed at the end, or else in the log.

    The log is the stdout of the beginning of the phase, because TensorFlow Datasets has to be silenced meanwhile.
    """
    from tqdm import tqdm

    start = time.monotonic()
    with terminal as file, contextlib.suppress(OSError):
        if if_slow:
            if done.wait(1):
                return
            logger.info(text, extra={"stream": log})
        if not file:
            while not done.wait(LOG_SECONDS):
                logger.info(f"{text}: {time.monotonic() - start:.0f} s", extra={"stream": log})
            return
        with tqdm(file=file, bar_format="  {elapsed}", leave=False) as bar:
            while not done.wait(1):
                bar.refresh()


def run(main: Callable[[], object], interrupted: str = "stopped", needs_stdout: bool = True) -> int:
    """Run the `main` of an entry point with logging to the terminal, and report in one line why it failed.

    stdin, stdout and stderr may be closed, and a reader of the output may leave early: the exit code stays the same. Temporary
    files are removed afterwards.

    Messages recommend "the same command" to resume. If this command has --clear_output_dir, "without --clear_output_dir" is added.

    Args:
        main: Function without arguments. An integer that it returns is the exit code.
        interrupted: Message after Ctrl-C.
        needs_stdout: Whether output that stdout cannot take, as on a full disk, is a failure.

    Returns:
        The exit code: 0 for success, 1 for failed training or a defect of the program (with its traceback), 2 for a mistake of
        the user, 130 after Ctrl-C.
    """
    outlive_the_terminal()
    configure_logging()
    code = _run(main, interrupted)
    sys.stdout.flush()
    lost = getattr(sys.stdout, "lost", None)
    if needs_stdout and lost and not code:
        _report(f"the output could not be written: {lost}")
        return 1
    return code


def _run(main: Callable[[], object], interrupted: str) -> int:
    try:
        if _count_ctrl_c():  # a library hid it while the entry point was imported
            raise KeyboardInterrupt
        with temporary_files():
            code = main()
        return code if isinstance(code, int) else 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(printable(end.code), file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except (UserError, ModuleNotFoundError, MemoryError, BlockingIOError) as error:
        text, code = _explain(error)
        _report(text)
        return code
    except (Exception, KeyboardInterrupt) as error:
        if not isinstance(error, KeyboardInterrupt) and not _count_ctrl_c():
            traceback.print_exc()
            return 1
        sys.unraisablehook = lambda ignored: None  # what Ctrl-C left half made may fail in its destructor
        _report(interrupted, before="\n")
        return 130


def _explain(error: Exception) -> tuple[str, int]:
    """Return the message and the exit code of an error that is no defect of the program."""
    if isinstance(error, UserError):
        return printable(error), error.exit_code
    if isinstance(error, ModuleNotFoundError):
        return f"{error}: {REINSTALL if program_name.is_command() else ENVIRONMENT}", 2
    missing = "memory" if isinstance(error, MemoryError) else f"processes ({error})"
    return f"not enough {missing}; ulimit -a shows the limits of the process", 1


def _report(text: str, before: str = "") -> None:
    """Print why the program ends."""
    if any(flag.replace("-", "_") == "__clear_output_dir" for flag in sys.argv):
        text = text.replace("the same command", "the same command without --clear_output_dir")
    print(f"{before}{program_name.own()}: {text}", file=sys.stderr)


@contextlib.contextmanager
def start(notices: re.Pattern[bytes] = NOTICE) -> Iterator[None]:
    """Filter stderr inside the context: lines that begin like `notices` are dropped, all others are shown at once.

    The filter covers descriptor 2, to which C++ code writes. It is another process, so a crash of this one loses nothing. Import
    TensorFlow inside the context: no garbage is collected meanwhile, which saves time, and no Ctrl-C is lost.
    """
    open_closed_descriptors()  # also without `run`: the tutorials start TensorFlow while they are imported
    _check_address_space()
    if os.getpid() == 1:  # a container ends with process 1, before a filter could show the last lines
        with _imports():
            yield
        return
    sys.stderr.flush()
    terminal = os.dup(2)
    reader, writer = os.pipe()
    child = _start_filter(notices, reader)
    os.close(reader)
    os.dup2(writer, 2)
    os.close(writer)
    try:
        with _imports():
            yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)
        try:
            child.wait(FILTER_SECONDS)  # so that its lines come before later ones
        except subprocess.TimeoutExpired:  # a process started inside the context still has the pipe
            _FILTERS.append(child)


@contextlib.contextmanager
def _imports() -> Iterator[None]:
    """Collect no garbage inside the context, and raise a Ctrl-C that a library hid there at its end.

    The objects that imports make are no garbage, and looking for some among them takes 0.3 s.
    """
    was_enabled, before = gc.isenabled(), _count_ctrl_c()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
        if _count_ctrl_c() > before:
            raise KeyboardInterrupt


def _count_ctrl_c() -> int:
    """Return how often Ctrl-C came so far, if the entry point counts it."""
    interrupt = sys.modules.get("cyclegan.interrupt")
    return len(interrupt.seen) if interrupt else 0


def _check_address_space() -> None:
    """Start TensorFlow in another process first if the address space is limited, because a signal would end this process.

    Raises:
        UserError: TensorFlow does not start within the limit.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY or importlib.util.find_spec("tensorflow") is None:
        return
    try:
        started = (
            subprocess.run([sys.executable, "-c", PROBE], capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
        )
    except OSError:
        started = False
    if not started:
        raise UserError(
            f"TensorFlow does not start within {limit / 1e9:.2g} GB of address space: expected a higher limit (ulimit -v), or"
            " ulimit -v unlimited"
        )


def _start_filter(notices: re.Pattern[bytes], reader: int) -> subprocess.Popen[bytes]:
    """Start the process that copies `reader` to the present stderr; signals for this program do not end it."""
    command = [sys.executable, "-I", "-S", stderr_filter.__file__, os.fsdecode(notices.pattern)]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the process inherits it
    try:
        return subprocess.Popen(command, stdin=reader, stdout=subprocess.DEVNULL, start_new_session=True)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end(text: str, code: int) -> NoReturn:
    """Report why the program ends and end it at once, from any thread, also if the main thread or stderr waits without end."""
    try:
        printing = threading.Thread(target=_report_last, args=(text,), daemon=True)
        printing.start()
        printing.join(END_SECONDS)
    finally:
        os._exit(code)


def _report_last(text: str) -> None:
    """Print why the program ends; no progress bar is drawn after it."""
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.get_lock().acquire(timeout=LOCK_SECONDS)
    _report(text)


def leave(code: int) -> NoReturn:
    """End the process at once: at the normal end of Python, TensorFlow would wait for other workers that may be gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
