"""Check that the paths, links and flags in the docs exist, and that each flag of the method is documented."""

from __future__ import annotations

import pathlib
import re

import pytest

from cyclegan.config.config import SECTION_OF

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLAGS_OF_OTHER_PROGRAMS = {
    *("--logdir", "--load_fast", "--index-url", "--upgrade", "--all"),  # TensorBoard, pip, tests/conftest.py
    *("--cpus-per-task", "--gpus-per-node", "--job-name", "--nodes", "--ntasks-per-node", "--time"),  # Slurm
    *("--kill-on-bad-exit", "--open-mode", "--output", "--requeue", "--signal", "--wait"),
    *("--map-root-user", "--net"),  # unshare
}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "runs" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
PAGES.append(ROOT / "docs" / "quickstart.ipynb")
PAGE_OF_SECTION = {  # the page that documents all flags of a section
    **dict.fromkeys(("networks", "objective", "optimization"), "method.md"),
    **{"data": "data.md", "evaluation": "evaluation.md"},
}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: pathlib.Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
        other = page.parent / target if target else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), f"{target}#{anchor}"


@each_page
def test_paths_exist(page: pathlib.Path) -> None:
    for path in re.findall(r"`((?:scripts|docs|tests|cyclegan)/[\w./]+)`", page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), path


@each_page
def test_named_tests_exist(page: pathlib.Path) -> None:
    for file, name in re.findall(r"`((?:\w+/)*test_\w+\.py)(?:::(\w+))?`", page.read_text(encoding="utf-8")):
        paths = [*(ROOT / "tests").rglob(file.removeprefix("tests/"))]
        assert len(paths) == 1, f"{file}: {paths}"  # its name identifies it
        assert not name or f"def {name}(" in paths[0].read_text(encoding="utf-8"), f"{file}::{name}"


def test_every_promise_names_a_test() -> None:
    _, *sections = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").split("\n## ")
    for section in sections[:-1]:  # the last one says what is not promised
        assert "`test_" in section, section
    tables = re.findall(r"^\|.* tests \|\n\|[-|]+\n((?:\|.*\n)+)", "\n## ".join(sections), re.MULTILINE)
    promises = "".join(tables).splitlines()
    assert len(tables) == 2 and not [line for line in promises if "test_" not in line.rpartition(" | ")[2]]


@each_page
def test_flags_exist(page: pathlib.Path) -> None:
    flags = {f"--{name}" for name in SECTION_OF} | {"--config", "--help"} | FLAGS_OF_OTHER_PROGRAMS
    for script in (*(ROOT / "scripts").rglob("*.py"), *(ROOT / "cyclegan").rglob("*.py")):
        flags.update(re.findall(r'"(--[a-z]\w*)"', script.read_text(encoding="utf-8")))
    for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", page.read_text(encoding="utf-8")):
        assert flag in flags, flag


@pytest.mark.parametrize("name", [name for name, section in SECTION_OF.items() if section in PAGE_OF_SECTION])
def test_flag_is_documented(name: str) -> None:
    page = ROOT / "docs" / PAGE_OF_SECTION[SECTION_OF[name]]
    assert re.search(rf"`--{name}\b", page.read_text(encoding="utf-8"))
