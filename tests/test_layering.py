"""Check the table of folders: which part of the package may import which."""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "cyclegan"
# The parts of the package, lowest first, and the parts that each may import. `a.b` allows one module of folder `a`.
MAY_IMPORT = {
    "errors": set(),
    "whole_file": {"errors"},
    "lazy_tensorflow": {"errors"},
    "terminal": {"errors", "lazy_tensorflow"},
    "config": {"errors", "terminal", "whole_file"},
    "images": {"errors", "whole_file", "config"},
    "distribution": {"errors", "lazy_tensorflow", "terminal", "config"},
    "data": {"errors", "lazy_tensorflow", "terminal", "config", "images"},
    "networks": {"errors", "lazy_tensorflow", "config", "distribution.hardware"},
    "methods": {"lazy_tensorflow", "config", "networks"},
    "run": {"errors", "whole_file", "terminal", "config", "distribution"},
    "inspection": {"errors", "terminal", "config", "images", "data", "run"},
    "inference": {
        *("errors", "whole_file", "lazy_tensorflow", "terminal", "config", "images", "distribution", "data"),
        *("networks", "run"),
    },
    "interop": {"errors", "terminal"},
    "evaluation": {
        *("errors", "terminal", "config", "images", "data", "networks.compat", "run", "inference", "interop"),
    },
    "training": {
        *("errors", "lazy_tensorflow", "terminal", "config", "images", "distribution", "data", "networks", "methods"),
        *("run", "inspection", "evaluation"),
    },
    "export": {"errors", "whole_file", "lazy_tensorflow", "terminal", "config", "networks", "run", "inference"},
}
MAY_IMPORT["cli"] = set(MAY_IMPORT)
MAY_IMPORT["api"] = {"errors", "terminal", "config", "cli", "evaluation", "inference", "run", "training"}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def part_of(path):
    """Return the folder of a module, or its own name if it lies beside the folders."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_modules(path):
    """Return the modules of the package that a file imports anywhere, as "part" or "part.module"."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {".".join(name.split(".")[1:3]) for name in names if name.startswith("cyclegan.")}


def test_the_table_points_downwards():
    order = list(MAY_IMPORT)
    for part, allowed in MAY_IMPORT.items():
        assert all(order.index(other.split(".")[0]) < order.index(part) for other in allowed), part


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_parts_below_its_own(path):
    allowed = MAY_IMPORT[part_of(path)] | {part_of(path)}
    assert not {name for name in imported_modules(path) if not {name, name.split(".")[0]} & allowed}
