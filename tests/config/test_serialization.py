import dataclasses
import json
import os
import pathlib
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cyclegan
from cyclegan.config import Config, serialization
from cyclegan.config.command_line import parse_args
from cyclegan.config.config import SECTION_OF, SECTIONS
from cyclegan.config.fields import field_types
from cyclegan.errors import UserError

FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([10**400, "~\0", "~\ud800"])
    | st.text(max_size=8),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=8), values, max_size=4),
    max_leaves=8,
)


def test_save_and_load_round_trip(tmp_path):
    config = parse_args(["--dataset", "stripes", "--lr", "1", "--data_dir", "é\n\"'"])
    serialization.save(tmp_path / "config.json", config, {"keras": 2}, {"trainA": "3 images"})
    saved = serialization.load(tmp_path / "config.json")
    assert saved == (config, {"keras": 2}, {"trainA": "3 images"}, False, False)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize("data, imported", [({}, False), ({}, True), ({"trainA": "3 images"}, True)])
def test_imported_runs_are_marked(tmp_path, data, imported):
    serialization.save(tmp_path / "config.json", Config(), {"keras": 2}, data, imported)
    assert serialization.load(tmp_path / "config.json").imported


def test_the_version_is_kept_and_refuses_nothing(tmp_path):
    path = tmp_path / "config.json"
    serialization.save(path, Config(), {}, {})
    content = json.loads(path.read_text())
    assert content["version"] == cyclegan.__version__
    for other in ({**content, "version": "99.0"}, {name: content[name] for name in content if name != "version"}):
        path.write_text(json.dumps(other))
        assert serialization.load(path).config == Config()


def test_files_of_older_versions_lack_facts(tmp_path):
    path = tmp_path / "config.json"
    serialization.save(path, Config(), {"keras": 2}, {"trainA": "3 images"}, True, True)
    content = json.loads(path.read_text())
    assert serialization.load(path)[-2:] == (content.pop("imported"), content.pop("has_checkpoint")) == (True, True)
    path.write_text(json.dumps(content))
    assert serialization.load(path)[-2:] == (False, False)


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda saved: saved.update(imported="yes"), "a part of it has the wrong type"),
        (lambda saved: saved.update(has_checkpoint=1), "a part of it has the wrong type"),
        (lambda saved: saved["config"]["run"].update(cutmix=50), "unknown fields 'cutmix'"),
        (
            lambda saved: saved["config"]["optimization"].update(epochs="__import__('os')"),
            "epochs is \"__import__('os')\", expected int",
        ),
        (lambda saved: saved["config"]["optimization"].update(epochs=True), "epochs is True, expected int"),
        (
            lambda saved: saved["config"]["optimization"].update(epochs=-1),
            "config.json: --epochs -1: expected at least 1",
        ),
        (lambda saved: saved["config"]["optimization"].update(epochs=10**400), "expected at most 4294967295"),
        (lambda saved: saved["config"]["optimization"].update(lr=10**400), "expected at most 4294967295"),
        (lambda saved: saved["config"]["networks"].update(filters=10**9), "--filters 1000000000: expected fewer"),
        (lambda saved: saved["config"]["data"].update(channels_y=10**9), "expected at most 4096"),
        (lambda saved: saved["config"]["data"].update(image_size=2**30), "expected at most 65536 pixels"),
        (lambda saved: saved.pop("config"), "can't be read as the configuration of a run"),
        (lambda saved: saved.update(config=[1]), "can't be read as the configuration of a run"),
    ],
)
def test_foreign_config_is_refused(tmp_path, change, text):
    path = tmp_path / "config.json"
    serialization.save(path, Config.from_settings(), {}, {})
    saved = json.loads(path.read_text())
    change(saved)
    path.write_text(json.dumps(saved))
    with pytest.raises(UserError) as error:
        serialization.load(path)
    assert text in str(error.value)


def test_missing_or_invalid_json_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        serialization.load(tmp_path / "config.json")
    (tmp_path / "config.json").write_bytes(b"\xff{")
    with pytest.raises(UserError, match="can't be read"):
        serialization.load(tmp_path / "config.json")


