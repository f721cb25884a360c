import contextlib
import errno
import gc
import io
import logging
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import unittest.mock

import pytest
import tqdm

from cyclegan import terminal
from cyclegan.errors import TrainingError, UserError
from cyclegan.terminal import ENVIRONMENT

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture
def configure_logging():
    """Return `terminal.configure_logging`, undone after the test."""
    logger = logging.getLogger("cyclegan")
    before = logger.level, list(logger.handlers)
    yield terminal.configure_logging
    logger.setLevel(before[0])
    logger.handlers[:] = before[1]


def log_everything():
    """Log information and a warning by loggers of two folders."""
    for name in ("cyclegan.data.cache", "cyclegan.training.trainer"):
        logging.getLogger(name).info("%s: 1 of %d", name, 2)
        logging.getLogger(name).warning("%s: two\nlines\x1b", name)


DATA, TRAINING = "cyclegan.data.cache: ", "cyclegan.training.trainer: "


@pytest.mark.parametrize(
    "verbosity, worker, out, err",
    [
        (1, None, [DATA + "1 of 2", TRAINING + "1 of 2"], [f"Warning: {DATA}two", f"Warning: {TRAINING}two"]),
        (1, 0, [DATA + "1 of 2", TRAINING + "1 of 2"], [f"Warning: {DATA}two", f"Warning: {TRAINING}two"]),
        (0, 0, [], [f"Warning: {DATA}two", f"Warning: {TRAINING}two"]),
        (1, 2, [], [f"Warning: worker 2: {DATA}two"]),
    ],
)
def test_logging_shows_each_message_where_it_belongs(verbosity, worker, out, err, configure_logging, capsys):
    configure_logging()
    configure_logging(verbosity, worker)  # replaces the first, so that nothing is shown twice
    log_everything()
    shown = capsys.readouterr()
    assert shown.out.splitlines() == out
    assert shown.err.splitlines() == [line + r"\nlines\x1b" for line in err]


def test_logging_leaves_progress_bars_whole(configure_logging, capsys):
    configure_logging()
    with tqdm.tqdm(total=2, mininterval=0, ncols=60) as bar:
        bar.update(1)
        logging.getLogger("cyclegan.data").warning("slow")
    lines = [line.split("\r")[-1] for line in capsys.readouterr().err.split("\n")]
    assert lines[0] == "Warning: slow" and lines[1].startswith(("100%", " 50%"))


PHASE = """
import sys, time
from cyclegan import terminal
terminal.LOG_SECONDS = 0.5
terminal.configure_logging()
with terminal.phase("Short", if_slow=True):
    pass
with terminal.phase("Waiting", if_slow=sys.argv[1] == "slow"), terminal.start():
    time.sleep(float(sys.argv[2]))
print("done", flush=True)
"""


