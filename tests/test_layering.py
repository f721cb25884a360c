"""Check the table of folders: which part of the package may import which; and that the tests mirror the package."""

import ast
import pathlib
import re

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "cyclegan"
# The parts of the package, lowest first, and what each may import. `a.b` allows one module of folder `a`. Sections of the
# configuration are types of arguments, so most parts may import `config`, which imports none of them.
MAY_IMPORT = {
    "errors": set(),
    "program_name": set(),
    "whole_file": set(),
    "stderr_filter": set(),
    "interrupt": set(),
    "supervisor": {"errors"},
    "streams": set(),
    "temporary_folder": {"errors"},
    "console": {"errors", "program_name", "stderr_filter", "streams", "temporary_folder"},
    "config": {"errors", "program_name", "whole_file"},
    "images": {"errors", "whole_file", "config"},
    "distribution": {"errors", "console", "config"},
    "data": {"errors", "console", "config", "images"},
    "networks": {"errors", "config", "distribution.hardware"},
    "checkpointing": {"errors", "whole_file", "config", "distribution"},
    "reporting": {"errors", "whole_file", "console", "config", "images", "distribution.hardware"},
    "evaluation": {"errors", "config", "images"},
    "inspection": {"errors", "program_name", "config", "images", "data", "reporting"},
    "training": {
        *("errors", "console", "config", "images", "distribution", "data", "networks", "checkpointing", "reporting"),
        "inspection",
    },
    "inference": {
        *("errors", "config", "images", "distribution", "data", "networks", "checkpointing", "reporting", "evaluation"),
    },
    "export": {"errors", "program_name", "console", "networks"},
    "interop": {"errors", "config", "networks"},
    "benchmarking": {
        *("errors", "whole_file", "config", "images", "distribution", "data", "networks", "reporting", "training"),
    },
}
MAY_IMPORT["commands"] = set(MAY_IMPORT)
NO_TENSORFLOW = {
    "errors",
    "program_name",
    "whole_file",
    "stderr_filter",
    "interrupt",
    "supervisor",
    "streams",
    "temporary_folder",
    "console",
    "config",
    "images",
}  # these parts import no TensorFlow
ONLY_COMPAT = ("tensorflow_addons", "tf_keras")  # names that only `networks.compat` may know
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
TESTS = PACKAGE.parent / "tests"
WITHOUT_TESTS = {  # modules in which nothing can fail by itself
    "config/directions.py": "a constant",
    "images/image_array.py": "a protocol, which type checkers read",
    "training/callbacks/base.py": "records, and methods that do nothing; the tests of all callbacks run them",
    "training/metric_names.py": "constants",
}


def part_of(path):
    """Return the folder of a module, or its own name if it lies beside the folders."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_names(path):
    """Return the dotted names that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def imported_parts(path):
    """Return the (part, module) pairs of the package that a file imports."""
    own = [name.split(".")[1:] for name in imported_names(path) if name.startswith("cyclegan.")]
    return {(parts[0], ".".join(parts[:2])) for parts in own}


def test_the_table_names_every_part():
    parts = {part_of(path) for path in MODULES}
    assert parts == set(MAY_IMPORT)


def test_the_table_points_downwards():
    order = list(MAY_IMPORT)
    for part, allowed in MAY_IMPORT.items():
        assert all(order.index(other.split(".")[0]) < order.index(part) for other in allowed), part


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_parts_below_its_own(path):
    own = part_of(path)
    wrong = {module for part, module in imported_parts(path) if part != own and not {part, module} & MAY_IMPORT[own]}
    assert not wrong


@pytest.mark.parametrize("part", list(MAY_IMPORT))
def test_modules_of_a_part_do_not_import_in_circles(part):
    modules = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in MODULES if part_of(path) == part
    }
    imports = {}
    for name, path in modules.items():
        dotted = [imported.split(".", 1)[-1] for imported in imported_names(path)]
        imports[name] = {each for part in dotted for each in (part, part.rpartition(".")[0]) if each in modules} - {
            name
        }
    while free := {name for name, others in imports.items() if not others}:
        imports = {name: others - free for name, others in imports.items() if name not in free}
    assert not imports, f"these import each other: {sorted(imports)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_forbidden_imports_are_absent(path):
    outside = {name.split(".")[0] for name in imported_names(path)}
    assert "train" not in outside
    if part_of(path) in NO_TENSORFLOW:
        assert not {"tensorflow", "tensorflow_datasets", "keras"} & outside
    if path.stem != "compat":
        assert not any(name in path.read_text(encoding="utf-8") for name in ONLY_COMPAT)


def test_the_train_command_is_short():
    assert len((PACKAGE / "commands" / "train.py").read_text(encoding="utf-8").splitlines()) <= 70


def test_each_module_has_a_test_file():
    untested = set()
    for path in MODULES:
        module = path.relative_to(PACKAGE)
        tests = TESTS / module.with_name(f"test_{module.name}")
        if not (tests.exists() and re.search("^def test_", tests.read_text(encoding="utf-8"), re.MULTILINE)):
            untested.add(module.as_posix())
    assert untested == set(WITHOUT_TESTS)
