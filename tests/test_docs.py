"""Check that the paths, links and flags in the docs exist, and that each flag of the method is documented."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest

from cyclegan.config.command_line import REFERENCE_FLAGS
from cyclegan.config.config import all_settings
from cyclegan.training.callbacks import find_collapse, find_silent_failures

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLAGS_OF_OTHER_PROGRAMS = {
    *("--logdir", "--load_fast", "--index-url", "--upgrade", "--all"),  # TensorBoard, pip, tests/conftest.py
    *("--build-arg", "--gpus", "--rm", "--user"),  # docker
    *("--cpus-per-task", "--gpus-per-node", "--job-name", "--nodes", "--ntasks-per-node", "--time"),  # Slurm
    *("--kill-on-bad-exit", "--open-mode", "--output", "--requeue", "--signal", "--wait"),
    *("--map-root-user", "--net"),  # unshare
}
PAGES = [ROOT / name for name in ("runs/README.md", "docs/quickstart.ipynb")]
PAGES += sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
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
def test_links_paths_and_tests_exist(page: pathlib.Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        other = page.parent / target if target else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), f"{target}#{anchor}"
    for path in re.findall(r"`((?:scripts|docs|tests|cyclegan)/[\w./]+)`", text):
        assert (ROOT / path).exists(), path
    for file, name in re.findall(r"`((?:\w+/)*test_\w+\.py)(?:::(\w+))?`", text):
        paths = [*(ROOT / "tests").rglob(file.removeprefix("tests/"))]
        assert len(paths) == 1, f"{file}: {paths}"  # its name identifies it
        assert not name or f"def {name}(" in paths[0].read_text(encoding="utf-8"), f"{file}::{name}"


def test_the_page_about_failures_quotes_the_program() -> None:
    page = " ".join((ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").split())
    metrics = {"change/MAE(X, G(X))": 0.0, "change/correlation(X, G(X))": -1.0}
    texts = [*find_silent_failures({"loss_Y/loss": 0.0}, metrics).values()]
    images = np.linspace(-1, 1, 5)[:, None, None, None]
    texts += [text.partition(". ")[2] for text in find_collapse("G", images, 0 * images, images).values()]
    assert len(texts) == 4 and not [text for text in texts if text not in page]


def test_every_promise_names_a_test() -> None:
    _, *sections = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").split("\n## ")
    for section in sections[:-1]:  # the last one says what is not promised
        assert "`test_" in section, section
    tables = re.findall(r"^\|.* tests \|\n\|[-|]+\n((?:\|.*\n)+)", "\n## ".join(sections), re.MULTILINE)
    promises = "".join(tables).splitlines()
    assert len(tables) == 2 and not [line for line in promises if "test_" not in line.rpartition(" | ")[2]]


@each_page
def test_flags_exist(page: pathlib.Path) -> None:
    flags = {f"--{name}" for name in all_settings()} | {"--config", "--help"} | FLAGS_OF_OTHER_PROGRAMS
    for script in (*(ROOT / "scripts").rglob("*.py"), *(ROOT / "cyclegan").rglob("*.py")):
        flags.update(re.findall(r'"(--[a-z]\w*)"', script.read_text(encoding="utf-8")))
    for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", page.read_text(encoding="utf-8")):
        assert flag in flags, flag


def test_each_flag_of_the_method_is_documented() -> None:
    for name, setting in all_settings().items():
        if setting.section in PAGE_OF_SECTION:
            page = ROOT / "docs" / PAGE_OF_SECTION[setting.section]
            assert re.search(rf"`--{name}\b", page.read_text(encoding="utf-8")), name


def test_the_command_line_answers_the_flags_of_the_reference_as_the_docs_do() -> None:
    text = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    table = text[text.index("## Flags of pytorch-CycleGAN-and-pix2pix") :]
    for name, meant in REFERENCE_FLAGS.items():
        row = next(line for line in table.splitlines() if re.search(rf"`{name}\b", line))
        assert all(flag in row for flag in re.findall(r"--\w+", meant)), name
        assert name not in all_settings() and set(re.findall(r"--(\w+)", meant)) <= {*all_settings(), "checkpoint"}
