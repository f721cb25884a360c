"""What the command lines of the tutorials have in common."""

import argparse


def whole(least, most=10**6):
    """A type for argparse: whole numbers in a range."""

    def number(text):
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from {least} to {most}")
        return int(text)

    return number


def parser(description, epochs, batch_size):
    """A parser of --devices, --epochs and --batch_size, with these defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--devices", type=whole(1), help="first N GPUs, or N logical CPU devices (default: all GPUs)")
    parser.add_argument("--epochs", type=whole(1), default=epochs, help="(default: %(default)s)")
    parser.add_argument(
        "--batch_size", type=whole(1), default=batch_size, help="examples per replica and step (default: %(default)s)"
    )
    return parser
