import os
import select
import threading

import pytest

from cyclegan.stderr_filter import copy_lines


@pytest.mark.parametrize(
    "pattern, content, expected",
    [
        (rb"I\d", b"I1 a notice\nkept\nI2 another", b"kept\n"),
        (rb"I\d", b"kept: I1\n I1\nI\n", b"kept: I1\n I1\nI\n"),  # only the beginning of a line counts
        (rb"I\d", b"the last line", b"the last line"),
        (rb"I\d", b"\n\nI1\n\n", b"\n\n\n"),
        (rb"I\d", b"\xff\xfe\0\r\n", b"\xff\xfe\0\r\n"),
        (rb"I\d", b"I1" + 100_000 * b"x" + b"\n" + 200_000 * b"y" + b"\nend", 200_000 * b"y" + b"\nend"),
        (rb"a|b", b"a\nb\nc\n", b"c\n"),
        (rb"", b"all\nlines", b""),
        (rb"I\d", b"", b""),
    ],
    ids=range(9),
)
def test_lines_that_match_are_left_out(tmp_path, pattern, content, expected):
    (tmp_path / "source").write_bytes(content)
    with open(tmp_path / "source", "rb") as source, open(tmp_path / "target", "wb") as target:
        copy_lines(pattern, source.fileno(), target.fileno())
    assert (tmp_path / "target").read_bytes() == expected


def received(read):
    """Return what comes through a pipe within 10 seconds."""
    assert select.select([read], [], [], 10)[0]
    return os.read(read, 100)


def test_a_line_is_written_once_it_is_complete():
    (source, write), (read, target) = os.pipe(), os.pipe()
    thread = threading.Thread(target=copy_lines, args=(b"I", source, target))
    thread.start()
    try:
        os.write(write, b"first\nI a notice\nsec")
        assert received(read) == b"first\n"
        os.write(write, b"ond\nthi")
        assert received(read) == b"second\n"
    finally:
        os.close(write)
        thread.join()
    assert received(read) == b"thi"
    for end in (source, read, target):
        os.close(end)


def test_a_closed_target_does_not_end_the_copy(tmp_path):
    (tmp_path / "source").write_bytes(20_000 * b"lost\n")
    read, target = os.pipe()
    os.close(read)
    with open(tmp_path / "source", "rb", buffering=0) as source:
        copy_lines(b"I", source.fileno(), target)
        assert source.read() == b""  # writing to the source never blocks
    os.close(target)
