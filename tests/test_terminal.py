import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest

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
    assert [text.split(": ")[0] for text in terminal.warnings] == [line.split(": ")[-2] for line in err]


def test_logging_leaves_progress_bars_whole(configure_logging, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    configure_logging()
    with terminal.progress_bar(total=2, mininterval=0, ncols=60) as bar:
        bar.update(1)
        logging.getLogger("cyclegan.data").warning("slow")
    lines = [line.split("\r")[-1] for line in capsys.readouterr().err.split("\n")]
    assert lines[0] == "Warning: slow" and lines[1].startswith(("100%", " 50%"))


def test_the_last_line_of_a_progress_bar_in_a_pipe_is_not_repeated(capsys, monkeypatch):
    monkeypatch.setattr(terminal, "FILE_SECONDS", 0.0)
    bar = terminal._BarLines()
    for text in ("\r50%|# | 1/2", "\r100%|##| 2/2, 3 s", "\n"):
        bar.write(text)
    assert capsys.readouterr().err == "50%|# | 1/2\n100%|##| 2/2, 3 s\n"


@pytest.mark.parametrize("leave, lines", [(True, ["Train:  60%", "Train: 100%"]), (False, ["Train:  60%"])])
def test_a_progress_bar_in_a_pipe_is_a_line_every_half_minute_and_at_the_end(
    configure_logging, capsys, monkeypatch, leave, lines
):
    monkeypatch.setattr(terminal, "FILE_SECONDS", 0.1)
    configure_logging()
    with terminal.progress_bar(total=5, desc="Train", leave=leave) as bar:
        bar.update(2)  # too early for a line
        logging.getLogger("cyclegan.data").info("a message")
        time.sleep(0.15)
        bar.update(1)
        bar.set_postfix_str("10 images/s")
        bar.update(2)
    shown = capsys.readouterr()
    assert "\r" not in shown.err and [line.split("|")[0] for line in shown.err.splitlines()] == lines
    assert shown.out == "a message\n"


def test_a_phase_is_logged_with_its_time(configure_logging, capsys, monkeypatch):
    monkeypatch.setattr(terminal, "FILE_SECONDS", 0.1)
    configure_logging()
    with terminal.phase("Short", if_slow=True):
        pass
    with terminal.phase("Drawing"):
        time.sleep(0.5)
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "Drawing" and others and set(others) <= {"Drawing: 0 s", "Drawing: 1 s"}


def process(code, *arguments, before=()):
    """Run a program, by the command `before`; return the finished process."""
    program = f"import os, signal, sys\nfrom cyclegan import terminal\n{code}"
    command = [*before, sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_library_that_configures_logging_does_not_repeat_messages():
    code = """
import logging
terminal.configure_logging()
logging.basicConfig()
logging.getLogger("cyclegan.data").warning("ours")
logging.getLogger("absl").warning("theirs")
"""
    assert process(code).stderr.splitlines() == ["Warning: ours", "WARNING:absl:theirs"]


HIDDEN = """
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("hidden")
"""


def test_ctrl_c_during_the_start_ends_the_program_without_a_traceback():
    done = process(f"with terminal.start():\n    exec({HIDDEN!r})")  # a library hides the exception
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
    done = process("with terminal.start():\n    pass\n" + HIDDEN)
    assert (done.returncode, done.stdout) == (0, "hidden\n")


def test_training_ends_by_ctrl_c_until_it_handles_signals():
    begin = "terminal.prepare_training()\nsignal.raise_signal(signal.SIGUSR1)\nprint(1, flush=True)\n"
    done = process(begin + HIDDEN)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "1\n", "")
    done = process(
        begin
        + "from cyclegan.training.checkpoint_policy import Signals\n"
        + "with Signals() as s:\n    signal.raise_signal(signal.SIGINT)\nprint(s.stop_signal)"
    )
    assert (done.returncode, done.stdout) == (0, "1\n2\n")


def test_the_last_words_of_a_crashing_library_are_shown():
    code = "with terminal.start():\n    os.write(2, b'terminate called\\n')\n    os.abort()"
    assert process(code).stderr == "terminate called\n"


@pytest.mark.parametrize("before", [(), ("sh", "-c", 'exec 2>&-; exec "$@"', "sh")])
def test_only_notices_of_tensorflow_are_left_out(before):
    code = r"""
from cyclegan import lazy_tensorflow
with lazy_tensorflow.without_notices():
    if not sys.argv[1:]:
        os.write(2, b"WARNING: All log messages before absl::\nI0000 00:00: a notice\nAn error\n")
lazy_tensorflow.load()
print("done")
"""
    done = process(code, *["closed"] * bool(before), before=before)
    assert (done.stderr, done.stdout) == ("" if before else "An error\n", "done\n")


USABLE = "expected files and folders that exist and can be used"


def test_the_reason_of_the_end_is_the_last_line(monkeypatch, capsys):
    """Print a progress bar of another thread, as one that notices a lost worker does, while the process ends."""
    monkeypatch.setattr(sys, "stderr", sys.stderr)  # put back after the test
    monkeypatch.setattr(os, "_exit", lambda code: terminal._BarLines().write("\n"))
    terminal.end("stuck", 1)
    assert capsys.readouterr().err.endswith(": stuck\n")


@pytest.mark.parametrize(
    "outcome, code, printed",
    [
        (UserError("no run\nhere"), 2, "score.py: no run\\nhere\n"),
        (TrainingError("not a number"), 1, "score.py: not a number\n"),
        (ModuleNotFoundError("No module named 'PIL'"), 2, f"score.py: No module named 'PIL': {ENVIRONMENT}\n"),
        (FileNotFoundError(2, "No such file", "a\nb"), 2, f"score.py: a\\nb: No such file; {USABLE}\n"),
        (OSError(36, "File name too long", "a"), 2, "score.py: a: File name too long; expected a shorter name\n"),
        (OSError(28, "No space left"), 2, "score.py: No space left; expected free space on the disk\n"),
        (KeyboardInterrupt(), 130, "\nscore.py: nothing was written\n"),
        (1, 1, ""),
        ({"a metric": 1.5}, 0, ""),
    ],
)
def test_run_reports_failures_in_one_line(outcome, code, printed, monkeypatch, capsys):
    def main():
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(sys, "argv", ["scripts/score.py"])
    assert terminal.run(main, "nothing was written") == code
    assert capsys.readouterr() == ("", printed)


@pytest.mark.parametrize("defect", [ZeroDivisionError("division by zero"), OSError(9, "Bad file descriptor")])
def test_run_keeps_the_traceback_of_a_defect(defect, capsys):
    def main():
        raise defect

    assert terminal.run(main) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback") and err.endswith(f"{type(defect).__name__}: {defect}\n")


def test_a_broken_tensorflow_is_one_line_with_the_repair(tmp_path):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(
        "import os\nos.write(2, b'A module that was compiled ...\\n')\nraise AttributeError('_ARRAY_API not found')"
    )
    code = "sys.path.insert(0, sys.argv[1])\nsys.exit(terminal.run(lambda: terminal.start().__enter__()))"
    done = process(code, tmp_path)
    line = f"-c: TensorFlow can't be imported (AttributeError: _ARRAY_API not found): {ENVIRONMENT}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


SCRIPTS = ("train.py", "scripts/benchmark", "scripts/soak", "scripts/tutorials/fashion_mnist.py")


@pytest.mark.parametrize("script", [*SCRIPTS, *(f"scripts/{path.name}" for path in ROOT.glob("scripts/*.py"))])
def test_without_the_environment_each_script_ends_in_one_line(script):
    command = [sys.executable, "-E", "-S", script, "--help"]  # -S: without installed packages
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    line = f"{pathlib.Path(script).name}: No module named 'numpy': {ENVIRONMENT}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


@pytest.mark.parametrize("signum", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_ends_process_1_of_a_container(signum):
    unshare = ["unshare", "--map-root-user", "--pid", "--fork"]
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this machine makes no namespaces")
    main = f"lambda: (signal.raise_signal(signal.{signum}), print('dropped'))"
    done = process(f"terminal.prepare_training()\nsys.exit(terminal.run({main}))", before=unshare)
    assert (done.returncode, done.stdout) == (128 + getattr(signal, signum), "")


def test_a_deleted_folder_and_letters_that_the_terminal_lacks(tmp_path, monkeypatch):
    gone = "os.mkdir(sys.argv[1]); os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])\nsys.exit(terminal.run(print))"
    line = "-c: the current folder was deleted; expected one that exists: change to another folder\n"
    done = process(gone, tmp_path / "gone")
    assert (done.returncode, done.stderr) == (2, line)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = process("sys.exit(terminal.run(lambda: print('caf\u00e9')))")
    assert (done.returncode, done.stdout, done.stderr) == (0, "caf\\xe9\n", "")


def test_run_removes_temporary_files():
    folders = []

    def main():
        folders.append(pathlib.Path(tempfile.mkdtemp()))
        raise UserError("no")

    assert terminal.run(main) == 2
    assert not folders[0].exists() and not folders[0].parent.exists() and pathlib.Path(tempfile.gettempdir()).exists()


def test_a_reader_that_leaves_early_is_no_traceback():
    code = "sys.exit(terminal.run(lambda: [print('line') for _ in range(100000)]))"
    line = f"import sys\nfrom cyclegan import terminal\n{code}"
    script = '"$0" -c "$1" | head -n 1; exit ${PIPESTATUS[0]}'
    done = subprocess.run(["bash", "-c", script, sys.executable, line], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (141, "line\n", "")


def test_run_does_not_propose_to_clear_the_folder_again(monkeypatch, capsys):
    def main():
        raise UserError("stopped; the same command resumes")

    monkeypatch.setattr(sys, "argv", ["train.py", "--clear-output-dir"])
    assert terminal.run(main) == 2
    assert capsys.readouterr().err == "train.py: stopped; the same command without --clear_output_dir resumes\n"


def test_training_outlives_the_reader_of_its_output():
    code = "terminal.prepare_training()\nfor _ in range(100000):\n    print('line')\nopen(sys.argv[1], 'w').close()"
    script = '"$0" -c "$1" "$2" 2>&1 | head -n 1; exit ${PIPESTATUS[0]}'
    with tempfile.TemporaryDirectory() as folder:
        line = f"import sys\nfrom cyclegan import terminal\n{code}\nterminal.leave(0)"
        done = subprocess.run(["bash", "-c", script, sys.executable, line, f"{folder}/end"], cwd=ROOT)
        assert done.returncode == 0 and os.listdir(folder) == ["end"]


@pytest.mark.parametrize("name, started", [("train.py", "python train.py"), ("cyclegan-train", "cyclegan-train")])
def test_programs_are_named_as_the_user_starts_them(name, started, monkeypatch):
    monkeypatch.setattr(sys, "argv", [f"bin/{name}"])
    assert terminal.program() == name and terminal.command("train") == started


def test_an_installed_command_names_the_extra(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/cyclegan-train"])
    assert terminal.install_command("wandb") == "pip install 'cyclegan[wandb]'"


def test_the_programs_of_a_clone_exist():
    root = pathlib.Path(__file__).resolve().parents[1]
    assert all((root / path).is_file() for path in terminal.FILES.values())
