"""Entry points in a terminal: logging above progress bars, one-line errors, exit codes, signals."""

from __future__ import annotations

import contextlib
import functools
import gc
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
from cyclegan.errors import UserError, printable

if TYPE_CHECKING:
    import tqdm

ENVIRONMENT = "make the environment with scripts/setup.sh, then: . .venv/bin/activate"
REINSTALL = "install the package again with its dependencies: python -m pip install PATH_OF_THE_CLONE"
END_SECONDS = 5.0  # to print why the program ends, if stderr hangs
LOG_SECONDS = 10.0  # between lines about a phase: a program that is silent for longer seems to hang
FILE_SECONDS = 30.0  # the same in a file or a pipe, also between lines of a progress bar
ALL_WORKERS_KNOW = "cyclegan.training"  # loggers below it report the same on every worker
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FILES = {
    "train": "python train.py",
    "translate": "python scripts/translate.py",
    "inspect": "python scripts/inspect_data.py",
}  # programs of a clone, see `command`

logger = logging.getLogger(__name__)
_is_command = False  # whether this process is a command of this package, see `run`


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
    return f"cyclegan-{name}" if is_installed() else FILES[name]


class _TerminalHandler(logging.Handler):
    """Write log records as lines above the progress bars: information to stdout, warnings and errors to stderr."""

    def __init__(self, level: int, worker: int) -> None:
        super().__init__(level)
        self._prefix = f"Warning: worker {worker}: " if worker else "Warning: "

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm  # not at import: most uses of this module print nothing

        try:
            is_warning = record.levelno >= logging.WARNING
            stream = sys.stderr if is_warning else sys.stdout
            with contextlib.suppress(OSError):  # the terminal or the reader of a pipe is gone
                tqdm.write(self._prefix * is_warning + printable(record.getMessage()), file=stream)
                stream.flush()
        except Exception:
            self.handleError(record)


def configure_logging(verbosity: int = 1, worker: int | None = None) -> None:
    """Send the messages of this package to the terminal, with warnings as "Warning: ..."; for entry points only.

    Args:
        verbosity: 0 shows only warnings.
        worker: Index of this worker if several train together. Workers other than 0, the chief, show only warnings,
            with their index, and none of `cyclegan.training`, which are the same on all workers.
    """
    logger = logging.getLogger("cyclegan")
    for handler in _handlers():
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
    done, start = threading.Event(), time.monotonic()
    seconds = LOG_SECONDS if sys.stdout.isatty() else FILE_SECONDS

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
        thread.join(END_SECONDS)


def progress_bar(visible: bool = True, **settings: Any) -> tqdm.tqdm:
    """Return a progress bar of tqdm on stderr; in a file or a pipe, it is a line every half minute and at the end."""
    from tqdm import tqdm

    return (tqdm if sys.stderr.isatty() else _lines_class())(disable=not visible, **settings)


@functools.cache
def _lines_class() -> type[tqdm.tqdm]:
    from tqdm import tqdm

    class Lines(tqdm):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**{**settings, "delay": FILE_SECONDS, "mininterval": FILE_SECONDS})

        def display(self, *_: Any, **__: Any) -> None:
            """Do nothing, because tqdm calls this at other times, too."""

        clear = display

        def update(self, n: float | None = 1) -> bool | None:
            if due := super().update(n):
                self._print()
            return due

        def close(self) -> None:
            if not self.disable and self.leave:
                self._print()
            self.delay = float("inf")  # tqdm ends without another line
            super().close()

        def _print(self) -> None:
            print(self, file=sys.stderr, flush=True)

    return Lines


@contextlib.contextmanager
def start() -> Iterator[None]:
    """Import TensorFlow inside this context: Ctrl-C ends the process at once, and no garbage is collected.

    Libraries hide the exception of a Ctrl-C while they are imported. To look for garbage would take 0.3 s.

    Raises:
        ImportError: TensorFlow can't be imported.
    """
    is_main, was_enabled = threading.current_thread() is threading.main_thread(), gc.isenabled()
    previous = signal.signal(signal.SIGINT, _default_action()) if is_main and _raises_ctrl_c() else None
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


