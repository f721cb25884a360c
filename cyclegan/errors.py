"""Errors that the user, the data or the machine causes, rather than a defect of the program."""

from __future__ import annotations

import difflib
import errno
import os
import pathlib
import re

# Names of functions and operations that TensorFlow puts around its messages.
INTERNALS = re.compile(r"^({{.*?}} ?)+| ?\[Op:.*$")
# Beginnings of lines about places in the code.
PLACES = (" ", "\t", "Detected at node", "Node:", "<stack traces unavailable>")
URL = re.compile(r"[a-z][a-z\d+.-]+:/", re.IGNORECASE)  # gs://bucket/run, and gs:/bucket/run, as pathlib writes it
LONGEST_PATH, LONGEST_NAME = 4000, 255  # bytes; Linux takes paths of 4095
DEEPEST_PATH = 400  # nested folders; Python's own limit is 1000 nested calls


class UserError(Exception):
    """A mistake in a request of the user. The text names the received and the expected value, and the fix.

    `train.py` and the scripts print the text as one line and exit with `exit_code`. Every other exception is a defect
    of the program and keeps its traceback.

    Attributes:
        exit_code: Exit code of the process.
    """

    exit_code: int = 2


class MissingPackageError(UserError):
    """An optional package is not installed. The text names it."""


class TrainingError(UserError):
    """Training failed although the request was right; for example, a loss is not a number."""

    exit_code = 1


class Stopped(UserError):
    """A signal stopped the training. The exit code is 128 + the number of the signal, as in a shell."""

    def __init__(self, signum: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = 128 + signum


def printable(text: object) -> str:
    """Return a text as one line that is harmless to a terminal.

    Control characters and bytes that are not text become escapes. File names may contain almost any byte.
    """
    text = str(text)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def check_path(path: object, flag: str = "") -> None:
    """Raise `UserError` if the value of a flag can't be the path of a file on this machine."""
    if not isinstance(path, (str, os.PathLike)):
        raise UserError(f"{flag} {path!r:.80}: expected a path".lstrip())
    text = os.fspath(path)
    names = text.encode(errors="replace").split(b"/")
    if not text:
        problem = "expected a text that is not empty (is a shell variable not set?)"
    elif URL.match(text):
        problem = "a URL; expected a path on this machine: mount the storage, or copy the files with its own tool"
    elif sum(map(len, names)) > LONGEST_PATH or len(names) > DEEPEST_PATH or "\0" in text:
        problem = f"no path; expected at most {LONGEST_PATH} bytes, {DEEPEST_PATH} nested folders and no null byte"
    elif max(map(len, names)) > LONGEST_NAME:
        problem = f"no path; expected names of at most {LONGEST_NAME} bytes between the slashes"
    elif text.startswith("~") and os.path.expanduser(text) == text:
        problem = "there is no such user; expected ~/, ~USER/, or ./~ for a name that begins so"
    else:
        return
    raise UserError(f"{flag} {printable(text[:80]) or repr('')}{'...' * (len(text) > 80)}: {problem}".lstrip())


# What is expected by the number of an `OSError`. An error of this kind is no defect, even if it names no file.
EXPECTED = {
    errno.ENAMETOOLONG: "a shorter name",
    errno.ENOSPC: "free space on the disk",
    errno.EDQUOT: "free space within the disk quota",
    errno.EFBIG: "a limit of the file size that is larger, see ulimit -f",
    errno.EMFILE: "a limit of the open files that is larger, see ulimit -n",
    errno.EIO: "a disk that works",
}


def explain_file_error(error: BaseException) -> str | None:
    """Return one line about an `OSError` that a path or the disk causes; `None` for others, which are defects."""
    if not isinstance(error, OSError) or not (error.filename or error.errno in EXPECTED):
        return None
    name = "" if error.filename is None else f"{printable(error.filename)}: "
    expected = EXPECTED.get(error.errno or 0, "files and folders that exist and can be used")
    return f"{name}{printable(error.strerror or error)}; expected {expected}"


def similar_folder(folder: pathlib.Path, content: str) -> str:
    """Return " (do you mean ...?)" with a folder of a similar name that has this content; "" if there is none."""
    names = [] if folder.exists() else [path.parent.name for path in folder.parent.glob(f"*/{content}")]
    similar = difflib.get_close_matches(folder.name, names, 1)
    return f" (do you mean {printable(folder.parent / similar[0])}?)" if similar else ""


def describe_missing(path: str | os.PathLike[str], kind: str = "folder") -> str:
    """Return what is at a path that is no folder (or no file or folder, if this is its `kind`), in words for an error.

    It is a file, a link that leads nowhere, or missing. Names the first part of the path that is not there, and what
    looks like it.
    """
    try:
        os.stat(path)
        return "a file"
    except OSError as error:
        reason = error
    whole = pathlib.Path(os.path.abspath(path))
    missing = next(part for part in (*reversed(whole.parents), whole) if not os.path.exists(part))
    parent, text = printable(missing.parent), f"no such {kind}"
    if missing.is_symlink():
        target = printable(os.readlink(missing))
        loop = ", and leads back to itself" if reason.errno == errno.ELOOP else ", which does not exist"
        text = f"a link to {target}{loop}"
    elif reason.errno not in (errno.ENOENT, errno.ENOTDIR):  # such as a mount whose server is gone
        text = f"{text} ({reason.strerror})"
    elif missing.parent.is_dir():
        names = os.listdir(missing.parent)
        if similar := [name for name in names if name.lower() == missing.name.lower()]:
            text = f"{text}, but {printable(similar[0])} is there"
        elif not names:
            text = f"{text}, because {parent} is empty (is it mounted?)"
    return text if missing == whole else f"{printable(missing)}: {text}"


def counted(number: int, noun: str) -> str:
    """Return "1 image" or "2 images"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, without TensorFlow's internals; if it is empty, the type.

    The message of an error in a `tf.function` begins with the places in the code where its operations were made.
    """
    lines = str(error).strip().splitlines() or [""]
    if lines[0].startswith("Graph execution error"):
        lines = [line for line in lines[1:] if line.strip() and not line.startswith(PLACES)] or lines
    return INTERNALS.sub("", lines[0]).strip() or type(error).__name__
