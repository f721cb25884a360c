import pytest

from cyclegan.config.command_line import parse_args
from cyclegan.errors import UserError
from tests.config.helpers import flat, refusal_of


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--keep 0", "--keep 0: expected at least 1"),
        ("--checkpoint_minutes -0.5", "--checkpoint_minutes -0.5: expected a finite number of at least 0"),
        ("--checkpoint_minutes nan", "--checkpoint_minutes nan: expected a finite number of at least 0"),
        ("--checkpoint_minutes inf", "--checkpoint_minutes inf: expected a finite number of at least 0"),
        ("--log_every 0", "--log_every 0: expected at least 1"),
    ],
)
def test_impossible_values_are_refused(flags, text):
    assert text in refusal_of(flags)


@pytest.mark.parametrize("verbose", ["0", "1", "2"])
def test_every_verbosity_is_accepted(verbose):
    assert flat(parse_args(["--verbose", verbose])).verbose == int(verbose)


def test_an_empty_output_dir_is_refused():
    with pytest.raises(UserError, match="--output_dir '': expected"):
        parse_args(["--output_dir", ""])


@pytest.mark.parametrize(
    "uri",
    [
        *("http://me:word@host:5000", "HTTPS://word@host", "http://me:wo/rd@host", "postgresql://me:word@host/db"),
        *("http:me:word@host", "me:word@host", "http://host/?api_key=word", "mysql://host/db?user=me&password=word"),
    ],
)
def test_a_tracker_uri_with_a_secret_is_refused_and_not_repeated(uri):
    text = refusal_of(f"--mlflow {uri}")
    assert "--mlflow: the URI has a user, a password or a token" in text and "word@" not in text and "=word" not in text


@pytest.mark.parametrize(
    "uri",
    ["http://host:5000/path", "file:/data/a@b", "sqlite:////data/a@b.db", "/data/a@b", "mlruns", "databricks://me"],
)
def test_other_tracker_uris_are_accepted(uri):
    assert flat(parse_args(["--mlflow", uri])).mlflow == uri


def test_trackers_need_names():
    assert "--wandb '': expected a name" in refusal_of("--wandb=")
    assert "--mlflow '': expected a name" in refusal_of("--mlflow=")