def _raises_ctrl_c() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


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
    """Let Ctrl-C end the process and ignore SIGUSR1, until `Signals` handles them; outlive the reader of the output.

    Ctrl-C also ends the `tee` of `train.py | tee log`, and training still has to save a checkpoint.
    """
    if _raises_ctrl_c():
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
    global _is_command
    _is_command = True
    configure_logging()
    before = tempfile.tempdir
    code: object = 1
    try:
        _prepare()
        with tempfile.TemporaryDirectory(prefix="cyclegan-") as tempfile.tempdir:
            code = main()
        sys.stdout.flush()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(printable(end.code), file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
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
        # Otherwise, Python would report it once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except OSError as error:
        _report(
            f"{printable(error)}; expected files and folders that exist and can be used, and free space on the disk"
        )
        code = 2
    except Exception:
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


def _report(text: str, before: str = "") -> None:
    """Print why the program ends; "the same command", with which it resumes, must not clear the folder."""
    if any(flag.replace("-", "_") == "__clear_output_dir" for flag in sys.argv):
        text = text.replace("the same command", "the same command without --clear_output_dir")
    print(f"{before}{program()}: {text}", file=sys.stderr, flush=True)


def end(text: str, code: int) -> NoReturn:
    """Report why the program ends and end it at once, from any thread, also if the main thread or stderr hangs."""
    printing = threading.Thread(target=_report, args=(text,), daemon=True)
    printing.start()
    printing.join(END_SECONDS)
    os._exit(code)


def leave(code: int) -> NoReturn:
    """End the process at once: at the normal end of Python, TensorFlow would wait for workers that may be gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Signals:
    """Context manager that turns signals into requests, which training checks after each call.

    SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) ask to stop, SIGUSR1 asks to save a checkpoint and continue.
    Ctrl-C after that ends a command of this package at once, even in the middle of a step: a thread reads the signals,
    because Python's own handlers run only between two calls of TensorFlow. In other programs, such as notebooks, it
    raises `KeyboardInterrupt` after the step. Signals that the parent process ignores stay ignored, as under `nohup`.

    Attributes:
        stop_signal: Number of the signal that asked to stop; 0 if none did.
        save_requested: Whether a checkpoint was asked for. The policy that saves it resets this.
    """

    def __init__(self) -> None:
        self.stop_signal = 0
        self.save_requested = False
        self._stops = 0
        self._handlers: dict[signal.Signals, Any] = {}
        self._thread: threading.Thread | None = None
        self._write_end = self._previous_wakeup = -1

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread may handle signals
        read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._previous_wakeup = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for signum in (*STOP_SIGNALS, signal.SIGUSR1):
            if signal.getsignal(signum) != signal.SIG_IGN:
                self._handlers[signum] = signal.signal(signum, self._handle)
        self._thread = threading.Thread(target=self._listen, args=(read_end,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._thread is None:
            return
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._previous_wakeup)
        os.close(self._write_end)  # ends the thread
        self._thread.join()

    def _handle(self, signum: int, _: object) -> None:
        self._stops += signum in STOP_SIGNALS
        if self._stops > 1 and signum == signal.SIGINT:
            raise KeyboardInterrupt

    def _listen(self, read_end: int) -> None:
        with open(read_end, "rb", buffering=0) as pipe:
            while received := pipe.read(1):
                self._receive(received[0])

    def _receive(self, signum: int) -> None:
        if signum == signal.SIGUSR1:
            self.save_requested = True
        elif self.stop_signal and signum == signal.SIGINT:
            if _is_command:
                os._exit(128 + signum)
        elif signum in STOP_SIGNALS and not self.stop_signal:
            self.stop_signal = signum
            key = "Ctrl-C again" if signum == signal.SIGINT else "Ctrl-C"
            logger.warning(f"Stopping after this step, with a checkpoint; {key} leaves at once, without one")
