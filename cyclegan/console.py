"""Set up the terminal: logging, exit codes of scripts, TensorFlow's start without its notices, a terminal that is closed early."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable

from cyclegan.errors import ENVIRONMENT, UserError, printable

# What TensorFlow 2.21 writes while it is imported and looks for devices, whatever TF_CPP_MIN_LOG_LEVEL says.
NOTICE = re.compile(rb"I\d{4} |WARNING: All log messages before absl::InitializeLog")


ALL_WORKERS_KNOW = "cyclegan.training"  # loggers below it report the same on every worker


class _TerminalHandler(logging.Handler):
    """Write log records to the terminal: information to stdout, warnings and errors to stderr, whole progress bars below."""

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
    if (
        not logging.root.handlers
    ):  # libraries add one there while they are imported, which would show our messages twice
        others = logging.StreamHandler()
        others.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        others.addFilter(lambda record: not record.name.startswith("cyclegan"))
        logging.root.addHandler(others)


def run(main: Callable[[], object], interrupted: str = "stopped") -> int:
    """Run the `main` of a script with logging to the terminal, and report in one line why it failed.

    Args:
        main: Function without arguments. An integer that it returns is the exit code.
        interrupted: Message after Ctrl-C.

    Returns:
        The exit code.
    """
    configure_logging()
    name = os.path.basename(sys.argv[0])
    try:
        code = main()
        return code if isinstance(code, int) else 0
    except UserError as error:
        print(f"{name}: {printable(error)}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        print(f"{name}: {error}: {ENVIRONMENT}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\n{name}: {interrupted}", file=sys.stderr)
        return 130


@contextlib.contextmanager
def start(notices=NOTICE):
    """Within it, what the process writes to standard error is held back; after it, all lines but notices are written.

    Also what C++ writes is held back, which Python's own redirection does not reach. `notices` matches bytes. Gives a function that
    writes a line at once all the same, with the `fileno` of what it writes to.
    """
    sys.stderr.flush()
    real = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield _Direct(real)
        finally:
            sys.stderr.flush()
            os.dup2(real, 2)
            os.close(real)
            held.seek(0)
            for line in held:
                if not notices.match(line):
                    os.write(2, line)


class _Direct:
    """Writes lines to a descriptor."""

    def __init__(self, descriptor):
        self._descriptor = descriptor

    def __call__(self, text):
        os.write(self._descriptor, f"{text}\n".encode(errors="backslashreplace"))

    def fileno(self):
        return self._descriptor


class _Outliving:
    """A text stream that drops what it can't write: a pipe without a reader, a closed terminal, a file on a full disk."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text):
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self):
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name):
        return getattr(self._stream, name)


def outlive_the_terminal():
    """From here on, what can't be printed is lost, and the program goes on."""
    sys.stdout, sys.stderr = (_Outliving(stream) if stream else stream for stream in (sys.stdout, sys.stderr))


@contextlib.contextmanager
def temporary_files():
    """Temporary files made within it are gone after it, also those that libraries would remove only at the end of Python."""
    before = tempfile.tempdir
    tempfile.tempdir = tempfile.mkdtemp(prefix="cyclegan-")
    try:
        yield
    finally:
        shutil.rmtree(tempfile.tempdir, ignore_errors=True)
        tempfile.tempdir = before


def leave(code):
    """Ends the process. What TensorFlow takes down at the end of Python would wait for other workers, which may be gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
