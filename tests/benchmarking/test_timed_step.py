import pytest

from cyclegan.benchmarking.settings import Setting
from cyclegan.benchmarking.timed_step import TimedStep, compare, spread


def test_compares_turn_by_turn():
    def timed(replicas, seconds, **row):
        setting = Setting("default", 16, 6, "float32", "off", replicas, 5.0, 1, 2, 0)
        result = TimedStep(setting)
        result.seconds, result.row = seconds, row
        return result

    rows = [timed(1, [1.0, 2.0, 8.0]), timed(2, [2.0, 2.0, 8.8]), timed(3, [], error="no memory")]
    compare(rows, "relative", {"replicas": 1}, lambda own, fewest: own / fewest)
    assert [each.row.get("relative") for each in rows] == [1.0, 1.1, None]
    compare(rows, "relative", {"replicas": 4}, lambda own, fewest: own / fewest)
    assert [each.row.get("relative") for each in rows] == [None, None, None]
    assert spread([1.0, 2.0, 3.0, 4.0, 500.0]) == pytest.approx(2 / 3) and spread([1.0]) is None
