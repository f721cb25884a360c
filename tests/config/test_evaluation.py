import pytest

from tests.config.helpers import refusal_of


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--evaluate_every -1", "--evaluate_every -1: expected at least 0"),
        ("--evaluate_every 1 --patience -1", "--patience -1: expected at least 0"),
        ("--evaluate_features=", "--evaluate_features '': expected random, inception or a file"),
    ],
)
def test_impossible_values_are_refused(flags, text):
    assert text in refusal_of(flags)
