"""What the program says when it is the user, the data or the machine that has to change, not the code."""


class UserError(Exception):
    """A mistake in what was asked for. The text says what was received, what was expected and what to do.

    `train.py` and the scripts print it as one line and exit with `exit_code`; every other exception is a bug of ours and keeps its
    traceback.
    """

    exit_code = 2


class TrainingError(UserError):
    """Training itself went wrong (not a number, say), although everything that was asked for was right."""

    exit_code = 1
