import json

import pytest

import cyclegan
from cyclegan.benchmarking import report
from cyclegan.benchmarking.report import Report, format_table


@pytest.fixture(autouse=True)
def installed(tmp_path_factory, monkeypatch):
    """Let the package lie outside of a clone, where it need not ask git."""
    monkeypatch.setattr(report, "ROOT", tmp_path_factory.mktemp("site-packages"))


def test_numbers_have_three_digits_and_shares_are_percentages():
    row = {"size": 64, "batch": 2, "precision": "float32", "xla": "off", "identity": 5.0, "steps_per_call": 1}
    row.update(replicas=2, ms=1234.5, best_ms=12.345, spread=0.0523, relative=0.5, traces=1, first_seconds=None)
    title, line, cells = format_table("scaling", [row]).splitlines()
    assert title.startswith("| size | batch |") and title.endswith("| traces | first_seconds |")
    assert line == "|" + "---|" * 13
    assert cells == "| 64 | 2 | float32 | off | 5 | 1 | 2 | 1234 | 12.3 | 5.2 % | 0.5 | 1 |  |"
    assert "| 12 % |" in format_table("scaling", [{"spread": 0.123}])


def test_a_failed_row_adds_a_column():
    title, _, good, failed = format_table("scaling", [{"size": 64}, {"size": 32, "error": "a | b"}]).splitlines()
    assert title.endswith("| first_seconds | error |")
    assert good == "| 64 |" + "  |" * 13
    assert failed == "| 32 |" + "  |" * 12 + " a / b |"


def test_environment_variables_share_a_cell():
    _, _, cells = format_table("gpu_day", [{"group": "both", "environment": {"A": "1", "B": "0"}}]).splitlines()
    assert cells.startswith("| both | A=1 B=0 |  |")


def test_the_file_has_the_last_rows_of_each_part(tmp_path):
    path = tmp_path / "rows.json"
    kept = Report("benchmark.py --steps", path)
    for part, rows in (("steps", [{"ms": 1.0}]), ("data", [{"ms": 3.0}]), ("steps", [{"ms": 2.0}])):
        kept.keep(part, rows)
        assert json.loads(path.read_text()) == kept.content
    assert kept.content["command"] == "benchmark.py --steps"
    assert (kept.content["steps"], kept.content["data"]) == ([{"ms": 2.0}], [{"ms": 3.0}])
    assert list(tmp_path.iterdir()) == [path]


def test_rows_without_a_file_are_kept_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = Report("benchmark.py", None)
    kept.keep("steps", [{"ms": 1.0}])
    assert kept.content["steps"] == [{"ms": 1.0}] and not list(tmp_path.iterdir())


def test_the_processor_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "CPU_INFO", tmp_path / "cpuinfo")
    assert report.describe_machine()["cpu"] == "unknown"
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU: 3 GHz\nmodel name\t: another\n")
    machine = report.describe_machine()
    assert (machine["cpu"], machine["commit"]) == ("Some CPU: 3 GHz", cyclegan.__version__)
