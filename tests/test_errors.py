import signal
import sys

import pytest

from cyclegan import errors
from cyclegan.errors import Stopped, TrainingError, UserError, printable


@pytest.mark.parametrize(
    "text, shown",
    [
        ("zebra 1.png", "zebra 1.png"),
        ("é 馬 'quoted' \"twice\" back\\slash", "é 馬 'quoted' \"twice\" back\\slash"),
        ("", ""),
        ("two\nlines\r\n", "two\\nlines\\r\\n"),
        ("\x1b[31mred\x07\x7f", "\\x1b[31mred\\x07\\x7f"),
        ("\x9b31m", "\\x9b31m"),  # an escape sequence too, on some terminals
        (b"caf\xe9".decode(errors="surrogateescape"), "caf\\udce9"),
        ("photo\u202egnp.exe", "photo\\u202egnp.exe"),  # would be shown backwards
        ("line\u2028line", "line\\u2028line"),
        ("馬\n", "馬\\n"),
    ],
)
def test_what_is_printed_is_one_harmless_line(text, shown):
    assert printable(text) == shown
    assert shown.isprintable() and shown.encode().decode() == shown  # so that printing it can't fail either


def test_anything_can_be_made_printable():
    assert printable(ValueError("a\tb")) == "a\\tb" and printable(3) == "3"


def test_exit_codes_tell_mistakes_from_failed_training_and_from_signals():
    assert UserError("").exit_code == 2 and TrainingError("").exit_code == 1
    assert Stopped(signal.SIGTERM, "").exit_code == 143 and Stopped(signal.SIGINT, "").exit_code == 130
    assert UserError.exit_code == 2  # an instance's own code changes no other's


def test_being_stopped_is_said_in_one_line_like_a_mistake():
    stopped = Stopped(signal.SIGTERM, "stopped by SIGTERM")
    assert isinstance(stopped, UserError) and str(stopped) == "stopped by SIGTERM"


@pytest.mark.parametrize(
    "happens, code, said",
    [
        (UserError("no run\nhere"), 2, "score.py: no run\\nhere\n"),
        (TrainingError("not a number"), 1, "score.py: not a number\n"),
        (ModuleNotFoundError("No module named 'PIL'"), 2, f"score.py: No module named 'PIL': {errors.ENVIRONMENT}\n"),
        (KeyboardInterrupt(), 130, "\nscore.py: nothing was written\n"),
        (0, 0, ""),
        (1, 1, ""),
        (None, 0, ""),
        ({"a figure": 1.5}, 0, ""),
    ],
)
def test_what_ends_a_script_is_one_line_and_a_code(happens, code, said, monkeypatch, capsys):
    def main():
        if isinstance(happens, BaseException):
            raise happens
        return happens

    monkeypatch.setattr(sys, "argv", ["scripts/score.py"])
    assert errors.run(main, "nothing was written") == code
    assert capsys.readouterr() == ("", said)


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        errors.run(lambda: 1 / 0)
