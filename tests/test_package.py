"""Build the package, compare it with the clone, install it, and use its commands in another folder."""

import ast
import email
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile

import numpy as np
import pytest
from packaging.requirements import Requirement
from PIL import Image

import cyclegan

ROOT = pathlib.Path(__file__).resolve().parents[1]
COMMANDS = ("train", "translate", "evaluate", "export", "inspect", "compare", "serve", "import-torch")
BUILD = "from setuptools import build_meta; build_meta.build_{}({!r})"
TINY = "--image_size 32 --filters 2 --residual_blocks 1 --max_dataset_size 4 --steps_per_call 1 --no_peak"


def build(kind, folder, out):
    """Build a wheel or an sdist of a folder; return its path."""
    command = [sys.executable, "-W", "ignore", "-c", BUILD.format(kind, str(out))]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl" if kind == "wheel" else "*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the path of a wheel that is built from an sdist of the files that the package is built from."""
    folder = tmp_path_factory.mktemp("package")
    for path in (
        *map(ROOT.joinpath, ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")),
        *ROOT.glob("req*.txt"),
    ):
        shutil.copy(path, folder)
    shutil.copytree(ROOT / "cyclegan", folder / "cyclegan", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "sdist").mkdir()
    subprocess.run(["tar", "-xf", build("sdist", folder, folder)], cwd=folder / "sdist", check=True)
    return build("wheel", next((folder / "sdist").iterdir()), folder)


@pytest.fixture(scope="module")
def info(wheel):
    """Return a function that reads a file of the wheel's metadata."""

    def read(file):
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(f".dist-info/{file}"))
            return archive.read(name).decode()

    return read


def normalized(requirement):
    """Return a requirement in the form of all packaging tools."""
    return str(Requirement(requirement)).replace("_", "-").replace("python-version", "python_version")


def requirements(name):
    """Return the packages of a requirements file."""
    lines = (re.sub("(^| )#.*", "", line).strip() for line in (ROOT / name).read_text(encoding="utf-8").splitlines())
    return {normalized(line) for line in lines if line and not line.startswith("-r")}


def test_the_wheel_has_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = (path for path in (ROOT / "cyclegan").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert names == {str(path.relative_to(ROOT)) for path in files}


def test_the_readme_lists_the_commands_of_the_wheel(info):
    found = re.findall(r"^cyclegan-([\w-]+) = ", info("entry_points.txt"), re.MULTILINE)
    assert set(found) == set(COMMANDS)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`cyclegan-([\w-]+)`", text)) == set(COMMANDS)


def test_dependencies_are_those_of_the_requirements_files(info):
    metadata = email.message_from_string(info("METADATA"))
    assert metadata["Version"] == cyclegan.__version__
    assert f"\nversion: {cyclegan.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {cyclegan.__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert metadata["License"] == "Apache-2.0" and metadata["License-File"] == "LICENSE"
    found = {extra: set() for extra in (None, *metadata.get_all("Provides-Extra"))}
    for text in metadata.get_all("Requires-Dist"):
        base, _, extra = text.replace("(", "").replace(")", "").partition("extra == ")
        extra = extra.strip("\"' ") or None
        found[extra].add(normalized(re.sub(r"(;|and)\s*$", "", base.strip())))
    assert found[None] == requirements("requirements.txt")
    assert found["gpu"] == requirements("requirements-gpu.txt")
    assert found["test"] == requirements("requirements-test.txt")
    assert set(found) == {
        None,
        "gpu",
        "torch",
        "dicom",
        "heif",
        "nifti",
        "film",
        "jxl",
        "wandb",
        "mlflow",
        "serve",
        "test",
    }
    script = (ROOT / "scripts" / "test.sh").read_text(encoding="utf-8")
    for extra, package in {
        "dicom": "pydicom",
        "nifti": "nibabel",
        "film": "av>",
        "wandb": "wandb>",
        "mlflow": "mlflow-skinny>",
    }.items():
        assert found[extra] == {normalized(text) for text in re.findall(f"'({package}.*?)'", script)}


@pytest.mark.skipif(not hasattr(sys, "stdlib_module_names"), reason="Python 3.9 does not list its own modules")
def test_every_imported_package_is_declared(info):
    scripts = [*ROOT.glob("scripts/**/*.py"), ROOT / "train.py"]
    imported = set()
    for path in (*scripts, *ROOT.glob("cyclegan/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module)
    imported = {
        {"PIL": "pillow", "google": "protobuf", "pillow_jxl": "pillow_jxl_plugin"}.get(name, name)
        for name in (name.split(".")[0] for name in imported)
    }
    own = {"cyclegan", "scripts", *(path.stem for path in scripts)}
    texts = email.message_from_string(info("METADATA")).get_all("Requires-Dist")
    declared = {
        re.match(r"[\w-]+", text)[0].replace("-", "_") for text in texts if "test" not in text.partition(";")[2]
    }
    assert imported - own - set(sys.stdlib_module_names) <= declared


@pytest.mark.slow
def test_commands_of_an_installation(wheel, tmp_path):
    """Install the wheel into an environment of its own, with the packages of this one, and use it without the clone."""
    venv.create(tmp_path / "env")
    python, site = tmp_path / "env" / "bin" / "python", next(tmp_path.glob("env/lib/python*/site-packages"))
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True, capture_output=True)
    files = sorted(site.rglob("*"))
    here = tmp_path / "elsewhere"
    here.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def call(name, arguments, code=0):
        command = [python.with_name(f"cyclegan-{name}"), *arguments.split()]
        done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done
        return done.stdout + done.stderr

    for name in COMMANDS:
        assert call(name, "--version") == f"cyclegan-{name} {cyclegan.__version__}\n"
    assert call("train", "--batch_size 0", 2).startswith("cyclegan-train: --batch_size 0: expected at least 1")
    call("train", f"--preset demo --epochs 1 --output_dir run {TINY}")
    assert json.loads((here / "run" / "config.json").read_text())["version"] == cyclegan.__version__
    assert (here / "run" / "index.html").stat().st_size > 1000
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(here / "in.png")
    call("translate", "run in.png out.png")
    with Image.open(here / "out.png") as image:
        assert image.size == (32, 32)
    assert sorted(site.rglob("*")) == files  # nothing is written into the installed package
