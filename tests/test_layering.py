"""Holds who may import whom in the package, see the tour of the code in README.md."""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "cyclegan"
EVERYONE = {"errors"}  # exceptions that are shown to the user
MAY_IMPORT = {
    "errors": set(),
    "quiet": set(),
    "flags": set(),
    "config": {"flags"},
    "devices": set(),
    "layers": {"devices"},
    "losses": set(),
    "progress": set(),
    "signals": set(),
    "guard": set(),
    "journal": set(),
    "saving": set(),
    "distribute": set(),
    "cluster": set(),
    "meeting": set(),
    "workers": {"cluster", "devices", "distribute", "meeting"},
    "overview": set(),
    "optimizers": set(),
    "augment": set(),
    "pool": set(),
    "schedule": set(),
    "speed": {"devices"},
    "checkpoint": {"progress"},
    "metrics": set(),
    "features": set(),
    "stripes": set(),
    "data": set(),
    "cache": set(),
    "records": set(),
    "decoding": {"records"},
    "memory": set(),
    "pictures": {"decoding", "memory"},
    "preprocess": set(),
    "torch_file": set(),
    "torch_weights": set(),
    "models": {"layers"},
    "prepared": {"records", "stripes"},
    "sources": {"cache", "memory", "pictures", "prepared", "preprocess"},
    "run_folder": {"config", "schedule"},
    "page": set(),
    "samples": {"page"},
    "summaries": {"journal", "samples"},
    "gan": {"augment", "distribute", "layers", "models", "losses", "optimizers", "pool"},
    "portable": {"layers"},
    "export": {"pictures", "portable", "quiet", "stripes", "prepared"},
    "trained": {"checkpoint", "config", "distribute", "layers", "models", "progress", "run_folder"},
    "encoding": {"decoding"},
    "inference": {"decoding", "gan", "preprocess", "trained"},
    "translation": {"decoding", "distribute", "encoding", "gan", "inference", "page", "pictures"},
    "evaluate": {"data", "decoding", "features", "gan", "metrics"},
    "loop": {"gan", "guard", "optimizers", "progress", "saving", "signals", "speed"},
}
NO_TENSORFLOW = {
    "errors",
    "quiet",
    "flags",
    "config",
    "schedule",
    "run_folder",
    "metrics",
    "cache",
    "records",
    "decoding",
    "encoding",
    "pictures",
    "preprocess",
    "sources",
    "meeting",
    "memory",
    "overview",
    "progress",
    "signals",
    "guard",
    "journal",
    "torch_file",
    "torch_weights",
    "page",
    "samples",
}


def imports(path):
    """(modules of the package, other top-level modules) that a file imports, anywhere in it."""
    own, other = set(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            (own if parts[0] == "cyclegan" else other).add(parts[1] if parts[0] == "cyclegan" else parts[0])
    return own, other


def test_every_module_has_its_place():
    assert {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"} == set(MAY_IMPORT)


@pytest.mark.parametrize("module", sorted(MAY_IMPORT))
def test_a_module_imports_only_what_lies_below_it(module):
    own, other = imports(PACKAGE / f"{module}.py")
    assert own <= MAY_IMPORT[module] | EVERYONE
    assert not {"train", "argparse"} & other or module == "flags"
    if module in NO_TENSORFLOW:
        assert not {"tensorflow", "tensorflow_datasets", "keras"} & other


@pytest.mark.parametrize("module", sorted(MAY_IMPORT))
def test_only_layers_knows_which_stack_this_is(module):
    text = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    assert module == "layers" or ("tensorflow_addons" not in text and "tf_keras" not in text)


def test_train_py_is_a_table_of_contents():
    assert len((PACKAGE.parent / "train.py").read_text(encoding="utf-8").splitlines()) <= 150