def test_ctrl_c_before_the_first_message_is_not_lost(configure_logging, monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    configure_logging()
    monkeypatch.delattr(tqdm.tqdm, "_lock", raising=False)
    monkeypatch.setattr(tqdm.std, "TqdmDefaultWriteLock", interrupted)
    with pytest.raises(KeyboardInterrupt):
        logging.getLogger("cyclegan.data.cache").info("ready")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("on_terminal, kind, seconds", [(False, "any", 0.9), (True, "any", 2.5), (False, "slow", 1.9)])
def test_a_phase_is_logged_and_its_time_shown(on_terminal, kind, seconds):
    reader, writer = os.openpty() if on_terminal else os.pipe()
    command = [sys.executable, "-c", PHASE, kind, str(seconds)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=writer, stderr=writer)
    os.close(writer)
    text = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(reader, 4096):
            text += part
    os.close(reader)
    assert process.wait() == 0
    lines = [line.strip() for line in re.split(r"[\r\n]+", text.decode()) if line.strip()]
    assert lines[0] == "Waiting" and lines[-1] == "done"
    assert len(lines[1:-1]) >= (2 if on_terminal else 1)
    assert all(re.fullmatch(r"00:\d\d" if on_terminal else r"Waiting: \d s", line) for line in lines[1:-1])


def test_a_phase_shows_its_time_while_a_library_is_silenced(configure_logging, capsys, monkeypatch):
    monkeypatch.setattr(terminal, "LOG_SECONDS", 0.1)
    configure_logging()
    with terminal.phase("Drawing"), contextlib.redirect_stdout(io.StringIO()):
        shown, end = "", time.monotonic() + 60
        while "Drawing: " not in shown and time.monotonic() < end:
            time.sleep(0.05)  # the line comes from another thread
            shown += capsys.readouterr().out
    assert "Drawing: " in shown


def test_a_phase_goes_on_where_threads_are_refused(configure_logging, capsys, monkeypatch):
    monkeypatch.setattr(
        threading.Thread, "start", unittest.mock.Mock(side_effect=RuntimeError("can't start new thread"))
    )
    configure_logging()
    with terminal.phase("Drawing"):
        print("drawn")
    assert capsys.readouterr().out == "Drawing\ndrawn\n"


def test_logging_reaches_other_handlers(configure_logging, caplog):
    configure_logging(verbosity=0)
    log_everything()
    assert len(caplog.records) == 4


def test_a_library_that_configures_logging_does_not_repeat_messages():
    assert errors_of(
        """
import logging
terminal.configure_logging()
logging.basicConfig()
logging.getLogger("cyclegan.data").warning("ours")
logging.getLogger("absl").warning("theirs")
"""
    ) == ["Warning: ours", "WARNING:absl:theirs"]


def errors_of(code):
    """Return the lines that a process with this code writes to stderr."""
    command = [sys.executable, "-c", f"import os, sys\nfrom cyclegan import terminal\n{code}"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, start_new_session=True, timeout=60
    ).stderr.splitlines()


def test_start_drops_notices_only():
    assert errors_of(
        r"""
with terminal.start():
    os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n")
    os.write(2, b"I0000 00:00:1795265138.621398    9803 cudart_stub.cc:31] Could not find cuda drivers\n")
    os.write(2, b"E0000 a real error\n")
    print("from Python", file=sys.stderr)
print("after", file=sys.stderr)
"""
    ) == ["E0000 a real error", "from Python", "after"]


def test_start_collects_no_garbage_inside():
    before = gc.isenabled()
    gc.enable()
    try:
        with terminal.start():
            assert not gc.isenabled()
        assert gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("inside", ["with terminal.start():", "if True:"])
@pytest.mark.parametrize("library", ["pass", "raise ImportError"])
def test_a_ctrl_c_that_a_library_hides_is_not_lost(inside, library):
    program = f"""
import signal, sys
from cyclegan import interrupt, terminal

def main():
    {inside}
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            hidden = error
        {library}

sys.exit(terminal.run(main))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    hides = (inside, library) == ("if True:", "pass")  # the program has handled it
    assert (done.returncode, done.stderr) == ((0, "") if hides else (130, "\n-c: stopped\n"))


def test_a_ctrl_c_that_a_library_hides_before_the_program_runs_is_not_lost():
    program = """
import signal, sys
from cyclegan import interrupt, terminal

try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    pass
sys.exit(terminal.run(lambda: print("ran")))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\n-c: stopped\n")


def test_start_shows_lines_before_an_exception():
    lines = errors_of("with terminal.start():\n    os.write(2, b'a clue\\n')\n    1 / 0")
    assert lines[0] == "a clue" and lines[-1].startswith("ZeroDivisionError")


@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), 11)", "os.kill(os.getpid(), 9)", "os._exit(3)"])
def test_start_shows_the_last_lines_of_a_crash(end):
    last = ["terminate called", "  what():  no kernel image"]
    code = rf"os.write(2, b'I0000 a notice\n{last[0]}\nI0000 a notice\n{last[1]}')"
    assert errors_of(f"with terminal.start():\n    {code}\n    {end}") == last


def test_start_shows_lines_at_once(tmp_path):
    with open(tmp_path / "stderr", "w") as stderr:
        code = "import os\nfrom cyclegan import terminal\nwith terminal.start():\n    os.write(2, b'waiting\\n')\n    input()"
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=stderr) as process:
            for _ in range(300):
                if (shown := (tmp_path / "stderr").read_text()) or process.poll() is not None:
                    break
                time.sleep(0.1)
            assert process.poll() is None and shown == "waiting\n"
            process.communicate(b"\n")
    assert process.returncode == 0


def test_start_does_not_wait_for_processes_that_hold_stderr():
    lines = errors_of(
        """
import subprocess, time
terminal.FILTER_SECONDS = 1.0
with terminal.start():
    held = subprocess.Popen(["sh", "-c", "read _; echo 'late but shown' >&2"], stdin=subprocess.PIPE)
    os.write(2, b"early\\n")
print("after", file=sys.stderr, flush=True)
held.communicate()
"""
    )
    assert lines == ["early", "after", "late but shown"]


