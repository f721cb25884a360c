"""What the program says when it is the user, the data or the machine that has to change, not the code."""

import os
import sys

ENVIRONMENT = "make the environment with scripts/setup.sh, then: . .venv/bin/activate"


class UserError(Exception):
    """A mistake in what was asked for. The text says what was received, what was expected and what to do.

    `train.py` and the scripts print it as one line and exit with `exit_code`; every other exception is a bug of ours and keeps its
    traceback.
    """

    exit_code = 2


class TrainingError(UserError):
    """Training itself went wrong (not a number, say), although everything that was asked for was right."""

    exit_code = 1


class Stopped(UserError):
    """Training was told to stop by a signal, and has. `exit_code` is 128 + its number, as in a shell."""

    def __init__(self, signum, text):
        super().__init__(text)
        self.exit_code = 128 + signum


def printable(text):
    """`text` as one line that does no harm to a terminal: control characters and bytes that are no text become escapes.

    Names of files may hold anything but a slash and a zero byte.
    """
    text = str(text)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def run(main, interrupted="stopped"):
    """Calls a script's `main`, and says in one line what went wrong.

    Args:
        main: a function without arguments; an int that it returns is the exit code.
        interrupted: what to say after Ctrl-C.

    Returns:
        the exit code.
    """
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
