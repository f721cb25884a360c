import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def errors_of(code):
    """What a process of its own writes to standard error."""
    code = f"import os, sys\nfrom cyclegan import quiet\n{code}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stderr.splitlines()


def test_notices_are_dropped_and_everything_else_is_kept():
    assert errors_of(
        r"""
with quiet.start():
    os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n")
    os.write(2, b"I0000 00:00:1795265138.621398    9803 cudart_stub.cc:31] Could not find cuda drivers\n")
    os.write(2, b"E0000 a real error\n")
    print("from Python", file=sys.stderr)
print("after", file=sys.stderr)
"""
    ) == ["E0000 a real error", "from Python", "after"]


def test_what_was_held_back_comes_out_when_something_goes_wrong():
    lines = errors_of("with quiet.start():\n    os.write(2, b'a clue\\n')\n    1 / 0")
    assert lines[0] == "a clue" and lines[-1].startswith("ZeroDivisionError")


@pytest.mark.parametrize("where", ["/dev/full", "a closed pipe"])
def test_a_terminal_that_is_gone_does_not_end_the_program(where):
    code = """
from cyclegan import quiet
quiet.outlive_the_terminal()
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
