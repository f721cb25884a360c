import dataclasses
import json
import os
import pathlib
import re
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cyclegan
from cyclegan.config import Config, serialization
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
DEFAULT = Config.from_settings()
SECTION_OF = {name: section for section, values in dataclasses.asdict(DEFAULT).items() for name in values}


def saved(**values):
    """Return a config.json in which some settings have other values; unknown names become settings of the run."""
    sections = dataclasses.asdict(DEFAULT)
    for name, value in values.items():
        sections[SECTION_OF.get(name, "run")][name] = value
    facts = {"imported": False}
    return {"format": serialization.FORMAT, "config": sections, "stack": {"keras": 2}, "data": {}, **facts}


def outcome(content):
    """Load a config.json; return the configuration or the text of its refusal."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        try:
            return serialization.load(path).config
        except UserError as error:
            return str(error)


def test_save_and_load_round_trip(tmp_path):
    config = Config.from_settings(dataset="stripes", lr=1.0, data_dir="é\n\"'", objective="cut", adversarial="wgan-gp")
    serialization.save(tmp_path / "config.json", config, {"keras": 2}, {"trainA": "3 images"})
    assert serialization.load(tmp_path / "config.json") == (config, {"keras": 2}, {"trainA": "3 images"}, False)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert json.loads((tmp_path / "config.json").read_text())["version"] == cyclegan.__version__


@pytest.mark.parametrize(
    "dataset, saved",
    [("photos", "/data/photos"), ("~/photos", "/home/me/photos"), ("scenes", "scenes"), ("cycle_gan/a", "cycle_gan/a")],
)
def test_the_saved_dataset_is_found_from_any_folder(monkeypatch, dataset, saved):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr(os, "getcwd", lambda: "/data")
    assert serialization.with_absolute_paths(Config.from_settings(dataset=dataset)).data.dataset == saved


@pytest.mark.parametrize("data, imported", [({}, False), ({}, True), ({"trainA": "3 images"}, True)])
def test_imported_runs_are_marked(tmp_path, data, imported):
    serialization.save(tmp_path / "config.json", DEFAULT, {"keras": 2}, data, imported)
    assert serialization.load(tmp_path / "config.json").imported


def test_a_run_of_another_version_is_refused_in_one_line():
    old = saved(lambda_gp=10.0, cache_gb=None)
    del old["format"]
    assert "config.json: version unknown wrote it in format 1; expected format 2" in outcome(old)
    assert "version 9.0 wrote it in format 3" in outcome({**saved(), "format": 3, "version": "9.0"})


@pytest.mark.parametrize(
    "values, text",
    [
        ({"cutmix": 50}, "cutmix: no such setting"),
        ({"__class__": "os.system"}, "__class__: no such setting"),
        ({"lambda_gp": 10.0}, "config.json: --lambda_gp belongs to --adversarial wgan-gp"),
        ({"objective": "gan"}, "config.json: --objective gan: expected one of cyclegan, cut, fastcut"),
        ({"objective": 3}, "config.json: --objective 3: expected one of cyclegan, cut, fastcut"),
        ({"epochs": "__import__('os')"}, "--epochs \"__import__('os')\": expected a whole number"),
        ({"data_dir": ["x" * 1000]}, f"--data_dir ['{'x' * 78}: expected a text"),
        ({"epochs": -1}, "config.json: --epochs -1: expected at least 1"),
        ({"norm": "blue"}, "--norm blue: expected one of instance, batch, none"),
        ({"norm": ""}, "--norm '': expected one of"),
        ({"epochs": 2.5}, "--epochs 2.5: expected a whole number"),
        ({"lr": True}, "--lr True: expected a number"),
        ({"lr": 0}, "--lr 0: expected a finite number, above 0"),
        ({"dropout": 1.0}, "--dropout 1.0: expected a finite number, at least 0 and less than 1"),
        ({"verbose": 3}, "--verbose 3: expected one of 0, 1, 2"),
        ({"step_timeout": 0}, "--step_timeout 0: expected at least 1 second"),
        ({"epochs": 10**400}, "expected at most 4294967295"),
    ],
)
def test_foreign_settings_are_refused(values, text):
    assert text in outcome(saved(**values))


def test_whole_numbers_are_floats_and_missing_settings_get_their_defaults():
    assert outcome(saved(lambda_cycle=3)) == DEFAULT.replace(lambda_cycle=3)
    content = {**saved(), "config": {"data": {"dataset": "mine"}, "run": {"output_dir": "runs/horse2zebra"}}}
    assert outcome(content) == DEFAULT.replace(dataset="mine")


@pytest.mark.parametrize(
    "content",
    [
        *({**saved(), "config": [1]}, {**saved(), "config": {"run": [1]}}, [], None),
        *(b"", b"\xff{", b"\x80\x04\x95", b"[" * 100_000, b'{"config":' * 100_000),
        json.dumps(saved(lr=0.0)).replace("0.0,", "1e999,").encode(),
    ],
    ids=lambda content: ascii(content)[:50],
)
def test_invalid_files_are_refused(content):
    assert not re.search("Error|Expecting", outcome(content))


@FUZZ
@given(st.sampled_from(sorted(SECTION_OF)), JSON)
def test_any_value_of_a_setting_loads_or_is_refused(name, value):
    outcome(saved(**{name: value}))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="config.json: no such file; expected the config.json of a run"):
        serialization.load(tmp_path / "config.json")
