import pytest

import cyclegan
from cyclegan.config.argument_parser import ArgumentParser


@pytest.mark.parametrize(
    "argument, code, out, err",
    [
        ("--sise", 2, "", "draw: unrecognized arguments: --sise (do you mean --size? --help lists the flags)\n"),
        ("--x", 2, "", "draw: unrecognized arguments: --x (--help lists the flags)\n"),
        ("--siz", 2, "", "draw: unrecognized arguments: --siz (do you mean --size? --help lists the flags)\n"),
        ("--size", 2, "", "draw: argument --size: expected one argument (--help lists the flags)\n"),
        ("--version", 0, f"draw {cyclegan.__version__}\n", ""),
    ],
)
def test_a_mistake_is_one_line(argument, code, out, err, capsys):
    parser = ArgumentParser(prog="draw")
    parser.add_argument("--size")
    with pytest.raises(SystemExit) as end:
        parser.parse_args([argument])
    assert (end.value.code, *capsys.readouterr()) == (code, out, err)
