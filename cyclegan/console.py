"""Set-up of the terminal: logging, exit codes of scripts, a filter for TensorFlow's notices, a terminal that closes early."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from typing import NoReturn, TextIO

from cyclegan import stderr_filter
from cyclegan.errors import ENVIRONMENT, UserError, printable

# Lines that TensorFlow 2.21 writes while it is imported and looks for devices, whatever TF_CPP_MIN_LOG_LEVEL is.
NOTICE = re.compile(rb"I\d{4} |WARNING: All log messages before absl::InitializeLog")
FILTER_SECONDS = 2.0  # to wait for the last lines of the stderr filter
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
            stream = sys.stderr if warning else sys.stdout
            with contextlib.suppress(OSError):  # the terminal or the reader of a pipe is gone
                tqdm.write(self._prefix + text if warning else text, file=stream)
                stream.flush()
        except Exception:
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


def run(main: Callable[[], object], interrupted: str = "stopped") -> int:
    """Run the `main` of an entry point with logging to the terminal, and report in one line why it failed.

    Messages recommend "the same command" to resume. If this command has --clear_output_dir, "without --clear_output_dir" is added.

    Args:
        main: Function without arguments. An integer that it returns is the exit code.
        interrupted: Message after Ctrl-C.

    Returns:
        The exit code: 0 for success, 1 for failed training or a defect of the program (with its traceback), 2 for a mistake of
        the user, 130 after Ctrl-C.
    """
    configure_logging()
    try:
        code = main()
        return code if isinstance(code, int) else 0
    except UserError as error:
        _report(printable(error))
        return error.exit_code
    except ModuleNotFoundError as error:
        _report(f"{error}: {ENVIRONMENT}")
        return 2
    except Exception:
        traceback.print_exc()
        return 1
    except KeyboardInterrupt:
        _report(interrupted, before="\n")
        return 130


def _report(text: str, before: str = "") -> None:
    """Print why the program ends."""
    if any(flag.replace("-", "_") == "__clear_output_dir" for flag in sys.argv):
        text = text.replace("the same command", "the same command without --clear_output_dir")
    print(f"{before}{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr)


@contextlib.contextmanager
def start(notices: re.Pattern[bytes] = NOTICE) -> Iterator[None]:
    """Filter stderr inside the context: lines that begin like `notices` are dropped, all others are shown at once.

    The filter covers descriptor 2, to which C++ code writes. It is another process, so a crash of this one loses nothing.
    """
    if os.getpid() == 1:  # a container ends with process 1, before a filter could show the last lines
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
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)
        try:
            child.wait(FILTER_SECONDS)  # so that its lines come before later ones
        except subprocess.TimeoutExpired:  # a process started inside the context still has the pipe
            _FILTERS.append(child)


def _start_filter(notices: re.Pattern[bytes], reader: int) -> subprocess.Popen[bytes]:
    """Start the process that copies `reader` to the present stderr; signals for this program do not end it."""
    command = [sys.executable, "-I", "-S", stderr_filter.__file__, os.fsdecode(notices.pattern)]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the process inherits it
    try:
        return subprocess.Popen(command, stdin=reader, stdout=subprocess.DEVNULL, start_new_session=True)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _LossyStream:
    """A text stream that drops text that can't be written: to a pipe without a reader, a closed terminal, a full disk."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text or drop it; return its length."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream or drop its buffer."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def outlive_the_terminal() -> None:
    """Make stdout and stderr drop text that can't be written, so that a closed terminal does not end the program."""
    for name in ("stdout", "stderr"):
        if stream := getattr(sys, name):
            setattr(sys, name, _LossyStream(stream))


@contextlib.contextmanager
def temporary_files() -> Iterator[None]:
    """Collect temporary files in one folder and remove it afterwards, with the files that libraries leave behind."""
    before = tempfile.tempdir
    tempfile.tempdir = tempfile.mkdtemp(prefix="cyclegan-")
    try:
        yield
    finally:
        shutil.rmtree(tempfile.tempdir, ignore_errors=True)
        tempfile.tempdir = before


def leave(code: int) -> NoReturn:
    """End the process at once: at the normal end of Python, TensorFlow would wait for other workers that may be gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
