import numpy as np
import pytest

from cyclegan.errors import UserError
from cyclegan.interop.generator_layout import find_generator


def test_other_generators_are_refused():
    for state in ({}, {"conv1.weight": np.zeros((64, 3, 7, 7))}, {"model.0.weight": np.zeros((64, 3, 4, 4))}):
        with pytest.raises(UserError, match="expected latest_net_G_A.pth or the like"):
            find_generator(state)
    with pytest.raises(UserError, match="halves images 1 times; expected 8"):
        find_generator({"model.model.0.weight": np.zeros((64, 3, 4, 4))})
