"""Run directories of the tests."""

from cyclegan.config import Config
from cyclegan.run.run_directory import RunDirectory

STACK = {"keras": 2, "tensorflow": "2.15.1"}
DATA = {"trainA": "3 images (1)"}


def open_run(path, stack=STACK, **values):
    return RunDirectory(Config.from_settings(output_dir=str(path), **values), stack)
