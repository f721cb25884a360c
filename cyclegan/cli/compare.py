"""Compare runs: `cyclegan-compare runs/a runs/b`.

Prints the settings that differ, and the last and the best metrics of each run, and draws all curves into one PNG.
"""

from __future__ import annotations

from collections.abc import Sequence

from cyclegan import terminal, whole_file
from cyclegan.config.command_line import ArgumentParser
from cyclegan.errors import UserError
from cyclegan.run import comparison


def main(argv: Sequence[str] | None = None) -> None:
    """Print the comparison, and write the curves.

    Raises:
        UserError: A folder holds no run, no run has finished an epoch, or the PNG can't be written.
    """
    parser = ArgumentParser(
        description="Compare runs: settings that differ, last and best metrics side by side, and their curves.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run, which may still be training")
    parser.add_argument(
        "--png",
        default="comparison.png",
        metavar="FILE",
        help="file for the curves, replaced (default: comparison.png)",
    )
    arguments = parser.parse_args(argv)
    runs = comparison.read(arguments.runs)
    print(*comparison.table(runs), sep="\n", flush=True)
    try:
        whole_file.write(arguments.png, comparison.curves_png(runs))
    except OSError as error:
        raise UserError(f"--png {arguments.png}: {error}; expected a file in a writable folder") from error
    print(f"Curves: {arguments.png}")


def program() -> int:
    """Run the command in a terminal; return the exit code."""
    return terminal.run(main, "stopped")
