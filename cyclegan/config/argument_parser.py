"""The parser of the command lines of all programs."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import Any, NoReturn

import cyclegan


class ArgumentParser(argparse.ArgumentParser):
    """A parser with the flag --version, whose errors are one line with the flag that an unknown one may mean."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)
        self.add_argument("--version", action="version", version=f"%(prog)s {cyclegan.__version__}")

    def error(self, message: str) -> NoReturn:
        """Print a message about the command line, and exit with code 2."""
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        flags = [flag for action in self._actions for flag in action.option_strings]
        similar = difflib.get_close_matches(unknown[1], flags, 1) if unknown else []
        hint = f"do you mean {similar[0]}? " if similar else ""
        self.exit(2, f"{self.prog}: {message} ({hint}--help lists the flags)\n")
