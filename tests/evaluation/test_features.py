import numpy as np
import pytest

from cyclegan.errors import UserError
from cyclegan.evaluation import features


def test_extractor_is_traced_once():
    extractor = features.random_extractor()
    for _ in range(3):
        extractor(np.zeros((4, 16, 16, 3), np.float32))
    assert extractor._compute.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("kind", ["inception", "weights.h5"])
def test_inception_takes_gray_and_rgb_only(kind):
    with pytest.raises(UserError, match="images of 2 channels: Inception takes RGB.*use the features of the random"):
        features.make_extractor(kind, (3, 2))
