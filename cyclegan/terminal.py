"""Entry points in a terminal: logging above progress bars, one-line errors, exit codes, signals."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from cyclegan import lazy_tensorflow
from cyclegan.errors import UserError, explain_file_error, printable

if TYPE_CHECKING:
    import tqdm

ENVIRONMENT = "make the environment with scripts/setup.sh, then: . .venv/bin/activate"
REINSTALL = "install the package again with its dependencies: python -m pip install PATH_OF_THE_CLONE"
LOG_SECONDS = 10.0  # between lines about a phase: a program that is silent for longer seems to hang
FILE_SECONDS = 30.0  # the same in a file or a pipe, also between lines of a progress bar
# Programs of a clone, see `command`.
FILES = {"train": "train.py", "translate": "scripts/translate.py", "inspect": "scripts/inspect_data.py"}

logger = logging.getLogger(__name__)
is_command = False  # whether this process is a command of this package, see `run`
warnings: list[str] = []  # since `configure_logging`


def program() -> str:
    """Return the name of this program, such as "train.py" or "cyclegan-train"."""
    return os.path.basename(sys.argv[0])


def is_installed() -> bool:
    """Return whether this program is an installed command, rather than a file of a clone."""
    return program().startswith("cyclegan-")


def install_command(package: str) -> str:
    """Return the command that adds wandb, mlflow or torch, and keeps the versions of all other packages."""
    return f"pip install 'cyclegan[{package}]'" if is_installed() else f"pip install -c requirements.txt {package}"


def command(name: str) -> str:
    """Return how a user starts a program: "python train.py" or "cyclegan-train"."""
    return f"cyclegan-{name}" if is_installed() else f"python {FILES[name]}"


class _TerminalHandler(logging.Handler):
    """Write log records as lines above the progress bars: information to stdout, warnings and errors to stderr."""

    def __init__(self, level: int, worker: int) -> None:
        super().__init__(level)
        self._prefix = f"Warning: worker {worker}: " if worker else "Warning: "

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm  # not at import: most uses of this module print nothing

        is_warning = record.levelno >= logging.WARNING
        stream = sys.stderr if is_warning else sys.stdout
        warnings.extend([record.getMessage()] * is_warning)
        with contextlib.suppress(OSError):  # the terminal or the reader of a pipe is gone
            tqdm.write(self._prefix * is_warning + printable(record.getMessage()), file=stream)
            stream.flush()


def configure_logging(verbosity: int = 1, worker: int | None = None) -> None:
    """Send the messages of this package to the terminal, with warnings as "Warning: ..."; for entry points only.

    Args:
        verbosity: 0 shows only warnings.
        worker: Index of this worker if several train together. Workers other than 0, the chief, show only warnings,
            with their index, and none of `cyclegan.training`, which are the same on all workers.
    """
    logger = logging.getLogger("cyclegan")
    warnings.clear()
    for handler in _handlers():
        logger.removeHandler(handler)
    handler = _TerminalHandler(logging.WARNING if worker or not verbosity else logging.INFO, worker or 0)
    if worker:
        handler.addFilter(lambda record: not record.name.startswith("cyclegan.training."))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    if not logging.root.handlers:
        # Otherwise libraries add a root handler while they are imported, which shows our messages twice.
        others = logging.StreamHandler()
        others.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        others.addFilter(lambda record: not record.name.startswith("cyclegan"))
        logging.root.addHandler(others)


def _handlers() -> list[_TerminalHandler]:
    return [each for each in logging.getLogger("cyclegan").handlers if isinstance(each, _TerminalHandler)]


@contextlib.contextmanager
def phase(text: str, visible: bool = True, if_slow: bool = False) -> Iterator[None]:
    """Log what the program does inside the context, and every few seconds for how long.

    Args:
        text: What the program does.
        visible: Whether to log anything.
        if_slow: Whether to log nothing in the first second, for phases that are usually shorter.
    """
    if not (visible and any(each.level <= logging.INFO for each in _handlers())):
        yield
        return
    done, start, seconds = threading.Event(), time.monotonic(), LOG_SECONDS if sys.stdout.isatty() else FILE_SECONDS

    def log_time() -> None:
        if if_slow and not done.wait(1):
            logger.info(text)
        while not done.wait(seconds):
            logger.info(f"{text}: {time.monotonic() - start:.0f} s")

    if not if_slow:
        logger.info(text)
    thread = threading.Thread(target=log_time, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class _BarLines:
    """The stream of a progress bar outside of a terminal: a line on stderr every half minute and at the end."""

    def __init__(self) -> None:
        self._text, self._shown, self._due = "", "", time.monotonic() + FILE_SECONDS

    def write(self, text: str) -> None:
        self._text = text.strip() or self._text
        share, is_end = self._text.partition("|")[0], text == "\n"  # tqdm ends a bar that stays with a new line
        if share != self._shown if is_end else time.monotonic() >= self._due:
            self._shown, self._due = share, time.monotonic() + FILE_SECONDS
            print(self._text, file=sys.stderr, flush=True)

    def flush(self) -> None:
        """Do nothing."""


def progress_bar(visible: bool = True, **settings: Any) -> tqdm.tqdm:
    """Return a progress bar of tqdm on stderr; in a file or a pipe, it is a line every half minute and at the end."""
    from tqdm import tqdm

    return tqdm(disable=not visible, file=None if sys.stderr.isatty() else _BarLines(), **settings)


@contextlib.contextmanager
def start() -> Iterator[None]:
    """Import TensorFlow inside this context: Ctrl-C ends the process at once, and no garbage is collected.

    Libraries hide the exception of a Ctrl-C while they are imported. To look for garbage would take 0.3 s.

    Raises:
        ImportError: TensorFlow can't be imported.
    """
    is_main, was_enabled = threading.current_thread() is threading.main_thread(), gc.isenabled()
    is_raising = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    previous = signal.signal(signal.SIGINT, _default_action()) if is_main and is_raising else None
    gc.disable()
    try:
        lazy_tensorflow.load()
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
        if previous:
            signal.signal(signal.SIGINT, previous)


def _default_action() -> Any:
    """Return the handler that ends the process; Linux drops signals of process 1 of a container without a handler."""
    return (lambda number, _: os._exit(128 + number)) if os.getpid() == 1 else signal.SIG_DFL


class _LossyStream:
    """A text stream that drops text that can't be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def prepare_training() -> None:
    """Let Ctrl-C end the process and ignore SIGUSR1, until training handles them; outlive the reader of the output.

    Ctrl-C also ends the `tee` of `train.py | tee log`, and training still has to save a checkpoint.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _default_action())
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, lambda *_: None)
    sys.stdout, sys.stderr = _LossyStream(sys.stdout), _LossyStream(sys.stderr)


def run(main: Callable[[], object], interrupted: str = "stopped") -> int:
    """Run the `main` of an entry point with logging to the terminal, and report in one line why it failed.

    Temporary files are in one folder, which is removed afterwards.

    Args:
        main: Function without arguments. An integer that it returns is the exit code.
        interrupted: Message after Ctrl-C.

    Returns:
        The exit code: 0 for success, 1 for failed training or a defect of the program (with its traceback), 2 for a
        mistake of the user, 130 after Ctrl-C, 141 if the reader of the output has left.
    """
    global is_command
    is_command = True
    configure_logging()
    before = tempfile.tempdir
    code: object = 1
    try:
        _prepare()
        with tempfile.TemporaryDirectory(prefix="cyclegan-") as tempfile.tempdir:
            code = main()
        sys.stdout.flush()
    except SystemExit as end:  # of argparse
        code = end.code
    except UserError as error:
        _report(printable(error))
        code = error.exit_code
    except ImportError as error:
        _report(f"{error}: {REINSTALL if is_installed() else ENVIRONMENT}")
        code = 2
    except KeyboardInterrupt:
        _report(interrupted, before="\n")
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python would report it at the end
        code = 128 + signal.SIGPIPE
    except Exception as error:
        if text := explain_file_error(error):
            _report(text)
            code = 2
        else:
            traceback.print_exc()
    finally:
        tempfile.tempdir = before
    return code if isinstance(code, int) else 0


def _prepare() -> None:
    """Make this process independent of how it was started: as process 1, in a lost folder, with a poor terminal."""
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if os.getpid() == 1 and signal.getsignal(signum) == signal.SIG_DFL:
            signal.signal(signum, _default_action())
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # for names that the terminal's encoding lacks
    try:
        os.getcwd()
    except OSError as error:
        raise UserError("the current folder was deleted; expected one that exists: change to another folder") from error


def _report(text: str, before: str = "", stream: TextIO | None = None) -> None:
    """Print why the program ends; "the same command", with which it resumes, must not clear the folder."""
    if any(flag.replace("-", "_") == "__clear_output_dir" for flag in sys.argv):
        text = text.replace("the same command", "the same command without --clear_output_dir")
    print(f"{before}{program()}: {text}", file=stream or sys.stderr, flush=True)


def end(text: str, code: int, before: str = "") -> NoReturn:
    """Report why the program ends and end it at once, from any thread, also if the main thread hangs."""
    stream, sys.stderr = sys.stderr, io.StringIO()  # no other thread prints behind the reason
    try:
        _report(text, before, stream)
    finally:  # also if the reader of the output is gone
        os._exit(code)


def leave(code: int) -> NoReturn:
    """End the process at once: at the normal end of Python, TensorFlow would wait for workers that may be gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
