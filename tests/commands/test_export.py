import logging
import types

from cyclegan.commands import export
from cyclegan.config.data import DataConfig


def test_values_of_ranges_are_logged(caplog):
    both, one = DataConfig(value_range_x="-1000:2000", value_range_y="0:4095"), DataConfig(value_range_y="0:4095")
    with caplog.at_level(logging.INFO, "cyclegan.export"):
        export._log_ranges(types.SimpleNamespace(uint8=False), both, "y2x")
        export._log_ranges(types.SimpleNamespace(uint8=True), one, "x2y")
    assert caplog.messages == [
        "picture: -1 and 1 stand for the values 0 and 4095",
        "translated: -1 and 1 stand for the values -1000 and 2000",
        "translated: 0 and 255 stand for the values 0 and 4095",
    ]
