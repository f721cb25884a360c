import pytest

from cyclegan.errors import first_line, printable


@pytest.mark.parametrize(
    "text, shown",
    [
        ("zebra 1.png", "zebra 1.png"),
        ("é 馬 'quoted' \"twice\" back\\slash", "é 馬 'quoted' \"twice\" back\\slash"),
        ("two\nlines\r\n", "two\\nlines\\r\\n"),
        ("\x1b[31mred\x07\x7f", "\\x1b[31mred\\x07\\x7f"),
        (b"caf\xe9".decode(errors="surrogateescape"), "caf\\udce9"),
        ("photo\u202egnp.exe", "photo\\u202egnp.exe"),  # would reverse the text after it
        ("line\u2028line", "line\\u2028line"),
    ],
)
def test_printable_text_is_one_harmless_line(text, shown):
    assert printable(text) == shown
    assert shown.isprintable() and shown.encode().decode() == shown  # printing it can't fail


@pytest.mark.parametrize(
    "error, line",
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("\n  one  \ntwo"), "one"),
        (ValueError(), "ValueError"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (RuntimeError("{{function_node __wrapped__MatMul}} no kernel [Op:MatMul] name: "), "no kernel"),
        (RuntimeError("{{function_node step}} {{node sum}} out of range\n\t [[sum]]"), "out of range"),
        (RuntimeError("{{node sum}}"), "RuntimeError"),
    ],
)
def test_first_line_of_an_error_names_no_internals_and_is_never_empty(error, line):
    assert first_line(error) == line
