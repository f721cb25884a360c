"""What the pages say of the code is there."""

import pathlib
import re

import pytest

from cyclegan.config.config import SECTION_OF

ROOT = pathlib.Path(__file__).resolve().parents[1]
OTHERS = {  # flags of other programs
    *("--logdir", "--upgrade"),  # TensorBoard, pip
    *("--cpus-per-task", "--gpus-per-node", "--job-name", "--nodes", "--ntasks-per-node", "--time"),  # Slurm
    *("--kill-on-bad-exit", "--open-mode", "--output", "--requeue", "--signal", "--wait"),
    *("--map-root-user", "--net"),  # unshare
}
PAGES = [ROOT / "README.md", ROOT / "runs" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_files_and_flags_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    file = None
    for name, test in re.findall(r"`(test_\w+\.py)?(?:::(\w+))?`", text):
        file = name or file
        if file and (name or test):
            assert f"def {test}" in (ROOT / "tests" / file).read_text(encoding="utf-8"), f"{file}::{test}"
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / target).exists(), target
    for path in re.findall(r"`((?:scripts|docs|tests|cyclegan)/[\w./]+)`", text):
        assert (ROOT / path).exists(), path
    flags = {f"--{name}" for name in SECTION_OF} | {"--config", "--help"} | OTHERS
    for script in (ROOT / "scripts").rglob("*.py"):
        flags.update(re.findall(r'"(--[a-z]\w*)"', script.read_text(encoding="utf-8")))
    for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", text):
        assert flag in flags, flag


@pytest.mark.parametrize(
    "name",
    [name for name, section in SECTION_OF.items() if section in ("data", "networks", "objective", "optimization")],
)
def test_every_option_of_the_method_is_in_its_page(name):
    assert re.search(rf"`--{name}\b", (ROOT / "docs" / "method.md").read_text(encoding="utf-8"))