def accepted_or_refused(content):
    """Load a config.json of these bytes; fail on any outcome but a Config or a UserError."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_bytes(content)
        try:
            config, stack, data, *facts = serialization.load(path)
        except UserError as error:
            return str(error)
    assert isinstance(config, Config) and type(stack) is type(data) is dict and {*map(type, facts)} == {bool}
    return config


def saved(**values):
    """Return a config.json in which some settings have other values; unknown names become settings of the run."""
    sections = dataclasses.asdict(Config())
    for name, value in values.items():
        sections[SECTION_OF.get(name, "run")][name] = value
    return {"config": sections, "stack": {"keras": 2}, "data": {}}


def mutated(**values):
    """Return the outcome of loading such a file."""
    return accepted_or_refused(json.dumps(saved(**values)).encode())


@FUZZ
@given(JSON)
def test_any_json_loads_or_is_refused(value):
    accepted_or_refused(json.dumps(value).encode())


@FUZZ
@given(st.binary(max_size=100))
def test_any_bytes_are_refused(content):
    assert isinstance(accepted_or_refused(content), str)


@FUZZ
@given(st.sampled_from(sorted(SECTION_OF)), JSON)
def test_any_value_of_a_setting_loads_or_is_refused(name, value):
    mutated(**{name: value})


@FUZZ
@given(st.sampled_from(["config", "stack", "data"]), JSON, st.booleans())
def test_any_part_loads_or_is_refused(part, value, without):
    content = saved()
    content[part] = value
    if without:
        del content[part]
    accepted_or_refused(json.dumps(content).encode())


@pytest.mark.parametrize("name", sorted(SECTION_OF))
def test_wrong_types_are_refused_by_name(name):
    kind = field_types(SECTIONS[SECTION_OF[name]])[name]
    wrong = [[1], {}] + ([1] if kind.base in (str, bool) else ["1", True]) + ([1.5] if kind.base is int else [])
    for value in wrong:
        assert f"config.json: {name} is {value!r}, expected {kind.base.__name__}" in mutated(**{name: value})
    if not kind.optional:
        assert f"config.json: {name} is None, expected {kind.base.__name__}" in mutated(**{name: None})
    for value in (None, 10**400, -(10**400), float("nan"), float("inf")):
        mutated(**{name: value})


@pytest.mark.parametrize("section", sorted(SECTIONS))
@pytest.mark.parametrize("value", [[1], None, 3, {"no_such_setting": 1}], ids=str)
def test_invalid_section_is_refused(section, value):
    content = saved()
    content["config"][section] = value
    assert isinstance(accepted_or_refused(json.dumps(content).encode()), str)


@pytest.mark.parametrize("value", ["~\0", "~\ud800", "\0", "\ud800", "x" * 5000])
@pytest.mark.parametrize("name", ["dataset", "data_dir", "output_dir"])
def test_impossible_folder_names_do_not_crash(name, value):
    mutated(**{name: value})


def test_missing_settings_get_their_defaults():
    content = {"config": {"data": {"dataset": "stripes"}}, "stack": {}, "data": {}}
    assert accepted_or_refused(json.dumps(content).encode()) == Config().replace(dataset="stripes")


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"config":' * 100_000,
        b'{"stack":{},"data":{},"config":{"optimization":{"epochs":' + b"[" * 900 + b"]" * 900 + b"}}}",
        b'{"stack":{},"data":{},"config":{"optimization":{"epochs":' + b"9" * 10_000 + b"}}}",
        b'{"stack":{},"data":{},"config":{"optimization":{"lr":1e999}}}',
        b'{"stack":{},"data":{},"config":{"optimization":{"lr":NaN}}}',
        b'{"stack":{},"data":{},"config":{"\xff":1}}',
        b'{"stack":{},"data":{},"config":[["epochs",3]]}',
        b'{"stack":[[1,2],["a",3]],"data":{},"config":{}}',
        b'{"stack":{},"data":[[1,2],["a",3]],"config":{}}',
        b"\xef\xbb\xbf{}",
        b"\x80\x04\x95",  # a pickle
        b"!!python/object/apply:os.system ['true']",
        b"",
    ],
    ids=lambda content: ascii(content[:50]),
)
def test_invalid_files_are_refused(content):
    assert isinstance(accepted_or_refused(content), str)


@pytest.mark.parametrize("name", ["__class__", "__reduce__", "!!python/object", "py/object", "_check", "from_args"])
def test_python_names_are_unknown_fields(name):
    text = mutated(**{name: "os.system"})
    assert f"unknown fields {name!r}: another version wrote it" in text


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(UserError, match="not a regular file"):
        serialization.load(tmp_path / "config.json")
