"""A report for the tests of the HTML report."""

import pytest

from cyclegan.reporting import html_report
from tests.reporting.reports import sample


@pytest.fixture
def report(tmp_path):
    """Return the report of a run: two samples of each direction, three epochs. Sorting by cycle error gives another order."""
    items = [sample(tmp_path, "a", (30, 20, 10)), sample(tmp_path, "b", (20, 20, 40))]
    items += [sample(tmp_path, "c", (5, 30, 0.03125), "Y → X"), sample(tmp_path, "d", (1, 2, 20), "Y → X")]
    return html_report.write(tmp_path, "a run", items, ["of the newest checkpoint"])