def test_start_without_run_opens_closed_streams():
    code = "from cyclegan import terminal\nwith terminal.start():\n    pass"
    command = ["bash", "-c", '"$@" 0<&- >&- 2>&-', "bash", sys.executable, "-c", code]
    assert subprocess.run(command, cwd=ROOT, timeout=60).returncode == 0


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_to_all_processes_do_not_end_the_filter(signum):
    code = f"""
import signal, subprocess
with terminal.start():
    signal.signal({int(signum)}, signal.SIG_IGN)
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    os.kill(int(children.split()[0]), {int(signum)})
    os.killpg(0, {int(signum)})
    os.write(2, b"shown\\n")
"""
    assert errors_of(code) == ["shown"]


def test_the_program_ends_although_stderr_hangs():
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, bytes(1 << 12))
    os.set_blocking(write, True)
    code = "from cyclegan import terminal; terminal.END_SECONDS = 0.1; terminal.end('stuck', 7)"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=write)
    try:
        assert process.wait(20) == 7
    finally:
        process.kill()
        os.close(read)
        os.close(write)


def test_no_progress_bar_follows_why_the_program_ends():
    code = """
import os, sys, threading, time, tqdm
from cyclegan import terminal

def draw():
    while True:
        bar.refresh()

leave = os._exit
os._exit = lambda code: (time.sleep(0.2), leave(code))  # as on a busy machine: the bar is drawn again meanwhile
bar = tqdm.tqdm(total=3)
threading.Thread(target=draw, daemon=True).start()
terminal.end("stuck", 7)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 7 and ended.stderr.endswith(": stuck\n"), ended.stderr[-1000:]


def test_too_little_address_space_is_one_line(monkeypatch, capsys):
    """Limit the address space for the process that tries TensorFlow's start, which fails as in reality."""
    monkeypatch.setattr(terminal, "PROBE", "import mmap; mmap.mmap(-1, 1 << 29)")
    monkeypatch.setattr(terminal.resource, "getrlimit", lambda _: (300_000_000, -1))
    run = subprocess.run

    def little():
        resource.setrlimit(resource.RLIMIT_AS, (300_000_000, 300_000_000))

    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: run(*args, **kwargs, preexec_fn=little))

    def main():
        with terminal.start():
            pytest.fail("it started")

    assert terminal.run(main) == 2
    assert (
        "TensorFlow does not start within 0.3 GB of address space: expected a higher limit" in capsys.readouterr().err
    )
    monkeypatch.setattr(subprocess, "run", run)
    terminal._check_address_space()


def test_memory_that_runs_out_is_one_line(capsys):
    def main():
        raise MemoryError

    assert terminal.run(main) == 1
    assert capsys.readouterr().err.endswith(": not enough memory; ulimit -a shows the limits of the process\n")


@pytest.mark.parametrize(
    "outcome, code, printed",
    [
        (UserError("no run\nhere"), 2, "score.py: no run\\nhere\n"),
        (TrainingError("not a number"), 1, "score.py: not a number\n"),
        (ModuleNotFoundError("No module named 'PIL'"), 2, f"score.py: No module named 'PIL': {ENVIRONMENT}\n"),
        (KeyboardInterrupt(), 130, "\nscore.py: nothing was written\n"),
        (0, 0, ""),
        (1, 1, ""),
        (None, 0, ""),
        ({"a metric": 1.5}, 0, ""),
    ],
)
def test_run_reports_failures_in_one_line(outcome, code, printed, monkeypatch, capsys):
    def main():
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(sys, "argv", ["scripts/score.py"])
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # silenced after Ctrl-C
    assert terminal.run(main, "nothing was written") == code
    assert capsys.readouterr() == ("", printed)


def test_ctrl_c_that_another_error_replaced_is_one_line():
    program = """
import signal, sys, threading
from cyclegan import interrupt, terminal

class HalfMade:
    def __del__(self):
        self.whole

def main():
    half_made = HalfMade()
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        threading.RLock().release()

sys.exit(terminal.run(main))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\n-c: stopped\n")


def test_run_keeps_the_traceback_of_a_defect(capsys):
    assert terminal.run(lambda: 1 / 0) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback") and err.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("flag", ["--clear_output_dir", "--clear-output-dir"])
def test_run_does_not_propose_to_clear_the_folder_again(flag, monkeypatch, capsys):
    def main():
        raise UserError("stopped; the same command resumes")

    monkeypatch.setattr(sys, "argv", ["train.py", flag])
    assert terminal.run(main) == 2
    assert capsys.readouterr().err == "train.py: stopped; the same command without --clear_output_dir resumes\n"


def test_a_refused_process_is_one_line(capsys):
    def main():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    assert terminal.run(main) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "not enough processes" in line and "ulimit -a" in line
