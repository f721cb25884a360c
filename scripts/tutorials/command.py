"""Command line that the tutorials share."""

from __future__ import annotations

from cyclegan.config.command_line import ArgumentParser, count


def parser(description: str, epochs: int, batch_size: int) -> ArgumentParser:
    """Return a parser of --devices, --epochs and --batch_size with the given defaults."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--devices", type=count, help="first N GPUs, or N logical CPU devices (default: all GPUs)")
    parser.add_argument("--epochs", type=count, default=epochs, help="(default: %(default)s)")
    text = "examples per replica and step (default: %(default)s)"
    parser.add_argument("--batch_size", type=count, default=batch_size, help=text)
    return parser
