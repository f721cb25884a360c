import os
import pathlib
import subprocess
import sys

import pytest

from cyclegan import terminal

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("where", ["/dev/full", "a closed pipe"])
def test_a_closed_terminal_does_not_end_the_program(where):
    code = """
from cyclegan import streams
streams.outlive_the_terminal()
import sys, tqdm
for i in tqdm.tqdm(range(100), mininterval=0):
    print("x" * 1000, flush=True)
    print("y" * 1000, file=sys.stderr)
sys.exit(143)
"""
    if where == "/dev/full":
        with open(where, "w") as output:
            process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=output, stderr=output)
    else:
        read, write = os.pipe()
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=write, stderr=write)
        os.close(read)
        os.close(write)
    assert process.wait(60) == 143


STREAMS = {  # as shell redirections
    "open": "",
    "no stdin": "0<&-",
    "no stdout": ">&-",
    "no stderr": "2>&-",
    "none": "0<&- >&- 2>&-",
    "full stdout": ">/dev/full",
    "full stderr": "2>/dev/full",
    "no reader": "2>&1 | true",
}
OUTCOMES = {  # the end of a command, and its exit code
    "done": ("pass", 0),
    "mistake": ("raise UserError('wrong')", 2),
    "help": ("argparse.ArgumentParser().parse_args(['--help'])", 0),
    "wrong flag": ("argparse.ArgumentParser().parse_args(['--wrong'])", 2),
    "text": ("raise SystemExit('nothing could be timed')", 1),
}


@pytest.mark.sampled
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("streams", STREAMS)
def test_streams_do_not_change_the_exit_code(tmp_path, streams, outcome):
    """Run a command whose streams are closed, full or without a reader; only a full stdout is a failure of its own."""
    end, code = OUTCOMES[outcome]
    (tmp_path / "command.py").write_text(f"""
import argparse, logging, os, sys, time
sys.path.insert(0, {str(ROOT)!r})
import tqdm
from cyclegan import terminal
from cyclegan.errors import UserError

def main():
    time.sleep(0.1 * ({streams!r} == "no reader"))
    with open({str(tmp_path / "number")!r}, "w") as file:
        print(file.fileno(), file=file)
    with terminal.start():
        os.write(2, b"from a library\\n")
    logging.getLogger("cyclegan.x").info("information")
    logging.getLogger("cyclegan.x").warning("warning")
    for _ in tqdm.tqdm(range(3)):
        print("output")
    {end}

sys.exit(terminal.run(main))
""")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    command = f"set -o pipefail; {sys.executable} {tmp_path / 'command.py'} {STREAMS[streams]}"
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == (1 if streams == "full stdout" and code == 0 else code), done
    assert int((tmp_path / "number").read_text()) > 2  # no file takes the number of a closed stream
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    if streams == "full stdout" and code == 0:
        assert "command.py: the output could not be written: [Errno 28] No space left on device" in done.stderr


def test_training_outlives_a_full_stdout(capsys):
    class Full:
        def write(self, text):
            raise OSError(28, "No space left on device")

        flush = isatty = lambda self: self.write("")

    stdout, sys.stdout = sys.stdout, Full()
    try:
        assert terminal.run(lambda: print("lost"), needs_stdout=False) == 0
        assert terminal.run(lambda: print("lost")) == 1
        assert terminal.run(lambda: sys.stdout.writelines(["lost", "too"]), needs_stdout=False) == 0
    finally:
        sys.stdout = stdout
